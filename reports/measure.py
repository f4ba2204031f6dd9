"""Paired rounds: each round runs every scheduler of an experiment once, in alternating order."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from impl.engine import Scheduler
from impl.errors import RunFailed, RunInvalid
from impl.experiment import Result, Scenario, run
from impl.machines import Machine
from impl.metrics import num_needed
from reports.cases import REFERENCE
from reports.gpu_state import GpuState, Monitor

MAX_ATTEMPTS = 3
"""A round in which the GPU throttles is measured this often at most."""
NUM_FRAMES = 3
"""Of a traceback, the last ones: the scheduler's own; those before them are the suite's."""
Samples = NDArray[np.float64]
"""One value for each round, [rounds]."""


def matched(first: Samples, second: Samples) -> tuple[Samples, Samples]:
    """Return as many rounds of two experiments as both have, one against one; each may have been extended alone."""
    num_rounds = min(len(first), len(second))
    return first[:num_rounds], second[:num_rounds]


@dataclass(frozen=True, slots=True)
class Rounds:
    """The results of an experiment on a machine: for each scheduler one result a round."""

    scenario: Scenario
    results: dict[str, list[Result]] = field(default_factory=dict)
    failures: dict[str, RunFailed] = field(default_factory=dict)
    """Schedulers that failed, with their first error; they have no results."""
    states: dict[str, list[GpuState | None]] = field(default_factory=dict)
    """What the GPU did during each result, where there is a monitor; None if it saw nothing then."""
    left_out: list[str] = field(default_factory=list)
    """Rounds that were repeated because the GPU throttled, and why."""

    @property
    def num_rounds(self) -> int:
        """Rounds that count."""
        return max((len(results) for results in self.results.values()), default=0)

    def fail(self, scheduler: str, error: RunFailed) -> None:
        """Note that a scheduler failed, and forget what it did before."""
        self.failures[scheduler] = error
        self.results.pop(scheduler, None)
        self.states.pop(scheduler, None)

    def of(self, scheduler: str) -> list[Result]:
        """Return a scheduler's results.

        Raises:
            RunFailed: if it failed in any round.
        """
        if scheduler in self.failures:
            raise self.failures[scheduler]
        return self.results[scheduler]

    def failure(self, scheduler: str) -> str | None:
        """Return why a scheduler failed, with the last frames of what it raised itself; None if it did not."""
        error = self.failures.get(scheduler)
        if error is None:
            return None
        cause = error.__cause__
        frames = "" if cause is None else "".join(traceback.format_exception(cause, limit=-NUM_FRAMES))
        return f"{type(error).__name__}: {error}\n{frames}".rstrip()

    def each(self, scheduler: str, value: Callable[[Result], float]) -> Samples:
        """Return a value of every round."""
        return np.array([value(result) for result in self.of(scheduler)], dtype=np.float64)

    def metric(self, name: str, scheduler: str) -> Samples:
        """Return a summary metric of every round.

        Raises:
            KeyError: if the scheduler did not run here.
            ValueError: if the metric is undefined (None) for this run.
        """
        values = [getattr(result.metrics.summary, name) for result in self.of(scheduler)]
        if None in values:
            raise ValueError(
                f"{name} of {scheduler} on {self.scenario.id} is undefined for {len(self.scenario.workload.requests)} "
                f"requests: a p50 needs {num_needed(0.5)}, a p90 {num_needed(0.9)}, a p99 {num_needed(0.99)}, "
                "inter-token times two output tokens, throughput a cost"
            )
        return np.array(values, dtype=np.float64)

    def gain(self, name: str, scheduler: str, over: str = REFERENCE) -> Samples:
        """Return metric(scheduler) / metric(over) − 1 of every round."""
        return self.metric(name, scheduler) / self.metric(name, over) - 1


def measure_rounds(
    rounds: Rounds,
    schedulers: Mapping[str, Scheduler],
    machine: Machine,
    *,
    num_rounds: int,
    monitor: Monitor | None = None,
) -> None:
    """Add paired rounds; every second one runs in reverse order.

    A scheduler that fails leaves the experiment, and the others go on. A round in which the monitor saw the GPU
    throttle is left out and repeated. If every attempt throttles, no more rounds are added, and without any before all
    schedulers count as failed.
    """
    for _ in range(num_rounds):
        for _ in range(MAX_ATTEMPTS):
            found = _one_round(rounds, schedulers, machine)
            states = {} if monitor is None else {name: _state(result, monitor) for name, result in found.items()}
            throttled = [f"{name}: {s.throttling}" for name, s in states.items() if s is not None and s.throttling]
            if not throttled:
                break
            rounds.left_out.append(f"GPU throttled during {'; '.join(throttled)}")
        else:
            error = RunInvalid(
                f"{rounds.scenario.id}: {rounds.left_out[-1]}, in each of {MAX_ATTEMPTS} attempts; "
                "cool the GPU or raise its power limit: times of a slowed GPU say nothing about schedulers"
            )
            if not rounds.num_rounds:  # else the rounds that were good before still stand
                for name in found:
                    rounds.fail(name, error)
            return
        for name, result in found.items():
            rounds.results.setdefault(name, []).append(result)
            if monitor is not None:
                rounds.states.setdefault(name, []).append(states[name])


def _one_round(rounds: Rounds, schedulers: Mapping[str, Scheduler], machine: Machine) -> dict[str, Result]:
    """Run every scheduler that has not failed once, and note those that fail now."""
    order = [name for name in schedulers if name not in rounds.failures]
    found = {}
    for name in order if rounds.num_rounds % 2 == 0 else reversed(order):
        try:
            found[name] = run(schedulers[name], rounds.scenario, machine)
        except RunFailed as error:
            rounds.fail(name, error)
    return found


def _state(result: Result, monitor: Monitor) -> GpuState | None:
    start_ns = result.timeline.started_ns
    return monitor.state(start_ns, start_ns + result.metrics.summary.total_ns)
