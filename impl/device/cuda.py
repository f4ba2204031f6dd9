"""A CUDA GPU: real streams, events, pinned buffers; GPU times mapped onto the host's clock.

Ownership: everything that one stream writes and another reads (inputs, tokens, host buffers) lies in a slot. A batch
takes a slot when its inputs are uploaded, its flight keeps it, and it goes back for reuse only after the copy's event
is done; so no buffer is overwritten or handed out while the GPU may still touch it. Events are not recorded again
within a run: their times are read when somebody asks, mostly at its end.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from functools import partial

import numpy as np
import torch

from impl.core import Batch, Flight, ForwardTimes
from impl.device.cuda_forwards import CalibratedForwards, capture, measure_copy_rate
from impl.device.protocol import DeviceSettings, LaunchBlocks, Matmuls
from impl.device.stream import Stream, StreamRegistry
from impl.errors import ProtocolError
from impl.tokens import MULTIPLIER, encode

ANCHOR_TRIES = 20
SLOT_SIZE = 1024
"""Requests that a batch may hold: the buffers of a slot have this many elements."""
MAX_RESERVED = 128
"""Forwards for which slots and events are made ahead of a run; what more it needs is made in its middle."""


class _Events:
    """Events around one forward and behind its copy."""

    def __init__(self) -> None:
        self.start, self.end, self.copied = (torch.cuda.Event(enable_timing=True) for _ in range(3))


class _Slot:
    """Buffers and small graphs of one forward; int32 [SLOT_SIZE] each.

    Copies and the token kernel are replayed as graphs of whole buffers: after a pause of milliseconds a graph
    launch costs the host a few microseconds where a tensor operation costs a hundred (measured on an H200).
    """

    def __init__(self, device: torch.device, capture_stream: torch.cuda.Stream) -> None:
        pinned_codes = torch.zeros(SLOT_SIZE, dtype=torch.int32, pin_memory=True)
        pinned_tokens = torch.zeros(SLOT_SIZE, dtype=torch.int32, pin_memory=True)
        codes = torch.zeros(SLOT_SIZE, dtype=torch.int32, device=device)
        tokens = torch.zeros(SLOT_SIZE, dtype=torch.int32, device=device)
        self.codes_on_host = pinned_codes.numpy()
        self.tokens_on_host = pinned_tokens.numpy().view(np.uint32)
        self.tokens = tokens
        self.upload = capture(capture_stream, lambda: codes.copy_(pinned_codes, non_blocking=True))
        self.compute = capture(capture_stream, lambda: torch.mul(codes, MULTIPLIER, out=tokens))
        self.download = capture(capture_stream, lambda: pinned_tokens.copy_(tokens, non_blocking=True))
        self._owned = pinned_codes, pinned_tokens, codes, tokens
        """What the graphs read and write; graphs hold addresses only."""


class CudaResources:
    """What all runs on a GPU share: calibrated forwards, operands of literal ones, slots, events, copy buffers."""

    def __init__(self) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.forwards = CalibratedForwards(self.device)
        self._lock = threading.Lock()
        """Held where something is made at its first use: two threads of a run may come at once."""
        self._copy_bytes_per_ns: float | None = None
        self._copy_pair: tuple[torch.Tensor, torch.Tensor] | None = None
        self._squares: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._small: dict[float, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}
        self._capture_stream = torch.cuda.Stream(self.device)
        self._free_slots: deque[_Slot] = deque()
        self._num_slots = 0
        self._free_events: deque[_Events] = deque()

    def reserve(self, num_forwards: int) -> None:
        """Make slots and events for this many forwards, at most `MAX_RESERVED`; they are kept for later runs."""
        num_forwards = min(num_forwards, MAX_RESERVED)
        while self._num_slots < num_forwards:
            self._free_slots.append(self._make_slot())
        while len(self._free_events) < num_forwards:
            events = _Events()
            for event in (events.start, events.end, events.copied):
                event.record(self._capture_stream)  # CUDA makes an event at its first recording
            self._free_events.append(events)

    def _make_slot(self) -> _Slot:
        with self._lock:
            self._num_slots += 1
            return _Slot(self.device, self._capture_stream)

    def take_slot(self) -> _Slot:
        """Return a slot that nothing uses."""
        try:
            return self._free_slots.pop()
        except IndexError:
            return self._make_slot()

    def give_back(self, slot: _Slot) -> None:
        """Take back a slot whose copy is done."""
        self._free_slots.append(slot)

    def take_events(self) -> _Events:
        """Return events that nobody will read any more."""
        try:
            return self._free_events.pop()
        except IndexError:
            return _Events()

    def give_back_events(self, events: Iterable[_Events]) -> None:
        """Take back events whose times are not needed any more."""
        self._free_events.extend(events)

    def square(self, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return an operand and a result of dim × dim."""
        with self._lock:
            if dim not in self._squares:
                operand = torch.randn(dim, dim, device=self.device) / dim
                self._squares[dim] = operand, torch.empty_like(operand)
            return self._squares[dim]

    def small_kernel(self, kernel_ns: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return operands and result of a product of about `kernel_ns`."""
        with self._lock:
            if kernel_ns not in self._small:
                self._small[kernel_ns] = self.forwards.small_kernel(kernel_ns)
            return self._small[kernel_ns]

    def copy_buffers(self, copy_ns: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a device and a pinned host buffer whose copy takes `copy_ns`."""
        with self._lock:
            if self._copy_bytes_per_ns is None:
                self._copy_bytes_per_ns = measure_copy_rate(self.device)
            num_bytes = round(copy_ns * self._copy_bytes_per_ns)
            if self._copy_pair is None or self._copy_pair[0].numel() < num_bytes:
                self._copy_pair = (
                    torch.empty(num_bytes, dtype=torch.uint8, device=self.device),
                    torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True),
                )
            source, target = self._copy_pair
            return source[:num_bytes], target[:num_bytes]


class CudaStream(Stream):
    """A stream of PyTorch's pool."""

    def __init__(self, name: str, stream: torch.cuda.Stream) -> None:
        super().__init__(name, stream.cuda_stream)
        self.stream = stream
        self._so_far = torch.cuda.Event()
        """Recorded anew at every wait: a wait holds to what the event meant when it was issued."""

    def wait_stream(self, other: Stream) -> None:
        super().wait_stream(other)
        assert isinstance(other, CudaStream), "streams of one device"
        other._so_far.record(other.stream)
        self.stream.wait_event(other._so_far)


class CudaDevice:
    """One run on the current GPU."""

    def __init__(self, resources: CudaResources, settings: DeviceSettings, *, num_forwards: int) -> None:
        self._resources = resources
        self._settings = settings
        self._registry = StreamRegistry()
        self._copy_stream = self.stream("copy") if settings.has_copy_stream else None
        self._slots: dict[int, _Slot] = {}
        """Taken and not given back, by batch."""
        self._events: list[_Events] = []
        """All that this run recorded."""
        resources.reserve(num_forwards)
        self._anchor, self._anchor_ns = _anchor()

    def stream(self, name: str) -> CudaStream:
        stream = CudaStream(name, torch.cuda.Stream(self._resources.device))
        self._registry.add(stream)
        return stream

    def upload(self, batch: Batch, stream: Stream) -> None:
        assert isinstance(stream, CudaStream), "a stream of this device"
        if len(batch.items) > SLOT_SIZE:
            raise ProtocolError(
                f"batch {batch.id} has {len(batch.items)} requests; allowed on CUDA: at most {SLOT_SIZE}"
            )
        slot = self._slots[batch.id] = self._resources.take_slot()
        slot.codes_on_host[: len(batch.items)] = [encode(item) for item in batch.items]
        torch.cuda.set_stream(stream.stream)
        slot.upload.replay()
        batch.inputs = slot
        batch.upload = (stream, stream.issue())

    def launch(self, batch: Batch, stream: Stream, *, forward_ns: int, copy_ns: int) -> tuple[_Slot, _Events]:
        assert isinstance(stream, CudaStream), "a stream of this device"
        stream.require_inputs(batch)
        blocks = self._settings.launch_blocks
        slot: _Slot = batch.inputs
        events = self._resources.take_events()
        self._events.append(events)
        # Threads of a run belong to it, so their current stream may stay what it was set to last.
        torch.cuda.set_stream(stream.stream)
        if blocks is LaunchBlocks.PREVIOUS_FORWARD:
            torch.zeros(1).to(self._resources.device)  # from pageable memory: waits for the stream
        events.start.record(stream.stream)
        self._enqueue_kernels(batch, forward_ns)
        slot.compute.replay()
        events.end.record(stream.stream)
        copies_on = self._copy_stream or stream
        if copies_on is not stream:
            copies_on.stream.wait_event(events.end)
            torch.cuda.set_stream(copies_on.stream)
        slot.download.replay()
        if copy_ns:
            source, target = self._resources.copy_buffers(copy_ns)
            target.copy_(source, non_blocking=True)
        events.copied.record(copies_on.stream)
        stream.issue()
        if blocks is LaunchBlocks.OWN_FORWARD:
            torch.cuda.set_stream(stream.stream)
            slot.tokens[0].item()  # reading a value back waits for everything before it
        return slot, events

    def _enqueue_kernels(self, batch: Batch, forward_ns: int) -> None:
        settings = self._settings
        if settings.matmuls is not None:
            self._multiply_squares(settings.matmuls.of(batch))
        elif settings.kernels_per_forward > 1:
            num_kernels = settings.kernels_per_forward
            left, right, result = self._resources.small_kernel(forward_ns / num_kernels)
            for _ in range(num_kernels):
                torch.mm(left, right, out=result)
        else:
            for unit, num_copies in self._resources.forwards.plan(forward_ns):
                unit.replay(num_copies)

    def _multiply_squares(self, matmuls: Matmuls) -> None:
        operand, result = self._resources.square(matmuls.dim)
        for _ in range(matmuls.count):
            torch.mm(operand, operand, out=result)

    def wait(self, flight: Flight) -> None:
        slot: _Slot
        events: _Events
        slot, events = flight.payload
        events.copied.synchronize()
        flight.tokens = slot.tokens_on_host[: len(flight.batch.items)].tolist()
        flight.read_times = partial(self._times, events)
        flight.payload = flight.batch.inputs = None
        self._resources.give_back(self._slots.pop(flight.batch.id))

    def _times(self, events: _Events) -> ForwardTimes:
        return ForwardTimes(self._host_ns(events.start), self._host_ns(events.end), self._host_ns(events.copied))

    def _host_ns(self, event: torch.cuda.Event) -> int:
        elapsed_ms: float = self._anchor.elapsed_time(event)
        return self._anchor_ns + round(elapsed_ms * 1e6)

    def close(self, *, has_failed: bool) -> None:
        torch.cuda.synchronize(self._resources.device)
        for slot in self._slots.values():  # of flights that were dropped
            self._resources.give_back(slot)
        self._resources.give_back_events(self._events)


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
