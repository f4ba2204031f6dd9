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

from impl.lanes import Lane, host_lanes, united
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
    """The GPU runs a forward that was launched before, or copies its tokens, or the thread waits for one."""
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
        by_batch: dict[int, dict[str, Span]] = defaultdict(dict)
        for span in timeline.spans:
            by_batch[span.batch_id][span.stage] = span
        self.batches = {taken.batch_id: _Batch(taken.time_ns, by_batch[taken.batch_id]) for taken in timeline.taken}
        self._hosts = host_lanes(timeline)
        locks: dict[str, list[Span]] = defaultdict(list)
        for wait in timeline.lock_waits:
            locks[wait.lane].append(Span(wait.lane, "lock", -1, wait.start_ns, wait.end_ns))
        self._locks = {lane: Lane(spans) for lane, spans in locks.items()}
        # Copies too: without a stream of their own they stand in the engine stream's way.
        self._gpu = Lane(united([*timeline.stage(FORWARD), *timeline.stage(COPY)]))

    def bounds(self, batches: Sequence[_Batch], start_ns: int, end_ns: int) -> list[int]:
        """Return all times inside a stretch at which the cause may change, with both ends."""
        found = {start_ns, end_ns}
        lanes = {span.lane for batch in batches for span in (batch.pre, batch.launch, batch.post)}
        for lane in lanes:
            found.update(self._hosts[lane].bounds(start_ns, end_ns))
            if lane in self._locks:
                found.update(self._locks[lane].bounds(start_ns, end_ns))
        found.update(self._gpu.bounds(start_ns, end_ns))
        for batch in batches:
            found.add(batch.taken_ns)
            for span in (batch.pre, batch.launch, batch.forward, batch.copy, batch.post):
                found.update((span.start_ns, span.end_ns))
        return sorted(time for time in found if start_ns <= time <= end_ns)

    def cause(self, batches: Sequence[_Batch], time_ns: int) -> Cause:
        """Return the cause of the instant that begins at a time, when a request has these batches."""
        current = next((batch for batch in batches[:-1] if time_ns < batch.forward.end_ns), batches[-1])
        return self._step(current, time_ns)

    def _step(self, batch: _Batch, time_ns: int) -> Cause:
        if batch.forward.start_ns <= time_ns < batch.forward.end_ns:
            return Cause.OWN_FORWARD
        if time_ns >= batch.forward.end_ns:
            if time_ns < batch.copy.end_ns:
                return Cause.OWN_COPY
            if time_ns < batch.launch.end_ns:  # it blocked: the flight is not in anybody's hands yet
                return self._host(batch.launch, Cause.OWN_LAUNCH, time_ns, came_from=batch.pre.lane)
            return self._host(batch.post, Cause.OWN_POST, time_ns, came_from=batch.launch.lane)
        if time_ns < batch.pre.end_ns:
            return self._host(batch.pre, Cause.OWN_PRE, time_ns, came_from=batch.pre.lane)
        if time_ns < batch.launch.start_ns:
            return self._host(batch.launch, Cause.OWN_LAUNCH, time_ns, came_from=batch.pre.lane)
        if self._gpu.at(time_ns) is not None:
            return Cause.EARLIER_FORWARDS
        if time_ns < batch.launch.end_ns:
            return self._host(batch.launch, Cause.OWN_LAUNCH, time_ns, came_from=batch.pre.lane)
        return Cause.UNEXPLAINED

    def _host(self, step: Span, own: Cause, time_ns: int, *, came_from: str) -> Cause:
        """Return what the thread of the next step does."""
        if step.lane in self._locks and self._locks[step.lane].at(time_ns) is not None:
            return Cause.LOCK
        if step.start_ns <= time_ns < step.end_ns:
            return own
        doing = self._hosts[step.lane].at(time_ns)
        if doing is None:
            return Cause.HELD if step.lane == came_from else Cause.HAND_OFF
        if doing.stage != SYNCHRONIZE:
            return _INSERTED[doing.stage]
        awaited = self.batches[doing.batch_id]
        # After the copy's end the thread is only waking up.
        return Cause.EARLIER_FORWARDS if time_ns < awaited.copy.end_ns else Cause.HAND_OFF


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
