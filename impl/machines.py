"""The machines a scheduler can run on: a runtime and a device that fit together."""

from __future__ import annotations

from typing import Protocol

from impl.device.cpu import CpuDevice
from impl.device.protocol import NO_RELEASES, Device, DeviceSettings, GilReleases
from impl.device.virtual import VirtualDevice
from impl.errors import DeviceUnavailable
from impl.runtime.protocol import Runtime
from impl.runtime.threads import ThreadRuntime
from impl.runtime.virtual import VirtualRuntime


class Machine(Protocol):
    """Makes the runtime and the device of one run."""

    @property
    def name(self) -> str:
        """virtual, cpu or cuda."""

    @property
    def is_exact(self) -> bool:
        """Whether equal runs give equal times."""

    @property
    def gil_releases(self) -> GilReleases:
        """How often calls into the device let go of the GIL."""

    def open(self, settings: DeviceSettings, *, num_forwards: int) -> tuple[Runtime, Device]:
        """Make a runtime and a device for one run.

        Args:
            settings: of the device.
            num_forwards: about how many the run launches: what they need is made ahead, and more on demand.
        """


class VirtualMachine:
    """No GPU, no threads, no waiting.

    Args:
        has_gil: False models a free-threaded Python.
        launch_tail_ns: see `VirtualDevice`.
        gil_releases: of the device that it stands for.
    """

    name = "virtual"
    is_exact = True

    def __init__(
        self, *, has_gil: bool = True, launch_tail_ns: int = 0, gil_releases: GilReleases = NO_RELEASES
    ) -> None:
        self._has_gil = has_gil
        self._launch_tail_ns = launch_tail_ns
        self.gil_releases = gil_releases

    def open(self, settings: DeviceSettings, *, num_forwards: int) -> tuple[Runtime, Device]:
        runtime = VirtualRuntime(has_gil=self._has_gil)
        device = VirtualDevice(runtime, settings, launch_tail_ns=self._launch_tail_ns, gil_releases=self.gil_releases)
        return runtime, device


class CpuMachine:
    """Real threads and real time; a stream is a worker thread."""

    name = "cpu"
    is_exact = False
    gil_releases = NO_RELEASES

    def open(self, settings: DeviceSettings, *, num_forwards: int) -> tuple[Runtime, Device]:
        runtime = ThreadRuntime()
        return runtime, CpuDevice(runtime, settings)


class CudaMachine:
    """Real threads and a CUDA GPU. Making one calibrates forwards, which takes seconds.

    Raises:
        DeviceUnavailable: if PyTorch is missing or has no usable CUDA device.
    """

    name = "cuda"
    is_exact = False
    gil_releases = GilReleases(upload=1, wait_stream=2, before_start=1, before_kernels=1, after=6)
    """PyTorch lets go of the GIL in every replay of a graph, and to record an event or wait for it.

    Upload: its graph. A wait: an event recorded, and waited for. A launch: the tokens' graph; the start's event; three
    graphs of the forward, the end's event, the copy's graph and its event.
    Source: PyTorch, torch/csrc/cuda/Event.cpp and Graph.cpp.
    """

    def __init__(self) -> None:
        reason = why_no_cuda()
        if reason is not None:
            raise DeviceUnavailable(reason)
        from impl.device import cuda, cuda_resources  # they need torch, which the other machines do without

        self._module = cuda
        self.resources = cuda_resources.CudaResources()

    def open(self, settings: DeviceSettings, *, num_forwards: int) -> tuple[Runtime, Device]:
        return ThreadRuntime(), self._module.CudaDevice(self.resources, settings, num_forwards=num_forwards)


def why_no_cuda() -> str | None:
    """Return the reason why no CUDA device can be used here; None if one can."""
    try:
        import torch
    except ImportError as error:
        return f"PyTorch does not import ({error}); install it with: pip install -e '.[gpu]'"
    if torch.version.cuda is None:
        return f"PyTorch {torch.__version__} is built without CUDA; install a CUDA build of torch"
    if not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} sees no CUDA device; check the driver with nvidia-smi"
    return None
