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
    """

    def __init__(self, seed: int, *, host: Jitter = lambda draw: 0.0, forward: Jitter = lambda draw: 0.0) -> None:
        super().__init__()
        self._seed, self._host, self._forward = seed, host, forward

    def open(self, settings: DeviceSettings, *, num_forwards: int) -> tuple[VirtualRuntime, VirtualDevice]:
        runtime = _JitteryRuntime(random.Random(self._seed), self._host)
        return runtime, _JitteryDevice(random.Random(self._seed + 1), self._forward, runtime, settings)


class _JitteryRuntime(VirtualRuntime):
    def __init__(self, draw: random.Random, jitter: Jitter) -> None:
        super().__init__(has_gil=True)
        self._draw, self._jitter = draw, jitter

    def work(self, kind: WorkKind, duration_ns: int) -> None:
        super().work(kind, _longer(duration_ns, self._jitter(self._draw)))


class _JitteryDevice(VirtualDevice):
    def __init__(self, draw: random.Random, jitter: Jitter, runtime: VirtualRuntime, settings: DeviceSettings) -> None:
        super().__init__(runtime, settings)
        self._draw, self._jitter = draw, jitter

    def launch(self, batch: Batch, stream: Stream, *, forward_ns: int, copy_ns: int) -> ForwardTimes:
        longer_ns = _longer(forward_ns, self._jitter(self._draw))
        return super().launch(batch, stream, forward_ns=longer_ns, copy_ns=copy_ns)


def _longer(duration_ns: int, by_ns: float) -> int:
    return max(0, round(duration_ns + by_ns))
