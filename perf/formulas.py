"""Names for the constant stage times of an experiment, so that a formula reads like the sentence it stands for."""

from __future__ import annotations

from reports.measure import Rounds


class Stages:
    """Stage times of a scenario whose stages are constant, in nanoseconds, and its number of requests n."""

    def __init__(self, rounds: Rounds) -> None:
        costs, workload = rounds.scenario.costs, rounds.scenario.workload
        self.n = len(workload.requests)
        self.gap = workload.mean_gap_ns
        self.pre = costs.pre.fixed_ns
        self.launch = costs.launch.fixed_ns
        self.forward = costs.forward.fixed_ns
        self.copy = costs.copy.fixed_ns
        self.post = costs.post.fixed_ns
