"""A CUDA GPU: real streams, events, pinned buffers; GPU times mapped onto the host's clock."""

from __future__ import annotations

import time
from functools import partial

import torch

from impl.core import Batch, Flight, ForwardTimes
from impl.device.cuda_resources import SLOT_SIZE, CudaResources, Events, Slot
from impl.device.protocol import DeviceSettings, LaunchBlocks, Matmuls
from impl.device.stream import Stream, StreamRegistry
from impl.errors import ProtocolError
from impl.tokens import encode

ANCHOR_TRIES = 20


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
        self.has_copy_stream = settings.has_copy_stream
        self._registry = StreamRegistry()
        self._copy_stream = self.stream("copy") if settings.has_copy_stream else None
        self._slots: dict[int, Slot] = {}
        """Taken and not given back, by batch."""
        self._events: list[Events] = []
        """All that this run recorded."""
        self._is_closed = False
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
        batch.upload = (stream, stream.issue())

    def launch(self, batch: Batch, stream: Stream, *, forward_ns: int, copy_ns: int) -> Events:
        assert isinstance(stream, CudaStream), "a stream of this device"
        stream.require_inputs(batch)
        blocks = self._settings.launch_blocks
        slot = self._slots[batch.id]
        events = self._resources.take_events()
        self._events.append(events)
        # Threads of a run belong to it, so their current stream may stay what it was set to last.
        torch.cuda.set_stream(stream.stream)
        if blocks is LaunchBlocks.PREVIOUS_FORWARD:
            torch.zeros(1).to(self._resources.device)  # from pageable memory: waits for the stream
        # The tokens are computed first: they do not depend on the products, and after a pause a graph starts about
        # 50 µs late (on an H200). Ahead of `events.start` that is no part of the forward's time.
        slot.compute.replay()
        events.start.record(stream.stream)
        self._enqueue_kernels(batch, forward_ns)
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
        return events

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
        events: Events = flight.payload
        events.copied.synchronize()
        slot = self._slots.pop(flight.batch.id)
        flight.tokens = slot.tokens_on_host[: len(flight.batch.items)].tolist()
        flight.read_times = partial(self._times, events)
        self._resources.give_back(slot)

    def _times(self, events: Events) -> ForwardTimes:
        if self._is_closed:  # another run may have recorded them anew
            raise ProtocolError("the times of a forward are read after its run has ended; read them while it runs")
        return ForwardTimes(self._host_ns(events.start), self._host_ns(events.end), self._host_ns(events.copied))

    def _host_ns(self, event: torch.cuda.Event) -> int:
        elapsed_ms: float = self._anchor.elapsed_time(event)
        return self._anchor_ns + round(elapsed_ms * 1e6)

    def close(self, *, has_failed: bool) -> None:
        self._is_closed = True
        torch.cuda.synchronize(self._resources.device)  # what fails here leaves buffers that the GPU may still touch
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
