"""What the engine asks of a device."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from impl.checks import require_whole
from impl.core import Batch, Flight
from impl.device.stream import Stream
from impl.errors import SettingError


class LaunchBlocks(Enum):
    """What a launch waits for before it returns, besides room in the stream's queue."""

    NOTHING = "nothing"
    PREVIOUS_FORWARD = "previous forward"
    """As a blocking copy onto the engine stream does (on CUDA: from pageable memory)."""
    OWN_FORWARD = "own forward"
    """As a hidden synchronization does (on CUDA: reading a value back)."""


@dataclass(frozen=True, slots=True)
class Matmuls:
    """Square fp32 matrix products launched one by one: `count` products of `dim` × `dim`."""

    count: int
    dim: int

    def __post_init__(self) -> None:
        require_whole("count", self.count, at_least=1, unit="products")
        require_whole("dim", self.dim, at_least=1, unit="rows")


@dataclass(frozen=True, slots=True)
class ArticleMatmuls:
    """The article's literal forwards; a CUDA device runs them as they are, whatever time that takes."""

    prefill: Matmuls
    decode: Matmuls

    def of(self, batch: Batch) -> Matmuls:
        """Return the products that a batch runs: a prompt of more than one token counts as prefill."""
        return self.prefill if batch.num_tokens > batch.size else self.decode


@dataclass(frozen=True, slots=True)
class GilReleases:
    """How often a device's calls let go of the GIL; each time it has to be won back from threads that compute.

    Told to a virtual device, they make it as slow there as the real one: on CPython every win takes a switch interval,
    5 ms. They are read off the device's code and its library's.
    """

    upload: int = 0
    wait_stream: int = 0
    before_start: int = 0
    """In a launch, until the event that marks the forward's start is on its stream."""
    before_kernels: int = 0
    """From then until the forward's first kernel is."""
    after: int = 0
    """From then until the launch returns."""


NO_RELEASES = GilReleases()

QUEUE_CAPACITY = 1000
"""Kernels that a stream's queue holds before the next launch blocks the host (measured on an H200)."""


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """How forwards are launched."""

    launch_blocks: LaunchBlocks = LaunchBlocks.NOTHING
    kernels_per_forward: int = 1
    """More than `QUEUE_CAPACITY` in the queue block the launch. On CUDA, 1 stands for a calibrated graph."""
    has_copy_stream: bool = True
    """Whether the copy of the tokens to the host has a stream of its own."""
    matmuls: ArticleMatmuls | None = None
    """Literal forwards for a CUDA device in place of calibrated ones."""

    def __post_init__(self) -> None:
        if not isinstance(self.launch_blocks, LaunchBlocks):
            allowed = ", ".join(str(each) for each in LaunchBlocks)
            raise SettingError(f"launch_blocks is {self.launch_blocks!r}; allowed: {allowed}")
        require_whole("kernels_per_forward", self.kernels_per_forward, at_least=1, unit="kernels")


class Device(Protocol):
    """Streams, uploads and forwards. One object serves one run."""

    has_copy_stream: bool
    """Whether copies to the host have a stream of their own."""

    def stream(self, name: str) -> Stream:
        """Create a stream. Raises ProtocolError if the device returns one that is in use already."""

    def upload(self, batch: Batch, stream: Stream) -> None:
        """Copy the batch's inputs to the device on `stream`, without blocking."""

    def launch(self, batch: Batch, stream: Stream, *, forward_ns: int, copy_ns: int) -> Any:
        """Enqueue a forward and the copy of its tokens; return what `wait` needs.

        Raises:
            ProtocolError: if nothing orders `stream` after the batch's upload.
        """

    def wait(self, flight: Flight) -> None:
        """Block until the tokens are on the host, then fill the flight's `tokens` and `read_times`."""

    def close(self, *, has_failed: bool) -> None:
        """Give back what the run holds; called once. No flight's times can be read any more.

        After a failure, what is queued need not run.
        """
