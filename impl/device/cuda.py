"""A CUDA GPU: real streams, events, pinned buffers; GPU times mapped onto the host's clock.

Ownership: everything that one stream writes and another reads (inputs, tokens, host buffers, events) lies in a
slot. A batch takes a slot when its inputs are uploaded, its flight keeps it, and it goes back for reuse only after
the copy's event is done; so no buffer is overwritten or handed out while the GPU may still touch it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from impl.core import Batch, Flight
from impl.device.cuda_forwards import CalibratedForwards, measure_copy_rate
from impl.device.protocol import DeviceSettings, LaunchBlocks, Matmuls
from impl.device.stream import Stream, StreamRegistry
from impl.tokens import MULTIPLIER, encode

ANCHOR_TRIES = 20
SLOT_SIZE = 256
"""Requests that the buffers of a slot hold at least."""


class _Views(NamedTuple):
    """The first n elements of a slot's buffers, int32 [n]."""

    pinned_codes: torch.Tensor
    codes: torch.Tensor
    tokens: torch.Tensor
    pinned_tokens: torch.Tensor
    codes_on_host: NDArray[np.int32]
    tokens_on_host: NDArray[np.uint32]


class _Slot:
    """Buffers and events of one forward."""

    def __init__(self, device: torch.device, size: int) -> None:
        self.size = size
        self._pinned_codes = torch.zeros(size, dtype=torch.int32, pin_memory=True)
        self._codes = torch.zeros(size, dtype=torch.int32, device=device)
        self._tokens = torch.zeros(size, dtype=torch.int32, device=device)
        self._pinned_tokens = torch.zeros(size, dtype=torch.int32, pin_memory=True)
        self._views: dict[int, _Views] = {}
        self.start, self.end, self.copied = (torch.cuda.Event(enable_timing=True) for _ in range(3))

    def views(self, num: int) -> _Views:
        """Return the part of the buffers that a batch of `num` requests uses; kept, because slicing is slow."""
        if num not in self._views:
            pinned_codes, pinned_tokens = self._pinned_codes[:num], self._pinned_tokens[:num]
            self._views[num] = _Views(
                pinned_codes,
                self._codes[:num],
                self._tokens[:num],
                pinned_tokens,
                pinned_codes.numpy(),
                pinned_tokens.numpy().view(np.uint32),
            )
        return self._views[num]


class CudaResources:
    """What runs on one GPU share: calibrated forwards, operands of literal ones, a buffer for long copies."""

    def __init__(self) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.forwards = CalibratedForwards(self.device)
        self._copy_rate: float | None = None
        self._copy_buffers: tuple[torch.Tensor, torch.Tensor] | None = None
        self._squares: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._small: dict[float, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}
        self._free_slots: deque[_Slot] = deque(_Slot(self.device, SLOT_SIZE) for _ in range(8))

    def take_slot(self, size: int) -> _Slot:
        """Return a slot that nothing uses, with room for `size` requests."""
        try:
            slot = self._free_slots.pop()
        except IndexError:
            slot = _Slot(self.device, max(size, SLOT_SIZE))
        return slot if slot.size >= size else _Slot(self.device, size)

    def give_back(self, slot: _Slot) -> None:
        """Take back a slot whose copy is done."""
        self._free_slots.append(slot)

    def square(self, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return an operand and a result of dim × dim."""
        if dim not in self._squares:
            operand = torch.randn(dim, dim, device=self.device) / dim
            self._squares[dim] = operand, torch.empty_like(operand)
        return self._squares[dim]

    def small_kernel(self, kernel_ns: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return operands and result of a product of about `kernel_ns`."""
        if kernel_ns not in self._small:
            self._small[kernel_ns] = self.forwards.small_kernel(kernel_ns)
        return self._small[kernel_ns]

    def copy_buffers(self, copy_ns: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a device and a pinned host buffer whose copy takes `copy_ns`."""
        if self._copy_rate is None:
            self._copy_rate = measure_copy_rate(self.device)
        num_bytes = round(copy_ns * self._copy_rate)
        if self._copy_buffers is None or self._copy_buffers[0].numel() < num_bytes:
            self._copy_buffers = (
                torch.empty(num_bytes, dtype=torch.uint8, device=self.device),
                torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True),
            )
        source, target = self._copy_buffers
        return source[:num_bytes], target[:num_bytes]


class CudaStream(Stream):
    """A stream of PyTorch's pool."""

    def __init__(self, name: str, stream: torch.cuda.Stream) -> None:
        super().__init__(name, stream.cuda_stream)
        self.stream = stream

    def wait_stream(self, other: Stream) -> None:
        super().wait_stream(other)
        assert isinstance(other, CudaStream), "streams of one device"
        self.stream.wait_stream(other.stream)


class CudaDevice:
    """One run on the current GPU."""

    def __init__(self, resources: CudaResources, settings: DeviceSettings) -> None:
        self._resources = resources
        self._settings = settings
        self._registry = StreamRegistry()
        self._copy_stream = self.stream("copy") if settings.has_copy_stream else None
        # The first use of a resource allocates; two threads of a run may come at once.
        self._lock = threading.Lock()
        self._anchor, self._anchor_ns = _anchor()

    def stream(self, name: str) -> CudaStream:
        stream = CudaStream(name, torch.cuda.Stream(self._resources.device))
        self._registry.add(stream)
        return stream

    def upload(self, batch: Batch, stream: Stream) -> None:
        assert isinstance(stream, CudaStream), "a stream of this device"
        slot = self._resources.take_slot(len(batch.items))
        views = slot.views(len(batch.items))
        views.codes_on_host[:] = [encode(item) for item in batch.items]
        torch.cuda.set_stream(stream.stream)
        views.codes.copy_(views.pinned_codes, non_blocking=True)
        batch.inputs = slot
        batch.upload = (stream, stream.issue())

    def launch(self, batch: Batch, stream: Stream, *, forward_ns: int, copy_ns: int) -> _Slot:
        assert isinstance(stream, CudaStream), "a stream of this device"
        stream.require_inputs(batch)
        blocks = self._settings.launch_blocks
        slot: _Slot = batch.inputs
        views = slot.views(len(batch.items))
        # Threads of a run belong to it, so their current stream may stay what it was set to last.
        torch.cuda.set_stream(stream.stream)
        if blocks is LaunchBlocks.PREVIOUS_FORWARD:
            torch.zeros(1).to(self._resources.device)  # from pageable memory: waits for the stream
        slot.start.record(stream.stream)
        self._enqueue_kernels(batch, forward_ns)
        torch.mul(views.codes, MULTIPLIER, out=views.tokens)
        slot.end.record(stream.stream)
        copies_on = self._copy_stream or stream
        if copies_on is not stream:
            copies_on.stream.wait_event(slot.end)
            torch.cuda.set_stream(copies_on.stream)
        views.pinned_tokens.copy_(views.tokens, non_blocking=True)
        if copy_ns:
            source, target = self._copy_buffers(copy_ns)
            target.copy_(source, non_blocking=True)
        slot.copied.record(copies_on.stream)
        stream.issue()
        if blocks is LaunchBlocks.OWN_FORWARD:
            torch.cuda.set_stream(stream.stream)
            views.tokens[0].item()  # reading a value back waits for everything before it
        return slot

    def _copy_buffers(self, copy_ns: int) -> tuple[torch.Tensor, torch.Tensor]:
        with self._lock:
            return self._resources.copy_buffers(copy_ns)

    def _enqueue_kernels(self, batch: Batch, forward_ns: int) -> None:
        settings = self._settings
        if settings.matmuls is not None:
            self._multiply_squares(settings.matmuls.of(batch))
        elif settings.kernels_per_forward > 1:
            num_kernels = settings.kernels_per_forward
            with self._lock:
                left, right, result = self._resources.small_kernel(forward_ns / num_kernels)
            for _ in range(num_kernels):
                torch.mm(left, right, out=result)
        else:
            for unit, num_copies in self._resources.forwards.plan(forward_ns):
                unit.replay(num_copies)

    def _multiply_squares(self, matmuls: Matmuls) -> None:
        with self._lock:
            operand, result = self._resources.square(matmuls.dim)
        for _ in range(matmuls.count):
            torch.mm(operand, operand, out=result)

    def wait(self, flight: Flight) -> None:
        slot: _Slot = flight.payload
        slot.copied.synchronize()
        flight.tokens = slot.views(len(flight.batch.items)).tokens_on_host.tolist()
        flight.forward_start_ns = self._host_ns(slot.start)
        flight.forward_end_ns = self._host_ns(slot.end)
        flight.copy_end_ns = self._host_ns(slot.copied)
        flight.payload = flight.batch.inputs = None
        self._resources.give_back(slot)

    def _host_ns(self, event: torch.cuda.Event) -> int:
        return self._anchor_ns + round(self._anchor.elapsed_time(event) * 1e6)

    def close(self) -> None:
        torch.cuda.synchronize(self._resources.device)


def _anchor() -> tuple[torch.cuda.Event, int]:
    """Return a recorded event and the host time at which the GPU reached it, the closest of several tries.

    A new one for each run: elapsed times are 32-bit floats of milliseconds and lose microseconds after minutes.
    """
    torch.cuda.synchronize()
    best: tuple[int, torch.cuda.Event, int] | None = None
    for _ in range(ANCHOR_TRIES):
        event = torch.cuda.Event(enable_timing=True)
        before_ns = time.perf_counter_ns()
        event.record()
        event.synchronize()
        after_ns = time.perf_counter_ns()
        if best is None or after_ns - before_ns < best[0]:
            best = after_ns - before_ns, event, (before_ns + after_ns) // 2
    assert best is not None, "at least one try"
    return best[1], best[2]
