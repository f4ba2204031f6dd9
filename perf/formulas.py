"""Names for the constant stage times of an experiment, so that a formula reads like the sentence it stands for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from impl.timeline import FORWARD, LAUNCH, POST, PRE
from reports.measure import Rounds


@dataclass(frozen=True, slots=True)
class Stages:
    """Stage times of a scenario in which all batches take equally long, in nanoseconds, and its requests."""

    n: int
    """Number of requests."""
    gap: float
    """Mean time between arrivals."""
    pre: float
    launch: float
    forward: float
    copy: float
    post: float


def asked(rounds: Rounds) -> Stages:
    """Return the times that the scenario asks for, per batch; forwards that cost something per token need more."""
    costs, workload = rounds.scenario.costs, rounds.scenario.workload
    return Stages(
        len(workload.requests),
        workload.mean_gap_ns,
        costs.pre.fixed_ns,
        costs.launch.fixed_ns,
        costs.forward.fixed_ns,
        costs.copy.fixed_ns,
        costs.post.fixed_ns,
    )


def measured(rounds: Rounds) -> Stages:
    """Return the times that stages took under `normal` in the same rounds, as medians over batches.

    In virtual time they are those that were asked for. A real host adds its own: to pre, the upload and a launch that
    was to take no time; to post, the wake-up after the forward. So a formula for another scheduler is about its order
    of steps alone.
    """
    wanted = asked(rounds)
    batches = [batch for result in rounds.of("normal") for batch in result.timeline.by_batch().values()]
    launched = LAUNCH if wanted.launch else FORWARD
    return replace(
        wanted,
        pre=_median([batch[launched].start_ns - batch[PRE].start_ns for batch in batches]),
        launch=_median([batch[FORWARD].start_ns - batch[launched].start_ns for batch in batches]),
        forward=_median([batch[FORWARD].end_ns - batch[FORWARD].start_ns for batch in batches]),
        post=_median([batch[POST].end_ns - batch[FORWARD].end_ns for batch in batches]) - wanted.copy,
    )


def _median(times_ns: list[int]) -> float:
    return float(np.median(times_ns))
