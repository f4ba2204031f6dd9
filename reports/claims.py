"""Claims: sentences of the article as tests that can fail, each with something broken that it must catch."""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType

import numpy as np

from impl.engine import Scheduler
from impl.experiment import Scenario
from reports.cases import Experiment
from reports.measure import Rounds, Samples
from reports.verdict import Check, Verdict, decide, interval, show, worst


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How closely measured values must meet formulas and bounds on a machine."""

    equal: float
    """Relative to the formula."""
    slack: float
    """Added to bounds, in the bound's unit for bounds up to 1, relative above."""


TOLERANCES = {
    "virtual": Tolerance(equal=1e-12, slack=0.0),  # rounding of means; whole nanoseconds are met exactly
    # Formulas leave out what passes between steps and in hand-overs between threads; a few totals of `normal` take the
    # times asked for, so they leave out all that the host adds. The prediction test counts it and is the strict one.
    "cuda": Tolerance(equal=0.03, slack=0.0),
    # A shared CPU shows that real threads behave; it is no instrument for the last percent.
    "cpu": Tolerance(equal=0.15, slack=0.05),
}


class ClaimFailed(AssertionError):
    """The evidence does not support a claim."""


@dataclass(slots=True)
class Figure:
    """The one number of a claim that the summary's table shows."""

    name: str
    value: float
    unit: str


@dataclass(slots=True)
class Evidence:
    """What was measured for a claim on one machine, and what the claim found in it."""

    device: str
    rounds: Mapping[str, Rounds]
    has_gil: bool = True
    checks: list[Check] = field(default_factory=list)
    figure: Figure | None = None

    def of(self, experiment: Experiment) -> Rounds:
        """Return the rounds of one of the claim's experiments."""
        return self.rounds[experiment.id]

    @property
    def is_exact(self) -> bool:
        """Whether equal runs give equal times here."""
        return self.device == "virtual"

    @property
    def tolerance(self) -> Tolerance:
        """How closely formulas must be met here."""
        return TOLERANCES[self.device]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the whole claim so far."""
        return worst(check.verdict for check in self.checks)

    def show(self, name: str, samples: Samples | float, unit: str) -> None:
        """Choose the number that stands for this claim in the summary; unit is %, share, pre or empty."""
        self.figure = Figure(name, interval(np.asarray(samples)).mean, unit)

    def equal(self, name: str, samples: Samples, formula: float, *, within: float = 0.0) -> None:
        """Check that a value meets its formula.

        `within` widens the relative tolerance where time is real; exact machines ignore it.
        """
        tolerance = self.tolerance.equal if self.is_exact else max(within, self.tolerance.equal)
        margin = abs(formula) * tolerance
        self._check(name, samples, show(formula), formula - margin, formula + margin)

    def between(self, name: str, samples: Samples, low: float, high: float) -> None:
        """Check that a value lies in [low, high]."""
        below, above = self._slack(low), self._slack(high)
        wanted = f"{show(low)} … {show(high)}{_allowed(max(below, above))}"
        self._check(name, samples, wanted, low - below, high + above)

    def around(self, value: float, margin: float) -> tuple[float, float]:
        """Return value ± margin, an absolute number; where equal runs give equal times, value ± rounding."""
        margin = 1e-12 if self.is_exact else margin
        return value - margin, value + margin

    def near_zero(self, bound: float) -> float:
        """Return the bound below which a share counts as zero: itself, or rounding where times are exact."""
        return 1e-12 if self.is_exact else bound

    def at_least(self, name: str, samples: Samples, bound: float) -> None:
        """Check that a value is `bound` or more; slack never lets more than half of a positive bound pass."""
        slack = min(self._slack(bound), bound / 2) if bound > 0 else self._slack(bound)
        self._check(name, samples, f"at least {show(bound)}{_allowed(slack)}", bound - slack, math.inf)

    def at_most(self, name: str, samples: Samples, bound: float) -> None:
        """Check that a value is `bound` or less."""
        slack = self._slack(bound)
        self._check(name, samples, f"at most {show(bound)}{_allowed(slack)}", -math.inf, bound + slack)

    def _slack(self, bound: float) -> float:
        return self.tolerance.slack * max(1.0, abs(bound))

    def _check(self, name: str, samples: Samples, wanted: str, low: float, high: float) -> None:
        if len(samples) == 1 and not self.is_exact:
            raise ValueError(f"{name}: one round on {self.device} has no interval; pass a value for every round")
        found = interval(samples)
        self.checks.append(Check(name, wanted, found, decide(found, low, high)))

    def require_holds(self) -> None:
        """Raise ClaimFailed, with every check, unless all of them hold."""
        if self.verdict is not Verdict.HOLDS:
            lines = "\n".join(f"  {check}" for check in self.checks)
            raise ClaimFailed(f"{self.verdict.value} on {self.device}:\n{lines or '  the claim checked nothing'}")


def _allowed(slack: float) -> str:
    """Tell of slack, where there is any: else a value beyond the bound that passes, or is undecided, looks wrong."""
    return f" (with {show(slack)} of slack)" if slack else ""


@dataclass(frozen=True, slots=True)
class Broken:
    """A planted fault: schedulers replaced, or the scenario changed; the claim must not hold with it."""

    what: str
    schedulers: Mapping[str, Scheduler] = field(default_factory=dict)
    scenario: Callable[[Scenario], Scenario] | None = None

    def apply(self, experiment: Experiment) -> Experiment:
        """Return the experiment with the fault in it."""
        replaced = {name: self.schedulers.get(name, own) for name, own in experiment.schedulers.items()}
        changed = self.scenario(experiment.scenario) if self.scenario else experiment.scenario
        return replace(experiment, scenario=changed, schedulers=replaced)


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim, where it stands in the article, what it is measured on, and what it must catch."""

    name: str
    section: str
    experiments: tuple[Experiment, ...]
    broken: Broken
    judge: Callable[[Evidence], None]


def every_claim(package: ModuleType) -> list[Claim]:
    """Import all modules of a package and return the claims they define."""
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return CLAIMS


CLAIMS: list[Claim] = []
"""Every claim of the modules imported so far, in order of definition."""


def claim(
    *experiments: Experiment, section: str = "–", broken: Broken
) -> Callable[[Callable[[Evidence], None]], Callable[..., None]]:
    """Turn a function that judges evidence into a test and register it.

    Args:
        experiments: what it is measured on.
        section: of the article, where it is from there.
        broken: a fault that it must catch.
    """

    def register(judge: Callable[[Evidence], None]) -> Callable[..., None]:
        made = Claim(judge.__name__, section, experiments, broken, judge)
        CLAIMS.append(made)

        # Not functools.wraps: pytest would look through it and ask for a fixture called evidence.
        def test(require_claim: Callable[[Claim], None]) -> None:
            require_claim(made)

        test.__name__, test.__doc__, test.__module__ = judge.__name__, judge.__doc__, judge.__module__
        test.__qualname__ = judge.__qualname__
        test.claim = made  # type: ignore[attr-defined] # read by the plugin at collection
        return test

    return register
