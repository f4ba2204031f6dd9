"""Numbers of a run, all derived from its timeline. What is undefined is None, never NaN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from impl.ledger import Outcome
from impl.timeline import FORWARD, LAUNCH, Timeline
from impl.workload import NS_PER_S, Workload

PERCENTILE_CONFIDENCE = 0.99
"""Probability with which a sample must reach beyond a percentile for that percentile to be reported."""


class RequestMetrics(NamedTuple):
    """One request; times in nanoseconds, `arrival_ns` and `end_ns` from the start of the run."""

    id: int
    arrival_ns: int
    queue_wait_ns: int
    """Arrival to the moment the scheduler took the request."""
    ttft_ns: int
    """Arrival to the first token delivered, at the end of its batch's post."""
    service_ttft_ns: int
    """TTFT without the queue wait."""
    inter_token_ns: tuple[int, ...]
    end_ns: int


class ForwardMetrics(NamedTuple):
    """One forward; times in nanoseconds from the start of the run."""

    batch_id: int
    size: int
    num_tokens: int
    launch_ns: int
    """When its launch returned."""
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Summary:
    """One run. Field names are the metric names of reports and baselines."""

    total_ns: int
    """Start of the run to the last delivery."""
    throughput_rps: float | None
    """None if the run took no time, as one without costs does in virtual time."""
    ttft_mean_ns: float
    ttft_p50_ns: int | None
    ttft_p90_ns: int | None
    ttft_p99_ns: int | None
    ttft_max_ns: int
    queue_wait_mean_ns: float
    service_ttft_mean_ns: float
    itl_mean_ns: float | None
    itl_max_ns: int | None
    num_forwards: int
    batch_size_mean: float
    launch_lead: float | None
    """Share of launches, the first left out, that returned before the previous forward ended."""
    gpu_idle_share: float
    """Share of the time between the first forward's start and the last one's end, surplus ones included."""
    num_surplus_tokens: int


@dataclass(frozen=True, slots=True)
class Metrics:
    """All numbers of one run."""

    summary: Summary
    requests: tuple[RequestMetrics, ...]
    forwards: tuple[ForwardMetrics, ...]


def num_needed(share: float) -> int:
    """Return how many values it takes to reach beyond a percentile: 7 for the median, 44 for p90, 459 for p99.

    With n values share ** n is at most 1 %.
    """
    return math.ceil(math.log(1 - PERCENTILE_CONFIDENCE) / math.log(share))


def percentile(values: Sequence[int], share: float) -> int | None:
    """Return the nearest-rank percentile, or None if the sample is too small to reach beyond it; see `num_needed`."""
    if len(values) < num_needed(share):
        return None
    return sorted(values)[math.ceil(share * len(values)) - 1]


def measure(timeline: Timeline, workload: Workload) -> Metrics:
    """Derive the metrics of a complete run."""
    requests = _requests(timeline, workload)
    forwards = _forwards(timeline)
    ttfts = [request.ttft_ns for request in requests]
    gaps = [gap for request in requests for gap in request.inter_token_ns]
    total_ns = max(request.end_ns for request in requests)
    summary = Summary(
        total_ns=total_ns,
        throughput_rps=len(requests) * NS_PER_S / total_ns if total_ns else None,
        ttft_mean_ns=fmean(ttfts),
        ttft_p50_ns=percentile(ttfts, 0.5),
        ttft_p90_ns=percentile(ttfts, 0.9),
        ttft_p99_ns=percentile(ttfts, 0.99),
        ttft_max_ns=max(ttfts),
        queue_wait_mean_ns=fmean([request.queue_wait_ns for request in requests]),
        service_ttft_mean_ns=fmean([request.service_ttft_ns for request in requests]),
        itl_mean_ns=fmean(gaps) if gaps else None,
        itl_max_ns=max(gaps) if gaps else None,
        num_forwards=len(forwards),
        batch_size_mean=fmean([forward.size for forward in forwards]),
        launch_lead=_launch_lead(forwards),
        gpu_idle_share=_idle_share(forwards),
        num_surplus_tokens=sum(d.outcome is Outcome.SURPLUS for d in timeline.deliveries),
    )
    return Metrics(summary, requests, forwards)


def _requests(timeline: Timeline, workload: Workload) -> tuple[RequestMetrics, ...]:
    start_ns = timeline.started_ns
    first_taken = timeline.first_taken()
    delivered_ns: list[list[int]] = [[] for _ in workload.requests]
    for request_id, _, _, time_ns, outcome in timeline.deliveries:
        if outcome is Outcome.ENDED or outcome is Outcome.DELIVERED:
            delivered_ns[request_id].append(time_ns - start_ns)
    result = []
    for request, times in zip(workload.requests, delivered_ns, strict=True):
        wait_ns = first_taken[request.id].time_ns - start_ns - request.arrival_ns
        ttft_ns = times[0] - request.arrival_ns
        gaps = tuple([after - before for before, after in pairwise(times)]) if len(times) > 1 else ()
        result.append(
            RequestMetrics(request.id, request.arrival_ns, wait_ns, ttft_ns, ttft_ns - wait_ns, gaps, times[-1])
        )
    return tuple(result)


def _forwards(timeline: Timeline) -> tuple[ForwardMetrics, ...]:
    origin_ns = timeline.started_ns
    shape = {taken.batch_id: (len(taken.request_ids), taken.num_tokens) for taken in timeline.taken}
    launched_ns = {batch_id: end_ns for _, stage, batch_id, _, end_ns in timeline.spans if stage == LAUNCH}
    return tuple(
        [
            ForwardMetrics(
                batch_id,
                *shape[batch_id],
                launched_ns[batch_id] - origin_ns,
                start_ns - origin_ns,
                end_ns - origin_ns,
            )
            for _, _, batch_id, start_ns, end_ns in timeline.stage(FORWARD)
        ]
    )


def _launch_lead(forwards: Sequence[ForwardMetrics]) -> float | None:
    if len(forwards) < 2:
        return None
    ahead = sum(after.launch_ns <= before.end_ns for before, after in pairwise(forwards))
    return ahead / (len(forwards) - 1)


def _idle_share(forwards: Sequence[ForwardMetrics]) -> float:
    """Share of the window in which no forward ran; overlapping forwards are united, not added."""
    busy_ns, busy_until_ns = 0, forwards[0].start_ns
    for _, _, _, _, start_ns, end_ns in forwards:
        if end_ns > busy_until_ns:
            busy_ns += end_ns - max(start_ns, busy_until_ns)
            busy_until_ns = end_ns
    window_ns = busy_until_ns - forwards[0].start_ns
    return 1 - busy_ns / window_ns if window_ns else 0.0
