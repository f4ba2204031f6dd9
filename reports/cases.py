"""What is measured: experiments, and cases, each of which is one scheduler on one experiment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from impl.checks import require_positive, require_whole
from impl.engine import Scheduler
from impl.errors import SettingError
from impl.experiment import Scenario
from impl.machines import Machine

REFERENCE = "normal"
"""The scheduler with which others are compared."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """A scenario and the schedulers that are compared on it.

    Args:
        scenario: in the article's times.
        schedulers: by the name under which reports list them.
        section: of the article, where it is from there.
        real_scale: factor on all times where time is real; below 1 runs are shorter, and the host's own time weighs
            more.
        real_rounds: paired rounds where time is real; one is exact in virtual time.
        is_open_to_users: whether a scheduler given with --scheduler joins.
        paced_by_host: schedulers whose number of batches the host's speed decides, so that hosts differ by several
            percent; compared with their baselines less closely.
    """

    scenario: Scenario
    schedulers: Mapping[str, Scheduler]
    section: str = "–"
    real_scale: float = 1.0
    real_rounds: int = 3
    is_open_to_users: bool = True
    paced_by_host: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        require_positive("real_scale", self.real_scale, unit="times the article's time")
        require_whole("real_rounds", self.real_rounds, at_least=2, unit="rounds")
        if not self.schedulers:
            raise SettingError(f"experiment {self.id!r} has no schedulers; allowed: one or more")
        if unknown := sorted(self.paced_by_host - self.schedulers.keys()):
            raise SettingError(
                f"experiment {self.id!r}: paced_by_host names {unknown}; allowed: {list(self.schedulers)}"
            )

    @property
    def id(self) -> str:
        """The scenario's id."""
        return self.scenario.id

    @property
    def reference(self) -> str:
        """The scheduler that others are compared with: `normal`, or the first where it does not take part."""
        return REFERENCE if REFERENCE in self.schedulers else next(iter(self.schedulers))

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
        require_new_names(experiment, users)
    return [Case(e, name) for e in experiments for name in e.schedulers] + [
        Case(e, name, is_user=True) for e in experiments if e.is_open_to_users for name in users
    ]


def require_new_names(experiment: Experiment, users: Iterable[str]) -> None:
    """Refuse a user's scheduler with the name of an experiment's own.

    Raises:
        SettingError: naming it.
    """
    taken = sorted(set(users) & set(experiment.schedulers))
    if taken:
        raise SettingError(f"--scheduler: experiment {experiment.id!r} has a scheduler {taken[0]!r}; rename yours")
