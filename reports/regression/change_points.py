"""The commits at which the values of a series step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from reports.regression.change import Samples, least_change
from reports.regression.rules import FALSE_ALARM_RATE, KINDS, POWER, Better, Metric, Rule, Rules, Scale
from reports.regression.series import Finding, Series, Step

DEFAULT_RULE = Rule(relative=0.01, absolute=0.0, visible=0.05)
"""Of metrics that the file of rules does not judge."""
FEWEST_COMMITS = 2
"""In a segment: a lone commit that stands out is an outlier."""
DECAY = math.sqrt(0.5)
"""Of the lengths of the intervals looked at."""
FEWEST_FOR_EXACT_COUNTS = 5
"""Counts that agree in fewer commits than this may do so by chance."""
NOISE_FLOOR = 1e-7
"""Standard deviation, as a share of the largest deviation in a series, below which it is rounding."""


def find_steps(series: Series, rules: Rules, num_tested: int) -> Finding:
    """Find the change points of one series.

    Args:
        series: values of at least one commit.
        rules: thresholds.
        num_tested: measured series that are looked at together; they share `FALSE_ALARM_RATE`.
    """
    if series.is_exact:
        return Finding(series, _exact_steps(series), 0.0, is_telling=len(series.points) > 1)
    rule = rules.rule(series.key, series.metric) if rules.is_judged(series.metric) else DEFAULT_RULE
    search = _Search(series, rule, num_tested)
    places = search.places()
    smallest = search.smallest(places)
    return Finding(series, tuple(search.steps(places)), smallest, is_telling=search.is_telling(smallest))


def _exact_steps(series: Series) -> tuple[Step, ...]:
    """Return every change of a value that is the same in every run."""
    values = [point.mean for point in series.points]
    sides = enumerate(pairwise(values), start=1)
    return tuple(_exact_step(series, i, before, after) for i, (before, after) in sides if before != after)


def _exact_step(series: Series, index: int, before: float, after: float) -> Step:
    kind = KINDS[series.metric]
    scale = kind.scale if before > 0 and after > 0 else Scale.DIFFERENCE
    estimate = after / before if scale is Scale.RATIO else after - before
    return Step(index, estimate, scale, word(kind, is_up=after > before))


def word(kind: Metric, *, is_up: bool) -> str:
    """Return what a change of a metric is called."""
    if kind.better is Better.NEITHER:
        return "change"
    return "improvement" if is_up == (kind.better is Better.HIGHER) else "regression"


class _Search:
    """Looks for steps in a measured series; every value is a logarithm where changes are ratios.

    Seeded binary segmentation: fixed intervals of geometrically falling lengths, so that a step that was taken back
    later has an interval of its own; of the intervals with a significant split the narrowest is taken first, and the
    two segments that it leaves are searched likewise, each also as a whole. Then each step moves to the split that
    explains most of the variance between its neighbours, and has to pass once more there.

    The rate of false alarms is divided among all splits of all intervals of all series. The segments behind a found
    step are further looks: where there are true steps, each may add its share.

    A split is significant if Student's and Welch's t-test both say so. Student's is exact for noise that stays the
    same, where Welch's raises far too many alarms for segments of two or three; Welch's holds where one segment is
    noisier, or has an outlier. Samples are the means of processes: rounds of one process share its luck.

    Source: Kovács, Bühlmann, Li and Munk, Biometrika 110 (2023), 249–256 (intervals); Baranowski, Chen and Fryzlewicz,
    J. R. Stat. Soc. B 81 (2019), 649–672 (narrowest first); Welch, Biometrika 34 (1947), 28–35.
    """

    def __init__(self, series: Series, rule: Rule, num_tested: int) -> None:
        self._series, self._rule = series, rule
        self._scale = series.scale
        runs = [point.processes for point in series.points]
        values = [np.log(run) if self._scale is Scale.RATIO else run for run in runs]
        center = float(np.concatenate(values).mean())
        values = [run - center for run in values]  # sums of squares of large numbers would lose the noise
        self._counts = _sums(np.array([len(run) for run in runs], dtype=np.float64))
        self._totals = _sums(np.array([run.sum() for run in values]))
        self._squares = _sums(np.array([(run**2).sum() for run in values]))
        self._raw = _sums(np.array([run.sum() for run in runs]))
        self._floor = (NOISE_FLOOR * max(float(np.abs(run).max()) for run in values)) ** 2
        num_splits = sum(end - start + 1 - 2 * FEWEST_COMMITS for start, end in intervals(len(runs)))
        self._alpha = FALSE_ALARM_RATE / (max(1, num_tested) * max(1, num_splits))

    @property
    def _length(self) -> int:
        return len(self._series.points)

    def places(self) -> list[int]:
        """Return the indices of the points at which segments begin, but for the first."""
        found = self._within(0, self._length, intervals(self._length))
        return self._confirmed(self._refined(found))

    def steps(self, places: Sequence[int]) -> Iterator[Step]:
        """Return the steps at places."""
        for start, place, end in self._neighbours(places):
            size = self._mean(place, end) - self._mean(start, place)
            estimate = math.exp(size) if self._scale is Scale.RATIO else size
            yield Step(place, estimate, self._scale, word(KINDS[self._series.metric], is_up=size > 0))

    def smallest(self, places: Sequence[int]) -> float | None:
        """Return the smallest step in the middle of the series that would have been found with `POWER`."""
        num = float(self._counts[-1])
        if self._length < 2 * FEWEST_COMMITS:
            return None
        bounds = [0, *places, self._length]
        variance = sum(self._squared_error(*pair) for pair in pairwise(bounds))
        freedom = num - len(bounds) + 1
        least = least_change(self._rule, self._scale, float(self._raw[-1]) / num)
        if variance / freedom <= self._floor:
            return self._size(least) if num >= 2 * FEWEST_FOR_EXACT_COUNTS else None
        error = math.sqrt(variance / freedom * 4 / num)
        critical, power = (float(stdtrit(num - 2, 1 - p)) for p in (self._alpha / 2, 1 - POWER))
        return self._size(max(critical * error, least) + power * error)

    def is_telling(self, smallest: float | None) -> bool:
        """Return whether a step of the size that matters would have shown."""
        if smallest is None:
            return False
        if self._scale is KINDS[self._series.metric].scale:
            return smallest <= self._rule.visible
        mean = abs(float(self._raw[-1] / self._counts[-1]))
        return smallest <= max(self._rule.visible * mean, self._rule.absolute)

    def _within(self, start: int, end: int, ranges: Sequence[tuple[int, int]]) -> list[int]:
        """Return the places in a segment, found in ranges inside it and in the segment itself."""
        inside = {(s, e) for s, e in [*ranges, (start, end)] if start <= s and e <= end}
        for s, e in sorted(inside, key=lambda each: (each[1] - each[0], each)):
            place = self._split(s, e)
            if place is not None:
                return [*self._within(start, place, ranges), place, *self._within(place, end, ranges)]
        return []

    def _size(self, needed: float) -> float:
        return math.expm1(min(needed, 50.0)) if self._scale is Scale.RATIO else needed

    def _split(self, start: int, end: int) -> int | None:
        """Return the split of a range that passes and explains most of its variance."""
        places = np.arange(start + FEWEST_COMMITS, end - FEWEST_COMMITS + 1)
        candidates = places[self._p_values(start, places, end) < self._alpha]
        passed = [int(p) for p in candidates if self._is_large(start, p, end) and self._is_borne(start, p, end)]
        return max(passed, key=lambda place: self._explained(start, place, end)) if passed else None

    def _p_values(self, start: int, places: NDArray[Any], end: int) -> Samples:
        """Return for each split of a range the larger of the p-values of Student's and Welch's test, two-sided."""
        if self._floor == 0:
            return np.ones(len(places))
        m, n = self._counts[places] - self._counts[start], self._counts[end] - self._counts[places]
        s, t = self._totals[places] - self._totals[start], self._totals[end] - self._totals[places]
        x, y = self._squares[places] - self._squares[start], self._squares[end] - self._squares[places]
        p, q = np.maximum(x - s**2 / m, 0) / (m - 1), np.maximum(y - t**2 / n, 0) / (n - 1)
        is_constant = (p <= self._floor) & (q <= self._floor)
        p, q = np.maximum(p, self._floor), np.maximum(q, self._floor)
        difference = np.abs(t / n - s / m)
        pooled = np.sqrt(((m - 1) * p + (n - 1) * q) / (m + n - 2) * (1 / m + 1 / n))
        own = np.sqrt(p / m + q / n)
        freedom = own**4 / ((p / m) ** 2 / (m - 1) + (q / n) ** 2 / (n - 1))
        found = 2 * np.maximum(stdtr(m + n - 2, -difference / pooled), stdtr(freedom, -difference / own))
        # Counts that happen to agree a few times have no noise to be seen.
        return np.where(is_constant & (np.minimum(m, n) < FEWEST_FOR_EXACT_COUNTS), 1.0, found)

    def _is_large(self, start: int, place: int, end: int) -> bool:
        base = float((self._raw[place] - self._raw[start]) / (self._counts[place] - self._counts[start]))
        size = abs(self._mean(place, end) - self._mean(start, place))
        return size > least_change(self._rule, self._scale, base)

    def _is_borne(self, start: int, place: int, end: int) -> bool:
        """Return whether no lone commit makes the step: without any one of them half of it is left."""
        before, after = self._mean(start, place), self._mean(place, end)
        without = [self._mean_without(start, place, i) for i in range(start, place)]
        sizes = [(after - mean) / (after - before) for mean in without]
        sizes += [(self._mean_without(place, end, i) - before) / (after - before) for i in range(place, end)]
        return min(sizes) >= 0.5

    def _refined(self, places: list[int]) -> list[int]:
        """Move each place to the best split between its neighbours."""
        for i, (start, _, end) in enumerate(self._neighbours(places)):
            inner = range(start + FEWEST_COMMITS, end - FEWEST_COMMITS + 1)
            places[i] = max(inner, key=lambda place: self._explained(start, place, end))
        return places

    def _confirmed(self, places: list[int]) -> list[int]:
        """Drop, least first, the places that do not pass between their neighbours."""
        while True:
            failed = [
                (self._explained(start, place, end), place)
                for start, place, end in self._neighbours(places)
                if not self._passes(start, place, end)
            ]
            if not failed:
                return places
            places.remove(min(failed)[1])

    def _passes(self, start: int, place: int, end: int) -> bool:
        is_significant = bool(self._p_values(start, np.array([place]), end)[0] < self._alpha)
        return is_significant and self._is_large(start, place, end) and self._is_borne(start, place, end)

    def _neighbours(self, places: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Return each place with the start of its segment's predecessor and the end of its segment."""
        for i in range(len(places)):
            yield (places[i - 1] if i else 0), places[i], (places[i + 1] if i + 1 < len(places) else self._length)

    def _explained(self, start: int, place: int, end: int) -> float:
        """Return the sum of squares between the two sides of a split."""
        m, n = self._counts[place] - self._counts[start], self._counts[end] - self._counts[place]
        return float(m * n / (m + n)) * (self._mean(place, end) - self._mean(start, place)) ** 2

    def _mean(self, start: int, end: int) -> float:
        return float((self._totals[end] - self._totals[start]) / (self._counts[end] - self._counts[start]))

    def _mean_without(self, start: int, end: int, index: int) -> float:
        total = self._totals[end] - self._totals[start] - (self._totals[index + 1] - self._totals[index])
        return float(total / (self._counts[end] - self._counts[start] - self._counts[index + 1] + self._counts[index]))

    def _squared_error(self, start: int, end: int) -> float:
        count, total = self._counts[end] - self._counts[start], self._totals[end] - self._totals[start]
        return max(float(self._squares[end] - self._squares[start] - total**2 / count), 0.0)


def _sums(values: Samples) -> Samples:
    """Return sums of the first 0, 1, 2, … values."""
    return np.concatenate([[0.0], np.cumsum(values)])


def intervals(length: int) -> list[tuple[int, int]]:
    """Return the half-open ranges of points in which a step is looked for; none if there are too few points.

    Source: Kovács et al. (2023), definition 1.
    """
    found: dict[tuple[int, int], None] = {}
    layer = 0
    while (size := length * DECAY**layer) >= 2 * FEWEST_COMMITS:
        num = 2 * math.ceil(DECAY**-layer - 1e-9) - 1
        shift = (length - size) / (num - 1) if num > 1 else 0.0
        for i in range(num):
            found[math.floor(i * shift + 1e-9), min(length, math.ceil(i * shift + size - 1e-9))] = None
        layer += 1
    return list(found)
