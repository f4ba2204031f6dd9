"""A virtual machine whose host and GPU take longer, or shorter, than they were asked for."""

from __future__ import annotations

import random
from collections.abc import Callable

from impl.core import Batch, ForwardTimes
from impl.costs import WorkKind
from impl.device.protocol import DeviceSettings
from impl.device.stream import Stream
from impl.device.virtual import VirtualDevice
from impl.machines import VirtualMachine
from impl.runtime.virtual import VirtualRuntime

Jitter = Callable[[random.Random], float]
"""Draws by how many nanoseconds a stage takes longer than asked for."""


class JitteryMachine(VirtualMachine):
    """A virtual device with jitter; equal seeds give equal runs.

    Args:
        seed: of both draws.
        host: jitter of each stage of the host.
        forward: jitter of each forward.
        tail: by how much later each launch returns.
    """

    def __init__(
        self,
        seed: int,
        *,
        host: Jitter = lambda draw: 0.0,
        forward: Jitter = lambda draw: 0.0,
        tail: Jitter = lambda draw: 0.0,
    ) -> None:
        super().__init__()
        self._seed, self._host, self._forward, self._tail = seed, host, forward, tail

    def open(self, settings: DeviceSettings, *, num_forwards: int) -> tuple[VirtualRuntime, VirtualDevice]:
        runtime = _JitteryRuntime(random.Random(self._seed), self._host)
        return runtime, _JitteryDevice(random.Random(self._seed + 1), self._forward, self._tail, runtime, settings)


class _JitteryRuntime(VirtualRuntime):
    def __init__(self, draw: random.Random, jitter: Jitter) -> None:
        super().__init__(has_gil=True)
        self._draw, self._jitter = draw, jitter

    def work(self, kind: WorkKind, duration_ns: int) -> None:
        super().work(kind, _longer(duration_ns, self._jitter(self._draw)))


class _JitteryDevice(VirtualDevice):
    def __init__(
        self, draw: random.Random, forward: Jitter, tail: Jitter, runtime: VirtualRuntime, settings: DeviceSettings
    ) -> None:
        super().__init__(runtime, settings)
        self._draw, self._forward, self._tail = draw, forward, tail

    def launch(self, batch: Batch, stream: Stream, *, forward_ns: int, copy_ns: int) -> ForwardTimes:
        longer_ns = _longer(forward_ns, self._forward(self._draw))
        times = super().launch(batch, stream, forward_ns=longer_ns, copy_ns=copy_ns)
        tail_ns = _longer(0, self._tail(self._draw))
        self._runtime.sleep_until(self._runtime.now_ns() + tail_ns, "the rest of its launch")
        return times


def _longer(duration_ns: int, by_ns: float) -> int:
    return max(0, round(duration_ns + by_ns))
