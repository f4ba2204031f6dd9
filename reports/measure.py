"""Paired rounds: each round runs every scheduler of an experiment once, in alternating order."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from impl.checks import require_positive, require_whole
from impl.engine import Scheduler
from impl.errors import RunFailed, RunInvalid, SettingError
from impl.experiment import Result, Scenario, run
from impl.machines import Machine
from reports.gpu_state import GpuState, Monitor

MAX_ATTEMPTS = 3
"""A round in which the GPU throttles is measured this often at most."""
NUM_FRAMES = 3
"""Of a traceback, the last ones: the scheduler's own; those before them are the suite's."""
Samples = NDArray[np.float64]
"""One value for each round, [rounds]."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """A scenario and the schedulers that are compared on it.

    Args:
        scenario: in the article's times.
        schedulers: by the name under which reports list them.
        section: of the article.
        real_scale: factor on all times where time is real, so that a run stays short.
        real_rounds: paired rounds where time is real; one is exact in virtual time.
        is_open_to_users: whether a scheduler given with --scheduler joins.
    """

    scenario: Scenario
    schedulers: Mapping[str, Scheduler]
    section: str
    real_scale: float = 0.1
    real_rounds: int = 3
    is_open_to_users: bool = True

    def __post_init__(self) -> None:
        require_positive("real_scale", self.real_scale, unit="times the article's time")
        require_whole("real_rounds", self.real_rounds, at_least=2, unit="rounds")
        if not self.schedulers:
            raise SettingError(f"experiment {self.id!r} has no schedulers; allowed: one or more")

    @property
    def id(self) -> str:
        """The scenario's id."""
        return self.scenario.id

    @property
    def reference(self) -> str:
        """The scheduler that others are compared with: `normal`, or the first where it does not take part."""
        return "normal" if "normal" in self.schedulers else next(iter(self.schedulers))

    def on(self, machine: Machine) -> Scenario:
        """Return the scenario as it runs on a machine."""
        return self.scenario if machine.is_exact else self.scenario.scaled(self.real_scale)


@dataclass(frozen=True, slots=True, repr=False)
class Case:
    """One scheduler on one experiment: one entry in benchmarks and baselines."""

    experiment: Experiment
    scheduler: str
    is_user: bool = False

    @property
    def id(self) -> str:
        """The key of this case; it must stay the same for as long as its results are to be compared."""
        return case_id(self.experiment.id, self.scheduler)

    def __repr__(self) -> str:
        # pytest-benchmark stores the repr of a test's parameters in every entry.
        return f"Case({self.id!r})"


def case_id(experiment: str, scheduler: str) -> str:
    """Return the key of a case."""
    return f"{experiment}/{scheduler}"


def split_case_id(case: str) -> tuple[str, str]:
    """Return experiment and scheduler of a case's key."""
    experiment, _, scheduler = case.partition("/")
    return experiment, scheduler


def cases(experiments: Sequence[Experiment], users: Sequence[str]) -> list[Case]:
    """Return every case, with the users' schedulers in each experiment that is open to them.

    Raises:
        SettingError: if two experiments have one id, or a user's scheduler the name of an experiment's own.
    """
    ids = [experiment.id for experiment in experiments]
    twice = sorted({each for each in ids if ids.count(each) > 1})
    if twice:
        raise SettingError(f"two experiments have the id {twice[0]!r}; allowed: each id once")
    for experiment in experiments:
        taken = sorted(set(users) & set(experiment.schedulers))
        if taken:
            raise SettingError(f"--scheduler: experiment {experiment.id!r} has a scheduler {taken[0]!r}; rename yours")
    return [Case(e, name) for e in experiments for name in e.schedulers] + [
        Case(e, name, is_user=True) for e in experiments if e.is_open_to_users for name in users
    ]


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
            raise ValueError(f"{name} of {scheduler} on {self.scenario.id} is undefined: too few requests or tokens")
        return np.array(values, dtype=np.float64)

    def gain(self, name: str, scheduler: str, over: str = "normal") -> Samples:
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
    throttle is left out and repeated; if every attempt throttles, all schedulers count as failed.
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
