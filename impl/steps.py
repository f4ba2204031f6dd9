"""The article's six steps: what the host threads of a request did, in order, from taking it to its first token.

This is the view of a timeline picture: what runs on the thread that has the request, whether or not the GPU hides it.
`impl.attribution` says what of it the request had to wait for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from enum import Enum
from itertools import pairwise

from impl.lanes import host_lanes
from impl.timeline import LAUNCH, POST, PRE, SYNCHRONIZE, Span, Timeline


class Step(Enum):
    """What a host thread does while it has a request, in the article's order."""

    OWN_PRE = "own pre"
    OWN_LAUNCH = "own launch"
    PREVIOUS_POST = "post of the previous"
    NEXT_PRE = "pre of the next"
    NEXT_LAUNCH = "launch of the next"
    OWN_POST = "own post"
    WAIT = "waits for the GPU"
    OTHER = "anything else"
    """Stages of batches that are neither the previous one nor the next, and time between stages."""


def six_steps(timeline: Timeline, request_id: int) -> Mapping[Step, int]:
    """Divide a request's service TTFT among the steps of its threads.

    Args:
        timeline: of a complete run.
        request_id: of a request that is prefilled in one batch; of chunks, the last one counts.

    Returns:
        Nanoseconds by step; they add up to the time from taking that batch to the first token.
    """
    batch_id = next(d.batch_id for d in timeline.deliveries if d.request_id == request_id and d.position == 0)
    taken_ns = next(taken.time_ns for taken in timeline.taken if taken.batch_id == batch_id)
    own = {span.stage: span for span in timeline.spans if span.batch_id == batch_id}
    found: dict[Step, int] = defaultdict(int)
    # Until its launch returned the request is in the launching thread's hands, then in those of the posting one.
    launched_ns = own[LAUNCH].end_ns
    stretches = ((own[PRE].lane, taken_ns, own[PRE].end_ns), (own[LAUNCH].lane, own[PRE].end_ns, launched_ns))
    hosts = host_lanes(timeline)
    for lane, start_ns, end_ns in (*stretches, (own[POST].lane, launched_ns, own[POST].end_ns)):
        host = hosts[lane]
        times = sorted({start_ns, end_ns, *(t for t in host.bounds(start_ns, end_ns) if start_ns < t < end_ns)})
        for begin_ns, until_ns in pairwise(times):
            found[_step(host.at(begin_ns), batch_id)] += until_ns - begin_ns
    return dict(found)


def _step(span: Span | None, own: int) -> Step:
    if span is None:
        return Step.OTHER
    if span.stage == SYNCHRONIZE:
        return Step.WAIT
    if span.batch_id == own:
        return {PRE: Step.OWN_PRE, LAUNCH: Step.OWN_LAUNCH, POST: Step.OWN_POST}[span.stage]
    if span.batch_id == own - 1 and span.stage == POST:
        return Step.PREVIOUS_POST
    if span.batch_id == own + 1 and span.stage != POST:
        return Step.NEXT_PRE if span.stage == PRE else Step.NEXT_LAUNCH
    return Step.OTHER
