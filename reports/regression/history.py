"""A metric across commits: the series that result files hold, and the commits at which their values step."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from reports.files import FileError
from reports.regression.change import FEWEST_FOR_EXACT_COUNTS, Samples, least_change
from reports.regression.comparison import FEWEST_PROCESSES
from reports.regression.machines import require_alike
from reports.regression.results import Key, ResultFile
from reports.regression.rules import FALSE_ALARM_RATE, KINDS, POWER, Better, Metric, Rule, Rules, Scale

DEFAULT_METRICS = ("throughput_rps", "ttft_mean_ns")
DEFAULT_RULE = Rule(relative=0.01, absolute=0.0, visible=0.05)
"""Of metrics that the file of rules does not judge."""
FEWEST_COMMITS = 2
"""In a segment: a lone commit that stands out is an outlier."""
DECAY = math.sqrt(0.5)
"""Of the lengths of the intervals looked at."""
NOISE_FLOOR = 1e-7
"""Standard deviation, as a share of the largest deviation in a series, below which it is rounding."""
REMEDY = "give files of one machine"


@dataclass(frozen=True, slots=True)
class Commit:
    """One place on the axis: a commit with all its runs, or one run of changed files or outside version control."""

    name: str
    """Its hash, "-dirty" behind it if files were changed; empty outside version control."""
    time: datetime
    """Of the commit where there is one, of the run otherwise; in UTC."""
    files: tuple[ResultFile, ...]


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
    """"improvement", "regression", or "change" for a metric that is neither better high nor low."""


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


@dataclass(frozen=True, slots=True)
class History:
    """Everything that a set of runs says about its commits."""

    commits: tuple[Commit, ...]
    findings: tuple[Finding, ...]
    num_tested: int
    """Measured series long enough for a test, between which the false-alarm rate is divided."""
    notes: tuple[str, ...]


def trace(files: Sequence[ResultFile], rules: Rules, *, patterns: Sequence[str], metrics: Sequence[str]) -> History:
    """Follow metrics of cases across the commits of runs, and find the change points.

    Args:
        files: runs of one machine, in any order.
        rules: thresholds.
        patterns: of case ids, as `fnmatch` understands them; none for every case.
        metrics: names of metrics.

    Raises:
        FileError: for runs of unlike machines, a run without a time, an unknown metric, or no matching case.
    """
    unknown = [name for name in metrics if name not in KINDS]
    if unknown:
        raise FileError(f"no metric {unknown[0]!r}; there are: {', '.join(KINDS)}")
    keys = _matching(files, patterns)
    require_alike(files, REMEDY)
    commits = in_order(files)
    found = [series for metric in dict.fromkeys(metrics) for key in keys for series in _series(commits, key, metric)]
    if not found:
        raise FileError(f"{', '.join(metrics)}: undefined in every run of the cases; choose another --metric")
    num_tested = sum(not series.is_exact and len(series.points) >= 2 * FEWEST_COMMITS for series in found)
    findings = tuple(find_steps(series, rules, num_tested) for series in found)
    return History(commits, findings, num_tested, tuple(_notes(commits)))


def _matching(files: Sequence[ResultFile], patterns: Sequence[str]) -> list[Key]:
    keys = list(dict.fromkeys(key for file in files for key in file.cases))
    for pattern in patterns:
        if not any(fnmatchcase(key.case, pattern) for key in keys):
            cases = list(dict.fromkeys(key.case for key in keys))
            more = f" and {len(cases) - 5} more" if len(cases) > 5 else ""
            raise FileError(f"no case matches {pattern!r}; there are: {', '.join(cases[:5])}{more}")
    return [key for key in keys if not patterns or any(fnmatchcase(key.case, pattern) for pattern in patterns)]


def in_order(files: Sequence[ResultFile]) -> tuple[Commit, ...]:
    """Return commits by their time, runs of one commit together.

    A run of changed files stands alone, as does one outside version control: nothing says that two such runs ran the
    same code.

    Raises:
        FileError: for a run without a time.
    """
    groups: dict[str, list[ResultFile]] = defaultdict(list)
    for file in sorted(files, key=_age):
        is_alone = not file.commit or file.commit.endswith("-dirty")
        groups[f"file {file.path}" if is_alone else f"commit {file.commit}"].append(file)
    return tuple(Commit(group[0].commit, _instant(group[0], group[0].time), tuple(group)) for group in groups.values())


def _age(file: ResultFile) -> tuple[datetime, datetime, str, str]:
    return _instant(file, file.time), _instant(file, file.written or file.time), file.commit, str(file.path)


def _instant(file: ResultFile, text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise FileError(f"{file.path}: has the time {text!r}; expected ISO 8601, to put commits in order") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _notes(commits: Sequence[Commit]) -> Iterator[str]:
    for commit in commits:
        failed = sorted({test for file in commit.files for test in file.failed})
        if failed:
            more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
            yield f"{commit.name[:8] or 'run'} of {commit.time:%Y-%m-%d %H:%M}: {failed[0]}{more} failed there"
    foreign = sum(file.num_foreign for commit in commits for file in commit.files)
    if foreign:
        yield f"{foreign} entries of other tests left out"


def _series(commits: Sequence[Commit], key: Key, metric: str) -> Iterator[Series]:
    scales = {file.cases[key].scale for commit in commits for file in commit.files if key in file.cases}
    for time_scale in sorted(scales):
        points, num_undefined = [], 0
        for position, commit in enumerate(commits):
            cases = [file.cases[key] for file in commit.files if key in file.cases]
            runs = [[each.get(metric) for each in case.rounds] for case in cases if case.scale == time_scale]
            if not runs:
                continue
            # A metric that is undefined in any round has no mean over rounds that can be compared.
            if any(value is None for run in runs for value in run):
                num_undefined += 1
                continue
            rounds = np.array([value for run in runs for value in run], dtype=np.float64)
            processes = np.array([np.mean(run) for run in runs], dtype=np.float64)  # type: ignore[arg-type] # no None
            points.append(Point(position, rounds, processes))
        if points:
            yield Series(key, time_scale, metric, tuple(points), num_undefined)


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
    return tuple(_exact_step(series, i, values[i - 1], values[i]) for i in range(1, len(values)) if _differ(values, i))


def _differ(values: Sequence[float], index: int) -> bool:
    return values[index] != values[index - 1]


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
