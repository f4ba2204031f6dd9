"""Verdicts on claims: what was asked, what was measured, and how sure the answer is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
"""Of the two-sided intervals that decide on machines with noise."""
MIN_TRIMMED_ROUNDS = 7
"""From so many rounds on, the least and the greatest do not count: intervals trimmed of fewer cover too little."""


SHORTEST_TIME_NS = 100_000
"""Values of claims are shares, counts, or times in nanoseconds of at least this much."""


class Verdict(Enum):
    """What the evidence says of a claim."""

    HOLDS = "HOLDS"
    FAILS = "FAILS"
    UNDECIDED = "UNDECIDED"
    """The interval reaches to both sides of the bound."""
    NOT_RUN = "NOT RUN"


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over rounds, trimmed of both extremes if there are many, with its confidence interval; on an exact machine
    both ends are the value.
    """

    mean: float
    low: float
    high: float
    num_rounds: int


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison inside a claim."""

    name: str
    wanted: str
    measured: Interval
    verdict: Verdict

    def __str__(self) -> str:
        found = self.measured
        spread = ""
        if found.num_rounds > 1:
            spread = f" [{show(found.low)}, {show(found.high)}] in {found.num_rounds} rounds"
        return f"{self.verdict.value}: {self.name} = {show(found.mean)}{spread}, wanted {self.wanted}"


def show(value: float) -> str:
    """Return a number for reading: times, which are the only large ones, in milliseconds to the nanosecond."""
    return f"{value / 1e6:,.6f} ms" if abs(value) >= SHORTEST_TIME_NS else f"{value:.6g}"


def interval(samples: NDArray[np.float64]) -> Interval:
    """Return the t-interval of the mean over rounds; two rounds or more, or a single exact one.

    From `MIN_TRIMMED_ROUNDS` on it is that of the mean without the least and the greatest (K. K. Yuen, Biometrika 61,
    1974): another process that stalls one round by milliseconds would else leave a claim undecided for good.
    """
    values = np.atleast_1d(np.asarray(samples, dtype=np.float64))
    num_rounds = len(values)
    mean = float(values.mean())
    if num_rounds == 1:
        return Interval(mean, mean, mean, 1)
    from scipy import stats  # a second to import, and not needed in virtual time

    if num_rounds < MIN_TRIMMED_ROUNDS:
        half = float(stats.t.ppf((1 + CONFIDENCE) / 2, num_rounds - 1) * values.std(ddof=1) / np.sqrt(num_rounds))
        return Interval(mean, mean - half, mean + half, num_rounds)
    one = np.nextafter(1 / num_rounds, 1)  # the share of one round, which rounding must not make less than one
    mean = float(stats.mstats.trimmed_mean(values, (one, one)))
    low, high = map(float, stats.mstats.trimmed_mean_ci(values, (one, one), alpha=1 - CONFIDENCE))
    return Interval(mean, low, high, num_rounds)


def uncertainty(samples: NDArray[np.float64]) -> float:
    """Return half the interval of the mean over rounds, relative to the mean."""
    found = interval(samples)
    return (found.high - found.mean) / found.mean


def decide(found: Interval, low: float, high: float) -> Verdict:
    """Compare an interval with the allowed range [low, high]."""
    if low <= found.low and found.high <= high:
        return Verdict.HOLDS
    if found.high < low or found.low > high:
        return Verdict.FAILS
    return Verdict.UNDECIDED


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict of a whole claim; a claim without checks has not run."""
    found = set(verdicts)
    for verdict in (Verdict.FAILS, Verdict.UNDECIDED, Verdict.NOT_RUN):
        if verdict in found:
            return verdict
    return Verdict.HOLDS if found else Verdict.NOT_RUN
