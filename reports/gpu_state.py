"""SM clock, power and throttling of the GPU during a run, as NVML tells them.

A process of its own samples: a thread in this one would ask for the GIL again and again, which is what some experiments
are about. `time.perf_counter_ns` reads one clock in all processes of a machine, so its samples fit the runs' times.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import NamedTuple, Protocol

ROOT = Path(__file__).resolve().parent.parent
INTERVAL_S = 0.01
MAX_START_S = 10.0
MAX_END_S = 2.0
"""Time that the sampling process gets to start and to end."""
THROTTLING = {
    0x04: "software power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""Bits of the clock event reasons that mean a slower GPU than asked for. Source: NVIDIA, nvml.h."""
ANY_THROTTLING = sum(THROTTLING)
FEWEST_SAMPLES = 3
"""Fewer say nothing: a single one would be all of a short run."""
MOST_THROTTLED = 0.05
"""Share of a run's samples; a round with a run beyond it is left out."""


class Sample(NamedTuple):
    """The GPU at a moment of `time.perf_counter_ns`."""

    time_ns: int
    sm_clock_mhz: int
    power_mw: int
    reasons: int
    """Bits of NVML's clock event reasons."""


@dataclass(frozen=True, slots=True)
class GpuState:
    """The GPU during a run."""

    num_samples: int
    sm_clock_mhz: float
    """Mean over the samples."""
    sm_clock_min_mhz: int
    power_w: float
    """Mean over the samples."""
    throttled_share: float
    """Share of samples with any reason that slows a GPU down."""
    throttled: Mapping[str, float]
    """The same by reason."""

    @property
    def throttling(self) -> str | None:
        """What slowed the run down, in words; None if nothing did for long enough to count."""
        if self.num_samples < FEWEST_SAMPLES or self.throttled_share <= MOST_THROTTLED:
            return None
        named = [f"{name} in {share:.0%}" for name, share in self.throttled.items()]
        return f"{' and '.join(named)} of {self.num_samples} samples"


class Monitor(Protocol):
    """Knows the state of the GPU in the past; asked in order of time."""

    def state(self, start_ns: int, end_ns: int) -> GpuState | None:
        """Return the state between two times of `time.perf_counter_ns`; None if nothing was sampled then."""


def summarize(samples: list[Sample]) -> GpuState | None:
    """Return the state that samples show; None without any."""
    if not samples:
        return None
    counts = Counter(name for sample in samples for bit, name in THROTTLING.items() if sample.reasons & bit)
    return GpuState(
        num_samples=len(samples),
        sm_clock_mhz=fmean(sample.sm_clock_mhz for sample in samples),
        sm_clock_min_mhz=min(sample.sm_clock_mhz for sample in samples),
        power_w=fmean(sample.power_mw for sample in samples) / 1e3,
        throttled_share=sum(bool(sample.reasons & ANY_THROTTLING) for sample in samples) / len(samples),
        throttled={name: count / len(samples) for name, count in counts.items()},
    )


def _parsed(line: bytes) -> Sample | None:
    """Read a line of the sampling process; None for what a library prints in between."""
    fields = line.split()
    if len(fields) != len(Sample._fields) or not all(field.isdigit() for field in fields):
        return None
    return Sample(*map(int, fields))


class Sampler:
    """A process that samples a GPU until it is closed, or this process ends.

    Args:
        uuid: of the GPU, as NVML writes it ("GPU-…").
    """

    def __init__(self, uuid: str) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this object
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as above
        paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "reports.gpu_state", uuid],
            stdin=subprocess.PIPE,
            stdout=self._file,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C in a terminal is meant for this process
            env=environment,
        )
        self._samples: list[Sample] = []
        self._num_read = 0
        self._await_first_sample()

    def _await_first_sample(self) -> None:
        """Return once it samples, so that the first run is sampled too; give up if that takes long."""
        deadline_s = time.monotonic() + MAX_START_S
        while not self._num_written and self._process.poll() is None and time.monotonic() < deadline_s:
            time.sleep(INTERVAL_S)

    @property
    def _num_written(self) -> int:
        """Bytes that the process has written so far."""
        return os.fstat(self._file.fileno()).st_size

    def state(self, start_ns: int, end_ns: int) -> GpuState | None:
        """Return the state between two times, and forget what was sampled before the first."""
        found = os.pread(self._file.fileno(), self._num_written - self._num_read, self._num_read)
        whole = found[: found.rfind(b"\n") + 1]
        self._num_read += len(whole)
        self._samples += filter(None, map(_parsed, whole.splitlines()))
        self._samples = [sample for sample in self._samples if sample.time_ns >= start_ns]
        return summarize([sample for sample in self._samples if sample.time_ns < end_ns])

    def why_ended(self) -> str | None:
        """Return why the process has ended on its own, or has not begun; None while it samples."""
        if self._process.poll() is None:
            return None if self._num_written else f"no sample within {MAX_START_S:g} s"
        self._errors.seek(0)
        told = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"sampling ended with {self._process.returncode}: {told[-1] if told else 'no error was told'}"

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        try:
            self._process.wait(MAX_END_S)
        except subprocess.TimeoutExpired:  # it hangs in the driver
            self._process.kill()
            self._process.wait()
        assert self._process.stdin is not None, "a pipe was asked for"
        self._process.stdin.close()
        self._file.close()
        self._errors.close()


def sample_until_parent_ends(uuid: str) -> None:
    """Print a sample every `INTERVAL_S` until standard input is closed."""
    import pynvml

    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    while not select.select([sys.stdin], [], [], INTERVAL_S)[0]:
        sample = Sample(
            time.perf_counter_ns(),
            pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
            pynvml.nvmlDeviceGetPowerUsage(gpu),
            pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu),
        )
        print(*sample, flush=True)


def why_no_nvml() -> str | None:
    """Return the reason why NVML cannot be asked here; None if it can."""
    try:
        import pynvml
    except ImportError as error:
        return f"nvidia-ml-py does not import ({error}); install it with: pip install nvidia-ml-py"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return f"NVML does not start ({error}); check the driver with nvidia-smi"
    return None


if __name__ == "__main__":
    sample_until_parent_ends(sys.argv[1])
