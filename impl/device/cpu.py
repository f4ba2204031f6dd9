"""A device without a GPU: each stream is a worker thread that sleeps for as long as a forward takes.

Real threads, real time, real races: what the CUDA device does, for machines that have none.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from impl.core import Batch, Flight, ForwardTimes
from impl.device.protocol import QUEUE_CAPACITY, DeviceSettings, LaunchBlocks
from impl.device.stream import STREAM_RING, Stream, StreamRegistry
from impl.runtime.threads import Aborted, ThreadRuntime
from impl.runtime.work import sharpen_timer, sleep_until
from impl.tokens import encode, token_of

POLL_S = 0.1
"""How often a long wait looks whether its run has failed."""


class _Event:
    """Recorded on a stream; `time_ns` is when the stream reached it."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self.time_ns = 0

    def record(self) -> None:
        self.time_ns = time.perf_counter_ns()
        self._reached.set()

    def synchronize(self, runtime: ThreadRuntime) -> None:
        while not self._reached.wait(POLL_S):
            runtime.require_running()


class CpuStream(Stream):
    """A worker thread with a bounded queue of operations."""

    def __init__(self, name: str, handle: int, runtime: ThreadRuntime) -> None:
        super().__init__(name, handle)
        self._runtime = runtime
        self._operations: queue.Queue[Callable[[], None] | None] = queue.Queue(QUEUE_CAPACITY)
        self._thread = threading.Thread(target=self._work, name=f"stream {name}", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        sharpen_timer()
        try:
            while (operation := self._operations.get()) is not None:
                if not self._runtime.has_failed.is_set():
                    operation()
        except Aborted:
            pass
        except BaseException as error:  # noqa: BLE001 - as in the runtime: it must end the run, in the caller
            self._runtime.fail(error, self._thread.name)

    def enqueue(self, operation: Callable[[], None]) -> None:
        """Append an operation; blocks while the queue is full."""
        while True:
            try:
                self._operations.put(operation, timeout=POLL_S)
                return
            except queue.Full:
                self._runtime.require_running()

    def record(self) -> _Event:
        """Record a new event behind everything issued so far."""
        event = _Event()
        self.enqueue(event.record)
        return event

    def wait_event(self, event: _Event) -> None:
        """Let the stream wait for an event, not the caller."""
        self.enqueue(lambda: event.synchronize(self._runtime))

    def wait_stream(self, other: Stream) -> None:
        super().wait_stream(other)
        assert isinstance(other, CpuStream), "streams of one device"
        self.wait_event(other.record())

    def stop(self) -> None:
        """Let the worker end; what is queued still runs, unless the run has failed."""
        while self._thread.is_alive():
            try:
                self._operations.put(None, timeout=POLL_S)
                break
            except queue.Full:
                continue
        self._thread.join(POLL_S if self._runtime.has_failed.is_set() else None)


@dataclass(slots=True)
class _Forward:
    start: _Event
    end: _Event
    copied: _Event
    on_device: list[int] = field(default_factory=list)
    on_host: list[int] = field(default_factory=list)


class CpuDevice:
    """Forwards that sleep in a worker thread."""

    def __init__(self, runtime: ThreadRuntime, settings: DeviceSettings) -> None:
        self._runtime = runtime
        self._settings = settings
        self.has_copy_stream = settings.has_copy_stream
        self._registry = StreamRegistry()
        self._streams: list[CpuStream] = []
        self._copy_stream = self.stream("copy") if settings.has_copy_stream else None

    def stream(self, name: str) -> CpuStream:
        stream = CpuStream(name, 1 + len(self._streams) % STREAM_RING, self._runtime)
        self._streams.append(stream)
        self._registry.add(stream)
        return stream

    def upload(self, batch: Batch, stream: Stream) -> None:
        assert isinstance(stream, CpuStream), "a stream of this device"
        codes = [encode(item) for item in batch.items]
        batch.inputs = []
        stream.enqueue(lambda: batch.inputs.extend(codes))
        # Numbered last: who waits for the stream in between must not count it.
        batch.upload = (stream, stream.issue())

    def launch(self, batch: Batch, stream: Stream, *, forward_ns: int, copy_ns: int) -> _Forward:
        assert isinstance(stream, CpuStream), "a stream of this device"
        stream.require_inputs(batch)
        settings = self._settings
        if settings.launch_blocks is LaunchBlocks.PREVIOUS_FORWARD:
            stream.record().synchronize(self._runtime)
        forward = _Forward(stream.record(), _Event(), _Event())
        self._enqueue_kernels(stream, forward, forward_ns)
        stream.enqueue(lambda: forward.on_device.extend(token_of(encoded) for encoded in batch.inputs))
        stream.enqueue(forward.end.record)
        copies_on = self._copy_stream or stream
        if copies_on is not stream:
            copies_on.wait_event(forward.end)
        copies_on.enqueue(partial(self._copy, forward, copy_ns))
        stream.issue()
        if settings.launch_blocks is LaunchBlocks.OWN_FORWARD:
            forward.end.synchronize(self._runtime)
        return forward

    def _enqueue_kernels(self, stream: CpuStream, forward: _Forward, forward_ns: int) -> None:
        num_kernels = self._settings.kernels_per_forward
        for index in range(1, num_kernels + 1):
            until_ns = forward_ns * index // num_kernels
            stream.enqueue(partial(self._run_until, forward, until_ns))

    def _run_until(self, forward: _Forward, until_ns: int) -> None:
        """Sleep until `until_ns` after the forward's start, which is known only once the stream has reached it."""
        sleep_until(forward.start.time_ns + until_ns, self._runtime.require_running)

    def _copy(self, forward: _Forward, copy_ns: int) -> None:
        if copy_ns:
            sleep_until(time.perf_counter_ns() + copy_ns, self._runtime.require_running)
        forward.on_host.extend(forward.on_device)
        forward.copied.record()

    def wait(self, flight: Flight) -> None:
        forward: _Forward = flight.payload
        forward.copied.synchronize(self._runtime)
        times = ForwardTimes(forward.start.time_ns, forward.end.time_ns, forward.copied.time_ns)
        flight.read_times = lambda: times
        flight.tokens = list(forward.on_host)

    def close(self, *, has_failed: bool) -> None:
        if has_failed:
            self._runtime.has_failed.set()  # the streams drop what is queued
        for stream in self._streams:
            stream.stop()
