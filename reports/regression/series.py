"""A metric of a case across commits: its values, and the steps that were found in them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from reports.regression.change import Samples
from reports.regression.comparison import FEWEST_PROCESSES
from reports.regression.results import Key
from reports.regression.rules import KINDS, Scale

WORDS = ("regression", "improvement", "change")
"""What a step is called, the worst first; "change" for a metric that is neither better high nor low."""


@dataclass(frozen=True, slots=True)
class Point:
    """A metric of a case at one commit, in the metric's unit."""

    position: int
    """Of the commit among all commits."""
    rounds: Samples
    """Of all processes."""
    processes: Samples
    """Means over the rounds of each process."""

    @property
    def samples(self) -> Samples:
        """What is shown: processes where there are enough, rounds otherwise."""
        return self.processes if len(self.processes) >= FEWEST_PROCESSES else self.rounds

    @property
    def mean(self) -> float:
        """Mean over processes, or the one value that all rounds have."""
        return float(self.rounds[0]) if self.is_constant else float(self.processes.mean())

    @property
    def is_constant(self) -> bool:
        """Whether all rounds agree."""
        return bool((self.rounds == self.rounds[0]).all())


@dataclass(frozen=True, slots=True)
class Series:
    """A metric of a case across commits."""

    key: Key
    time_scale: float
    """Factor on the experiment's times; runs of another factor are another series."""
    metric: str
    points: tuple[Point, ...]
    num_undefined: int
    """Commits that ran the case and have no value: the metric was undefined or not yet known."""

    @property
    def is_exact(self) -> bool:
        """Whether time was virtual."""
        return self.key.device == "virtual"

    @property
    def scale(self) -> Scale:
        """How changes are expressed: values with a zero among them have no ratios."""
        is_positive = all((point.rounds > 0).all() for point in self.points)
        return KINDS[self.metric].scale if is_positive else Scale.DIFFERENCE


@dataclass(frozen=True, slots=True)
class Step:
    """A change point: the first commit of a new segment."""

    index: int
    """Of the point within its series."""
    estimate: float
    """Against the previous segment: a ratio after / before, or a difference in the metric's unit."""
    scale: Scale
    word: str
    """One of `WORDS`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A series with its change points."""

    series: Series
    steps: tuple[Step, ...]
    smallest: float | None
    """The smallest step in the middle of the series found with `POWER`: a share, or in the metric's unit. None if
    the series is too short for any; 0 for exact values."""
    is_telling: bool
    """Whether a step of the size that matters would have shown."""

    @property
    def segments(self) -> list[tuple[int, int]]:
        """Half-open ranges of points between change points."""
        bounds = [0, *(step.index for step in self.steps), len(self.series.points)]
        return list(pairwise(bounds))

    @property
    def inexact(self) -> list[Point]:
        """Points of virtual time whose rounds differ, which exact ones never do."""
        return [point for point in self.series.points if self.series.is_exact and not point.is_constant]

    @property
    def longest_run(self) -> int:
        """Number of steps of one direction in a row, at most."""
        longest = run = 0
        last = None
        for step in self.steps:
            is_up = step.estimate > (1.0 if step.scale is Scale.RATIO else 0.0)
            run = run + 1 if is_up == last else 1
            last = is_up
            longest = max(longest, run)
        return longest
