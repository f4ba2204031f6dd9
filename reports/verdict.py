"""Verdicts on claims: what was asked, what was measured, and how sure the answer is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
"""Of the two-sided intervals that decide on machines with noise."""


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
    """A mean over rounds with its confidence interval; on an exact machine both ends are the value."""

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
    """Return the t-interval of the mean over rounds; two rounds or more, or a single exact one."""
    values = np.atleast_1d(np.asarray(samples, dtype=np.float64))
    mean = float(values.mean())
    if len(values) == 1:
        return Interval(mean, mean, mean, 1)
    from scipy import stats  # a second to import, and not needed in virtual time

    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return Interval(mean, mean - half, mean + half, len(values))


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
