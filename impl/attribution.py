"""Where the time of a request's TTFT went: every nanosecond from arrival to first token has one cause.

A request waits in the queue, then for the next of its batch's steps: pre, launch, forward, copy, post. While one of
them runs, the time is its own. Between them it is whatever the thread that has to do the next step does instead, or
what the GPU runs ahead of the forward. Its own forward hides host work of others that runs meanwhile: only what goes
on beyond the forward's end holds the token up.

A request whose prompt is prefilled in chunks has several batches up to its first token; all of them are its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from impl.lanes import Lane, copies_in_the_way, host_lanes, united
from impl.timeline import COPY, FORWARD, LAUNCH, POST, PRE, SYNCHRONIZE, Span, Timeline
from impl.workload import Workload


class Cause(Enum):
    """What a stretch of time before the first token is due to."""

    QUEUE = "queue wait"
    OWN_PRE = "own pre"
    OWN_LAUNCH = "own launch"
    OWN_FORWARD = "own forward"
    OWN_COPY = "own copy"
    OWN_POST = "own post"
    INSERTED_PRE = "inserted pre"
    """The thread that has to go on with this request prepares another batch."""
    INSERTED_LAUNCH = "inserted launch"
    INSERTED_POST = "inserted post"
    EARLIER_FORWARDS = "behind earlier forwards"
    """The GPU runs a forward that was launched before, or the thread waits for one."""
    EARLIER_COPIES = "behind earlier copies"
    """Tokens of another batch are copied where this one's forward or copy has to run, or the thread waits for them."""
    LOCK = "lock"
    """A thread waits for the GIL; where time is real, also for a core."""
    HAND_OFF = "hand-off"
    """The work is ready, and the other thread that has to go on with it has not woken up yet."""
    HELD = "held back"
    """The work is ready, and the thread that has it waits for something else: for requests, or on purpose."""
    UNEXPLAINED = "unexplained"


Parts = Mapping[Cause, int]
"""Nanoseconds by cause."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """The TTFT of one request, in parts that add up to it."""

    request_id: int
    ttft_ns: int
    parts: Parts


_OWN = {PRE: Cause.OWN_PRE, LAUNCH: Cause.OWN_LAUNCH, POST: Cause.OWN_POST}
_INSERTED = {PRE: Cause.INSERTED_PRE, LAUNCH: Cause.INSERTED_LAUNCH, POST: Cause.INSERTED_POST}


class _Batch:
    """The steps of one batch."""

    def __init__(self, taken_ns: int, spans: Mapping[str, Span]) -> None:
        self.taken_ns = taken_ns
        self.pre, self.launch, self.forward = spans[PRE], spans[LAUNCH], spans[FORWARD]
        self.copy, self.post = spans[COPY], spans[POST]


class _Run:
    """A timeline, indexed."""

    def __init__(self, timeline: Timeline) -> None:
        by_batch = timeline.by_batch()
        self.batches = {taken.batch_id: _Batch(taken.time_ns, by_batch[taken.batch_id]) for taken in timeline.taken}
        self._hosts = host_lanes(timeline)
        locks: dict[str, list[Span]] = defaultdict(list)
        for wait in timeline.lock_waits:
            locks[wait.lane].append(Span(wait.lane, "lock", -1, wait.start_ns, wait.end_ns))
        self._locks = {lane: Lane(spans) for lane, spans in locks.items()}
        self._forwards = Lane(united(timeline.stage(FORWARD)))
        self._copies = Lane(united(timeline.stage(COPY)))
        self._copies_in_the_way = copies_in_the_way(timeline)

    def bounds(self, batches: Sequence[_Batch], start_ns: int, end_ns: int) -> list[int]:
        """Return all times inside a stretch at which the cause may change, with both ends."""
        found = {start_ns, end_ns}
        threads = {span.lane for batch in batches for span in (batch.pre, batch.launch, batch.post)}
        for thread in threads:
            found.update(self._hosts[thread].bounds(start_ns, end_ns))
            if thread in self._locks:
                found.update(self._locks[thread].bounds(start_ns, end_ns))
        for lane in (self._forwards, self._copies):
            found.update(lane.bounds(start_ns, end_ns))
        for batch in batches:
            found.add(batch.taken_ns)
            for span in (batch.pre, batch.launch, batch.forward, batch.copy, batch.post):
                found.update((span.start_ns, span.end_ns))
        return sorted(time for time in found if start_ns <= time <= end_ns)

    def cause(self, batches: Sequence[_Batch], time_ns: int) -> Cause:
        """Return the cause of the instant that begins at a time, when a request has these batches."""
        current = next((batch for batch in batches[:-1] if time_ns < batch.forward.end_ns), batches[-1])
        return self._step(current, batches, time_ns)

    def _step(self, batch: _Batch, own: Sequence[_Batch], time_ns: int) -> Cause:
        if batch.forward.start_ns <= time_ns < batch.forward.end_ns:
            return Cause.OWN_FORWARD
        if time_ns >= batch.forward.end_ns:
            if time_ns < batch.copy.end_ns:
                return Cause.OWN_COPY if time_ns >= batch.copy.start_ns else Cause.EARLIER_COPIES
            if time_ns < batch.launch.end_ns:  # it blocked: the flight is not in anybody's hands yet
                return self._host(batch.launch, own, time_ns, came_from=batch.pre.lane)
            return self._host(batch.post, own, time_ns, came_from=batch.launch.lane)
        if time_ns < batch.pre.end_ns:
            return self._host(batch.pre, own, time_ns, came_from=batch.pre.lane)
        if time_ns < batch.launch.start_ns:
            return self._host(batch.launch, own, time_ns, came_from=batch.pre.lane)
        if self._forwards.at(time_ns) is not None:
            return Cause.EARLIER_FORWARDS
        if self._copies_in_the_way.at(time_ns) is not None:
            return Cause.EARLIER_COPIES
        if time_ns < batch.launch.end_ns:
            return self._host(batch.launch, own, time_ns, came_from=batch.pre.lane)
        return Cause.UNEXPLAINED

    def _host(self, step: Span, own: Sequence[_Batch], time_ns: int, *, came_from: str) -> Cause:
        """Return what the thread of the next step does; with the request's earlier chunks, that is its own too."""
        if step.lane in self._locks and self._locks[step.lane].at(time_ns) is not None:
            return Cause.LOCK
        doing = self._hosts[step.lane].at(time_ns)
        if doing is None:
            return Cause.HELD if step.lane == came_from else Cause.HAND_OFF
        awaited = self.batches[doing.batch_id]
        is_own = awaited in own
        if doing.stage != SYNCHRONIZE:
            return (_OWN if is_own else _INSERTED)[doing.stage]
        if time_ns < awaited.forward.end_ns:
            return Cause.OWN_FORWARD if is_own else Cause.EARLIER_FORWARDS
        if time_ns < awaited.copy.end_ns:
            return Cause.OWN_COPY if is_own else Cause.EARLIER_COPIES
        return Cause.HAND_OFF  # the thread is only waking up


def mean_by_cause(found: Sequence[Attribution]) -> dict[Cause, float]:
    """Return the mean over requests of every cause's part of TTFT, in nanoseconds; they add up to the mean TTFT."""
    total_ns: dict[Cause, int] = defaultdict(int)
    for each in found:
        for cause, ns in each.parts.items():
            total_ns[cause] += ns
    return {cause: total_ns[cause] / len(found) for cause in Cause if cause in total_ns}


def attribute(timeline: Timeline, workload: Workload) -> list[Attribution]:
    """Divide the TTFT of every request among causes.

    Args:
        timeline: of a complete run.
        workload: what it served.

    Returns:
        One entry for each request, in order; its parts add up to its TTFT to the nanosecond.
    """
    run = _Run(timeline)
    first_batch = {d.request_id: d.batch_id for d in timeline.deliveries if d.position == 0}
    own: dict[int, list[_Batch]] = defaultdict(list)
    for taken in timeline.taken:
        for request_id in taken.request_ids:
            if taken.batch_id <= first_batch[request_id]:
                own[request_id].append(run.batches[taken.batch_id])
    found = []
    for request in workload.requests:
        batches = own[request.id]
        arrival_ns = timeline.started_ns + request.arrival_ns
        parts: dict[Cause, int] = defaultdict(int)
        parts[Cause.QUEUE] = batches[0].taken_ns - arrival_ns
        bounds = run.bounds(batches, batches[0].taken_ns, batches[-1].post.end_ns)
        for start_ns, end_ns in pairwise(bounds):
            parts[run.cause(batches, start_ns)] += end_ns - start_ns
        found.append(Attribution(request.id, batches[-1].post.end_ns - arrival_ns, dict(parts)))
    return found
