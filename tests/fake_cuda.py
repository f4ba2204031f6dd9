"""What `impl.device.cuda` needs of torch.cuda, without a GPU: operations run at once, in the thread that issues them.

It shows that the device's code runs and that its buffers, slots and events are handed on rightly; it shows nothing
about time, as nothing overlaps.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from impl.device import cuda, cuda_resources
from impl.machines import CudaMachine

_handles = itertools.count(1)


class Stream:
    def __init__(self, device: object = None) -> None:
        self.cuda_stream = next(_handles)

    def wait_event(self, event: Event) -> None:
        assert event.time_ns is not None, "an event is waited for before it is recorded"

    def synchronize(self) -> None:
        """Nothing is outstanding."""


class Event:
    def __init__(self, *, enable_timing: bool = False) -> None:
        self.time_ns: int | None = None

    def record(self, stream: Stream | None = None) -> None:
        self.time_ns = time.perf_counter_ns()

    def synchronize(self) -> None:
        assert self.time_ns is not None, "an event is waited for before it is recorded"

    def elapsed_time(self, end: Event) -> float:
        assert self.time_ns is not None
        assert end.time_ns is not None
        return (end.time_ns - self.time_ns) / 1e6


class Graph:
    def __init__(self, operation: Callable[[], object]) -> None:
        self._operation = operation

    def replay(self) -> None:
        self._operation()


class Forwards:
    """In place of `CalibratedForwards`: a unit sleeps for the whole forward."""

    def __init__(self, device: object) -> None:
        """Nothing is calibrated."""

    def plan(self, forward_ns: int) -> list[tuple[Any, int]]:
        return [(SimpleNamespace(replay=lambda copies: time.sleep(forward_ns / 1e9)), 1)]

    def small_kernel(self, kernel_ns: float) -> tuple[torch.Tensor, ...]:
        return torch.ones(2, 2), torch.ones(2, 2), torch.empty(2, 2)


class Torch:
    """The torch module with its CUDA parts replaced and every tensor on the CPU."""

    cuda = SimpleNamespace(
        Stream=Stream,
        Event=Event,
        set_stream=lambda stream: None,
        synchronize=lambda device=None: None,
        current_device=lambda: 0,
    )

    def __getattr__(self, name: str) -> Any:
        real = getattr(torch, name)
        if name == "device":
            return lambda *where: real("cpu")
        if name not in ("zeros", "randn", "empty"):
            return real
        return lambda *shape, device=None, pin_memory=False, **rest: real(*shape, **rest)


def fake_machine(patch: pytest.MonkeyPatch) -> CudaMachine:
    """Return a CUDA machine that needs no GPU, for as long as the patch lasts."""
    for module in (cuda, cuda_resources):
        patch.setattr(module, "torch", Torch())
    patch.setattr(cuda_resources, "capture", lambda stream, operation: Graph(operation))
    patch.setattr(cuda_resources, "CalibratedForwards", Forwards)
    patch.setattr(cuda_resources, "measure_copy_rate", lambda device: 25.0)
    patch.setattr("impl.machines.why_no_cuda", lambda: None)
    return CudaMachine()
