"""Names for an experiment's stage times, so that a formula reads like the sentence it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from impl.experiment import Result
from impl.timeline import COPY, FORWARD, LAUNCH, POST, PRE
from reports.cases import REFERENCE
from reports.claims import Evidence
from reports.measure import Rounds

MOST_ADDED_MS = 1.0
"""Most that a real host may add to a step of `normal`, in milliseconds: an H200's added 0.3, a slow one's 0.6.

A few claims need less.
"""
FORWARD_SLACK_NS = 100_000
"""What a real forward may differ by beyond the tolerance: events around it also time the start of a graph."""


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Stage times that are the same for every batch, in nanoseconds, and two numbers of the workload."""

    n: int
    """Number of requests."""
    gap: float
    """Mean time between arrivals, in nanoseconds."""
    pre: float
    launch: float
    forward: float
    """Without what a forward costs per request or token."""
    copy: float
    post: float


def asked_times(rounds: Rounds) -> StageTimes:
    """Return the times that the scenario asks for.

    Raises:
        ValueError: if a stage other than the forward costs something per request or token: it has no one time.
    """
    costs, workload = rounds.scenario.costs, rounds.scenario.workload
    for name in ("pre", "launch", "copy", "post"):
        cost = getattr(costs, name)
        if cost.per_request_ns or cost.per_token_ns:
            raise ValueError(
                f"{rounds.scenario.id}: {name} costs {cost.per_request_ns} ns a request and {cost.per_token_ns} ns a "
                "token; formulas need stages that take equally long for every batch"
            )
    return StageTimes(
        len(workload.requests),
        workload.mean_gap_ns,
        costs.pre.fixed_ns,
        costs.launch.fixed_ns,
        costs.forward.fixed_ns,
        costs.copy.fixed_ns,
        costs.post.fixed_ns,
    )


def stage_times(evidence: Evidence, rounds: Rounds) -> StageTimes:
    """Return the stage times for formulas: those asked for, and where time is real, those that `normal` took.

    A real host adds its own time to each stage. Pre lasts until the launch starts (and a launch that was to take no
    time belongs to it), post from the end of the forward or its copy. Told these times, a formula is about the order
    of steps alone; left out is what passes between steps, and from a launch's return to its forward's start. That
    stages take about what was asked for is checked here, as part of the claim.

    Raises:
        ValueError: if `normal` does not take part, or a stage has no one time.
    """
    wanted, name = asked_times(rounds), rounds.scenario.id
    if evidence.is_exact:
        return wanted
    if REFERENCE not in (*rounds.results, *rounds.failures):
        raise ValueError(f"{name}: no {REFERENCE!r} takes part, whose steps tell formulas how long stages take")
    measured = [_under_normal(result, wanted) for result in rounds.of(REFERENCE)]
    added = [each.pre + each.launch + each.post - wanted.pre - wanted.launch - wanted.post for each in measured]
    evidence.at_most(f"{name}: milliseconds added to a step", np.array(added) / 1e6, MOST_ADDED_MS)
    forwards = np.array([each.forward for each in measured])
    margin = evidence.tolerance.equal * wanted.forward + FORWARD_SLACK_NS
    evidence.between(f"{name}: forward", forwards, wanted.forward - margin, wanted.forward + margin)
    return replace(
        wanted,
        pre=_median([each.pre for each in measured]),
        launch=_median([each.launch for each in measured]),
        forward=_median([each.forward for each in measured]),
        copy=_median([each.copy for each in measured]),
        post=_median([each.post for each in measured]),
    )


def overlap_total(s: StageTimes) -> float:
    """Return what `overlap` takes for a backlog of n requests, one a forward.

    The first two batches fill the pipeline; each step in the middle takes the longer one of forward and pre + post; the
    last two batches empty it. With forward ≥ pre + post that is pre + n·forward + post.
    """
    first, last = max(s.pre, s.forward), max(s.forward, s.post)
    return s.pre + first + (s.n - 2) * max(s.forward, s.pre + s.post) + last + s.post


def _under_normal(result: Result, wanted: StageTimes) -> StageTimes:
    """Return the medians of one round's stage times, over batches.

    A launch or a copy that was to take no time counts as part of pre or post; what forwards cost per request or token
    is taken off.
    """
    cost = result.scenario.costs.forward
    launched = LAUNCH if wanted.launch else FORWARD
    copied = COPY if wanted.copy else FORWARD
    batches = result.timeline.by_batch()
    forwards = [
        each.end_ns - each.start_ns - cost.per_request_ns * each.size - cost.per_token_ns * each.num_tokens
        for each in result.metrics.forwards
    ]
    spans = [batches[each.batch_id] for each in result.metrics.forwards]
    return replace(
        wanted,
        pre=_median([batch[launched].start_ns - batch[PRE].start_ns for batch in spans]),
        launch=_median([batch[LAUNCH].end_ns - batch[LAUNCH].start_ns for batch in spans]) if wanted.launch else 0.0,
        forward=_median(forwards),
        copy=_median([batch[copied].end_ns - batch[FORWARD].end_ns for batch in spans]),
        post=_median([batch[POST].end_ns - batch[copied].end_ns for batch in spans]),
    )


def _median(times_ns: Sequence[float]) -> float:
    return float(np.median(times_ns))
