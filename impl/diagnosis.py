"""Is overlap really on? Read off a run, with the cause and the place where it is not.

Overlap is on if the GPU goes from one forward to the next, and the host is free meanwhile. A launch that lets the GPU
idle, or keeps the host for most of a forward, has a cause; the commonest is the run's. A thread that only launches may
be kept, as long as the others go on and the GPU does not wait at all.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from impl.lanes import Lane, united
from impl.timeline import COPY, COPY_LANE, FORWARD, LAUNCH, POST, PRE, SYNCHRONIZE, Span, Timeline
from impl.workload import Workload

MIN_LEAD_SHARE = 0.9
"""Share of launches that must come in time for overlap to count as on."""
SAME_MOMENT_SHARE = 0.05
"""Share of a forward within which two ends count as the same moment."""
CLOCK_NS = 20_000
"""By which times of the GPU and of the host may be apart where time is real."""
BACK_TO_BACK_NS = 10_000
"""Forwards closer than this follow each other: behind a launch that blocked first, the host needs longer."""
LAUNCH_NS = 100_000
"""Longest gap between forwards that a launch leaves which was enqueued as soon as a wait ended; after a longer one the
GPU was idle, with room in its queue.
"""
MAX_KEPT_SHARE = 0.75
"""Share of a forward for which a launch may keep the host while forwards run."""


class Finding(Enum):
    """What a run, or one late launch of it, shows."""

    ON = "overlap is on"
    CPU_LONGER = "overlap is on, and CPU-bound: the CPU work of a step takes longer than the forward"
    SINGLE = "nothing to overlap: a single forward"
    NO_REQUESTS = "nothing to overlap: no request was there in time"
    SYNCHRONIZES = "off: the host waits for a forward before it prepares the next batch"
    WAITS_BEFORE_LAUNCH = "off: the host waits for the previous forward between pre and launch of the next batch"
    POST_FIRST = "off: post of the last batch stands before the launch of the next"
    WAITS_INSIDE_LAUNCH = "off: the launch returns only when its own forward is done (a synchronizing call inside)"
    BLOCKING_COPY = "off: the launch returns only when the previous forward is done (a blocking or pageable copy)"
    QUEUE_FULL = "off: the launch waits for room in the stream's queue (too many kernels)"
    LOCK = "off: the launching thread waits for the GIL"
    COPY = "off: the forward waits for a copy on its own stream (give copies a stream)"
    HELD_BACK = "off: the next batch is prepared late: requests wait, the GPU idles, and the host has time"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The answer for one run."""

    finding: Finding
    num_late: int
    """Launches that let the GPU idle or kept a thread that has other work, of `num_launches`: those for which a request
    was there in time, and not the first, which has nothing to overlap with.
    """
    num_launches: int
    where: str | None
    """File and line of the scheduler's call in which the host waited."""

    @property
    def is_on(self) -> bool:
        """Whether the GPU waits for nothing that the scheduler could do better."""
        return self.finding in (Finding.ON, Finding.CPU_LONGER, Finding.SINGLE, Finding.NO_REQUESTS)

    def __str__(self) -> str:
        if not self.num_launches:
            return self.finding.value
        late = f"{self.num_late} of {self.num_launches} launches late" if self.num_late else "no launch late"
        most = self.num_late > self.num_launches / 2
        verdict = self.finding.value if most else self.finding.value.replace("off: ", "off in part: ", 1)
        return f"{verdict} ({late}{f'; at {self.where}' if self.where else ''})"


def diagnose(timeline: Timeline, workload: Workload) -> Diagnosis:
    """Say whether a complete run overlapped, and if not, why and where."""
    forwards = timeline.stage(FORWARD)
    if len(forwards) == 1:
        return Diagnosis(Finding.SINGLE, 0, 0, None)
    run = _Run(timeline, workload)
    findings = [run.finding(before, after) for before, after in pairwise(forwards)]
    findings = [found for found in findings if found is None or found[0] is not Finding.NO_REQUESTS]
    if not findings:
        return Diagnosis(Finding.NO_REQUESTS, 0, 0, None)
    late = [found for found in findings if found is not None]
    if len(findings) - len(late) >= MIN_LEAD_SHARE * len(findings):
        return Diagnosis(Finding.ON, len(late), len(findings), None)
    [(commonest, _)] = Counter(each for each, _ in late).most_common(1)
    waited = next((span for each, span in late if each is commonest), None)
    where = None if waited is None else timeline.call_site(waited)
    return Diagnosis(commonest, len(late), len(findings), where)


class _Run:
    """A timeline, indexed by batch."""

    def __init__(self, timeline: Timeline, workload: Workload) -> None:
        self._timeline = timeline
        self._others: dict[str, Lane] = {}
        """What other threads do or wait for, by the lane of a thread that only launches; nothing for other lanes."""
        self._work: dict[frozenset[str], Lane] = {}
        self._copy_waits: dict[frozenset[str], Lane] = {}
        self._threads = frozenset(span.lane for span in timeline.spans if span.stage not in (FORWARD, COPY))
        self._of = timeline.by_batch()
        arrivals = [timeline.started_ns + request.arrival_ns for request in workload.requests]
        self._arrival_ns = {t.batch_id: min(arrivals[i] for i in t.request_ids) for t in timeline.taken}
        self._empty_ns = {t.batch_id: t.empty_ns for t in timeline.taken}

    def finding(self, before: Span, after: Span) -> tuple[Finding, Span | None] | None:
        """Return why a launch let the GPU idle or kept the host, with the call that waited; None if it did neither."""
        own, last = self._of[after.batch_id], self._of[before.batch_id]
        pre, launch, synchronize, post = own[PRE], own[LAUNCH], last[SYNCHRONIZE], last[POST]
        forward_ns = before.end_ns - before.start_ns
        near_ns = SAME_MOMENT_SHARE * forward_ns
        kept_ns = _common(launch, before) + _common(launch, after)
        gap_ns = after.start_ns - before.end_ns
        if kept_ns > MAX_KEPT_SHARE * forward_ns:
            if gap_ns <= BACK_TO_BACK_NS and self._keeps_nobody(launch):
                return None
            return self._inside_launch(launch, before, after, near_ns)
        empty_ns = self._empty_ns[after.batch_id]
        is_asked_in_vain = empty_ns is not None and empty_ns >= last[PRE].end_ns
        is_early = self._arrival_ns[after.batch_id] <= before.end_ns - (pre.end_ns - pre.start_ns)
        is_there = pre.end_ns <= before.end_ns or (is_early and not is_asked_in_vain)
        is_awaited = synchronize.end_ns - synchronize.start_ns > near_ns
        if is_there and is_awaited and synchronize.lane == pre.lane and synchronize.end_ns <= pre.start_ns:
            return Finding.SYNCHRONIZES, synchronize
        if is_awaited and _is_between(pre, synchronize, launch):
            is_posted = _is_between(pre, post, launch)
            return (Finding.POST_FIRST, post) if is_posted else (Finding.WAITS_BEFORE_LAUNCH, synchronize)
        if gap_ns <= near_ns:
            return None  # the GPU did not have to wait
        if last[LAUNCH].end_ns >= before.end_ns:
            return Finding.WAITS_INSIDE_LAUNCH, last[LAUNCH]
        in_the_way = Lane([] if last[COPY].lane == COPY_LANE else [last[COPY]])
        if launch.end_ns <= before.end_ns and in_the_way.covered_ns(before.end_ns, after.start_ns) > gap_ns / 2:
            return Finding.COPY, None
        lock_ns = sum(self._waited_for_lock(lane, pre.start_ns, launch.start_ns) for lane in {pre.lane, launch.lane})
        if lock_ns > 0 and launch.start_ns - lock_ns <= before.end_ns:
            return Finding.LOCK, launch
        if not is_there:
            return Finding.NO_REQUESTS, None
        if _is_between(pre, post, launch):
            return Finding.POST_FIRST, post
        taken_ns = max(
            self._worked_ns(threads, before.start_ns, before.end_ns)
            + self._waited_for_copies_ns(threads, before.start_ns, before.end_ns)
            for threads in (frozenset((pre.lane, launch.lane)), frozenset((post.lane,)))
        )
        step_ns = Lane(united([pre, launch, post])).covered_ns(before.start_ns, after.start_ns)
        # Since the forward before began, time that the step itself did not need. Unless it is more than half of the
        # gap, starting at once would not have closed most of that.
        could_be_sooner = after.start_ns - before.start_ns - step_ns > gap_ns / 2
        is_held_back = could_be_sooner and taken_ns < forward_ns - near_ns
        return Finding.HELD_BACK if is_held_back else Finding.CPU_LONGER, None

    def _inside_launch(
        self, launch: Span, before: Span, after: Span, near_ns: float
    ) -> tuple[Finding, Span | None] | None:
        if self._needs_lock(launch):
            return Finding.LOCK, launch
        slack_ns = max(near_ns, CLOCK_NS)
        if launch.end_ns > after.end_ns + slack_ns:  # a synchronizing call would have returned before
            return Finding.CPU_LONGER, None
        if launch.end_ns >= after.end_ns:
            return Finding.WAITS_INSIDE_LAUNCH, launch
        if launch.end_ns < before.end_ns - CLOCK_NS:
            return None  # a blocking call cannot return so early: long, and the GPU had work all the same
        gap_ns = after.start_ns - before.end_ns
        is_back_to_back = launch.end_ns > after.start_ns and gap_ns < BACK_TO_BACK_NS
        if launch.end_ns <= before.end_ns + near_ns and not is_back_to_back:
            return Finding.BLOCKING_COPY, launch
        # A GPU that was idle had room in its queue: the launch was work until the forward began, with its first kernel.
        was_idle = gap_ns > max(near_ns, LAUNCH_NS)
        if launch.end_ns <= after.start_ns + (slack_ns if was_idle else 0):
            return Finding.CPU_LONGER, None
        return Finding.QUEUE_FULL, launch

    def _keeps_nobody(self, launch: Span) -> bool:
        """Return whether a thread launches that does nothing else in this run, and the others do not wait for it: they
        prepare or deliver meanwhile, or wait for the GPU.
        """
        if launch.lane not in self._others:
            others = [s for s in self._timeline.spans if s.stage in (PRE, POST, SYNCHRONIZE)]
            only_launches = all(span.lane != launch.lane for span in others)
            self._others[launch.lane] = Lane(united(others) if only_launches else [])
        return self._others[launch.lane].covered_ns(launch.start_ns, launch.end_ns) > 0

    def _worked_ns(self, threads: frozenset[str], start_ns: int, end_ns: int) -> int:
        """Return for how long in a stretch any of the threads did something else than wait."""
        if threads not in self._work:
            spans = self._timeline.spans
            work = [s for s in spans if s.lane in threads and s.stage in (PRE, LAUNCH, POST)]
            self._work[threads] = Lane(united(work))
        return self._work[threads].covered_ns(start_ns, end_ns)

    def _waited_for_copies_ns(self, threads: frozenset[str], start_ns: int, end_ns: int) -> int:
        """Return for how long in a stretch the threads waited for tokens to be copied, behind their forward."""
        if threads not in self._copy_waits:
            waits = []
            for span in self._timeline.spans:
                if span.lane in threads and span.stage == SYNCHRONIZE:
                    copy = self._of[span.batch_id][COPY]
                    waits.append(span._replace(start_ns=max(span.start_ns, copy.start_ns), end_ns=copy.end_ns))
            self._copy_waits[threads] = Lane(waits)
        return self._copy_waits[threads].covered_ns(start_ns, end_ns)

    def _needs_lock(self, launch: Span) -> bool:
        """Return whether a launch that kept the host did so for want of the GIL.

        A launch lets go of the GIL and needs it back; what it waits for inside, nobody records. But then other threads
        compute meanwhile, and in this run such threads wait for each other.
        """
        if not self._timeline.lock_waits:
            return False
        others = self._threads - {launch.lane}
        worked_ns = self._worked_ns(others, launch.start_ns, launch.end_ns)
        return worked_ns > (launch.end_ns - launch.start_ns) / 2

    def _waited_for_lock(self, lane: str, start_ns: int, end_ns: int) -> int:
        """Return for how long a thread waited for the GIL in a stretch."""
        waits = [wait for wait in self._timeline.lock_waits if wait.lane == lane]
        return sum(max(0, min(wait.end_ns, end_ns) - max(wait.start_ns, start_ns)) for wait in waits)


def _is_between(pre: Span, step: Span, launch: Span) -> bool:
    """Return whether the launching thread takes a step between a batch's pre and its launch."""
    return step.lane == launch.lane and pre.end_ns <= step.start_ns and step.end_ns <= launch.start_ns


def _common(one: Span, other: Span) -> int:
    """Return for how long two spans go on at the same time."""
    return max(0, min(one.end_ns, other.end_ns) - max(one.start_ns, other.start_ns))
