"""Where the GPU's time went, from the start of the first forward to the end of the last."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from enum import Enum
from itertools import pairwise

from impl.lanes import Lane, copies_in_the_way, host_lanes, united
from impl.timeline import COPY, FORWARD, LAUNCH, PRE, SYNCHRONIZE, Timeline
from impl.workload import Workload


class GpuCause(Enum):
    """What the GPU does, or why it does nothing."""

    BUSY = "busy"
    """At least one forward runs; forwards that overlap are united, not added."""
    CPU = "idle while the CPU prepares"
    REQUESTS = "idle for want of requests"
    """No request of the next forward is there yet."""
    LAUNCH_SLOT = "idle for want of a launch slot"
    """The thread that has to launch is still inside the launch of another batch."""
    COPY = "idle behind a copy"
    """Tokens are copied on the forwards' own stream, or the thread that has to go on waits for their copy."""
    HELD = "idle because it is held back"
    """Requests wait, and the thread that has to prepare them waits for something else."""


def split_gpu_time(timeline: Timeline, workload: Workload) -> Mapping[GpuCause, int]:
    """Divide the window between the first forward's start and the last one's end among causes.

    Args:
        timeline: of a complete run.
        workload: what it served.

    Returns:
        Nanoseconds by cause; they add up to the window.
    """
    forwards = timeline.stage(FORWARD)
    busy = united(forwards)
    gaps = _Gaps(timeline, workload)
    found: dict[GpuCause, int] = defaultdict(int)
    found[GpuCause.BUSY] = sum(span.end_ns - span.start_ns for span in busy)
    following = {span.start_ns: span.batch_id for span in reversed(forwards)}
    for before, after in pairwise(busy):
        for start_ns, end_ns, cause in gaps.split(before.end_ns, after.start_ns, following[after.start_ns]):
            found[cause] += end_ns - start_ns
    return dict(found)


class _Gaps:
    """A timeline, indexed for the time between forwards."""

    def __init__(self, timeline: Timeline, workload: Workload) -> None:
        self._taken_ns = {taken.batch_id: taken.time_ns for taken in timeline.taken}
        self._pre = {span.batch_id: span for span in timeline.stage(PRE)}
        self._launch = {span.batch_id: span for span in timeline.stage(LAUNCH)}
        self._copy = {span.batch_id: span for span in timeline.stage(COPY)}
        self._copies = Lane(united(self._copy.values()))
        self._copies_in_the_way = copies_in_the_way(timeline)
        self._hosts = host_lanes(timeline)
        self._available_ns = _available(timeline, workload)

    def split(self, start_ns: int, end_ns: int, batch_id: int) -> list[tuple[int, int, GpuCause]]:
        """Divide a gap ahead of a batch's forward."""
        pre, launch = self._pre[batch_id], self._launch[batch_id]
        times = {
            start_ns,
            end_ns,
            self._available_ns[batch_id],
            self._taken_ns[batch_id],
            launch.start_ns,
            launch.end_ns,
        }
        for lane in {pre.lane, launch.lane}:
            times.update(self._hosts[lane].bounds(start_ns, end_ns))
        times.update(self._copies.bounds(start_ns, end_ns))
        inside = sorted(time for time in times if start_ns <= time <= end_ns)
        return [(a, b, self._cause(a, batch_id)) for a, b in pairwise(inside)]

    def _cause(self, time_ns: int, batch_id: int) -> GpuCause:
        launch = self._launch[batch_id]
        if time_ns >= launch.start_ns:
            return GpuCause.COPY if self._copies_in_the_way.at(time_ns) is not None else GpuCause.CPU
        if time_ns < self._available_ns[batch_id]:
            return GpuCause.REQUESTS
        doing = self._hosts[launch.lane].at(time_ns)
        if doing is not None and doing.stage == LAUNCH:
            return GpuCause.LAUNCH_SLOT
        preparing = self._hosts[self._pre[batch_id].lane].at(time_ns)
        if time_ns < self._taken_ns[batch_id] and preparing is None:
            return GpuCause.HELD
        waiting = doing or preparing
        if waiting is not None and waiting.stage == SYNCHRONIZE and time_ns < self._copy[waiting.batch_id].end_ns:
            return GpuCause.COPY
        return GpuCause.CPU


def _available(timeline: Timeline, workload: Workload) -> dict[int, int]:
    """Return when the first request of each batch was there: at its arrival, or when its last forward had ended."""
    arrivals = [timeline.started_ns + request.arrival_ns for request in workload.requests]
    forward_end_ns = {span.batch_id: span.end_ns for span in timeline.stage(FORWARD)}
    last_end_ns: dict[int, int] = {}
    found = {}
    for taken in timeline.taken:
        found[taken.batch_id] = min(last_end_ns.get(request, arrivals[request]) for request in taken.request_ids)
        last_end_ns |= dict.fromkeys(taken.request_ids, forward_end_ns[taken.batch_id])
    return found
