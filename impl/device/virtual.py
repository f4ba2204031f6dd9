"""The virtual device: streams, one compute engine and one copy engine, as arithmetic on virtual time.

Operations run in the order in which they are launched: a compute engine that is promised to one forward is not
given to a later one, even if that could start sooner. When a forward is launched, its start and end follow from
what was launched before, so nothing needs to be simulated until somebody waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from impl.core import Batch, Flight, ForwardTimes
from impl.device.protocol import NO_RELEASES, QUEUE_CAPACITY, DeviceSettings, GilReleases, LaunchBlocks
from impl.device.stream import STREAM_RING, Stream, StreamRegistry
from impl.runtime.virtual import VirtualRuntime
from impl.tokens import encode, token_of


class VirtualStream(Stream):
    """A stream whose last operation ends at `tail_ns`."""

    def __init__(self, name: str, handle: int, let_go: Callable[[int], None], num_releases: int) -> None:
        super().__init__(name, handle)
        self._let_go = let_go
        self._num_releases = num_releases
        self.tail_ns = 0
        self.queued: deque[ForwardTimes] = deque()
        """Forwards whose kernels may still be in the queue, oldest first."""

    def wait_stream(self, other: Stream) -> None:
        super().wait_stream(other)
        assert isinstance(other, VirtualStream), "streams of one device"
        if self._num_releases:
            self._let_go(self._num_releases)
        self.tail_ns = max(self.tail_ns, other.tail_ns)


class VirtualDevice:
    """A GPU in virtual time.

    Args:
        runtime: whose time it lives in.
        settings: how forwards are launched.
        launch_tail_ns: how long a launch goes on at least after the forward could start: more kernels to enqueue.
        gil_releases: how often its calls let go of the GIL.
    """

    def __init__(
        self,
        runtime: VirtualRuntime,
        settings: DeviceSettings,
        *,
        launch_tail_ns: int = 0,
        gil_releases: GilReleases = NO_RELEASES,
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self.has_copy_stream = settings.has_copy_stream
        self._launch_tail_ns = launch_tail_ns
        self._gil_releases = gil_releases
        self._streams = StreamRegistry()
        self._num_created = 0
        self._compute_free_ns = 0
        self._copy_free_ns = 0

    def stream(self, name: str) -> VirtualStream:
        handle = 1 + self._num_created % STREAM_RING
        stream = VirtualStream(name, handle, self._let_go, self._gil_releases.wait_stream)
        self._num_created += 1
        self._streams.add(stream)
        return stream

    def _let_go(self, num_times: int) -> None:
        for _ in range(num_times):
            self._runtime.wake()

    def upload(self, batch: Batch, stream: Stream) -> None:
        if self._gil_releases.upload:
            self._let_go(self._gil_releases.upload)
        batch.upload = (stream, stream.issue())

    def launch(self, batch: Batch, stream: Stream, *, forward_ns: int, copy_ns: int) -> ForwardTimes:
        assert isinstance(stream, VirtualStream), "a stream of this device"
        stream.require_inputs(batch)
        settings = self._settings
        if settings.launch_blocks is LaunchBlocks.PREVIOUS_FORWARD:
            self._runtime.sleep_until(stream.tail_ns, "the previous forward, inside the launch")
        releases = self._gil_releases
        if releases is not NO_RELEASES:
            self._let_go(releases.before_start)
        now_ns = self._runtime.now_ns()
        start_ns = kernels_ns = max(now_ns, stream.tail_ns, self._compute_free_ns)
        if releases is not NO_RELEASES:
            self._let_go(releases.before_kernels)
            # The start is an event of its own: it may have passed long before the kernels come.
            kernels_ns = max(self._runtime.now_ns(), stream.tail_ns, self._compute_free_ns)
        end_ns = kernels_ns + forward_ns
        copy_end_ns = max(end_ns, self._copy_free_ns) + copy_ns
        self._compute_free_ns = end_ns
        self._copy_free_ns = copy_end_ns
        stream.tail_ns = end_ns if settings.has_copy_stream else copy_end_ns
        stream.issue()
        times = ForwardTimes(start_ns, end_ns, copy_end_ns)
        if settings.kernels_per_forward > 1:
            self._wait_for_room(stream, times)
        if settings.launch_blocks is LaunchBlocks.OWN_FORWARD:
            self._runtime.sleep_until(end_ns, "its own forward, inside the launch")
        if self._launch_tail_ns:
            self._runtime.sleep_until(now_ns + self._launch_tail_ns, "the rest of its launch")
        if releases is not NO_RELEASES:
            self._let_go(releases.after)
        return times

    def _wait_for_room(self, stream: VirtualStream, times: ForwardTimes) -> None:
        """Return when all kernels but the last `QUEUE_CAPACITY` of the stream have run."""
        stream.queued.append(times)
        num_kernels = self._settings.kernels_per_forward
        num_after, surplus = divmod(QUEUE_CAPACITY, num_kernels)
        if num_after >= len(stream.queued):
            return
        # Kernels of a forward are equally long: the queue has room once this part of it has run.
        forward = stream.queued[-1 - num_after]
        part_ns = (forward.end_ns - forward.start_ns) * (num_kernels - surplus) // num_kernels
        while len(stream.queued) > num_after + 1:
            stream.queued.popleft()
        self._runtime.sleep_until(forward.start_ns + part_ns, "room in the stream's queue")

    def wait(self, flight: Flight) -> None:
        times: ForwardTimes = flight.payload
        self._runtime.sleep_until(times.copy_end_ns, "its forward")
        flight.read_times = lambda: times
        flight.tokens = [token_of(encode(item)) for item in flight.batch.items]

    def close(self, *, has_failed: bool) -> None:
        """Nothing is held."""
