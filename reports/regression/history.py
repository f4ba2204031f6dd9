"""A metric across commits: reads the series that result files hold, and has each searched for change points."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase

import numpy as np

from reports.files import FileError
from reports.regression.change_points import FEWEST_COMMITS, find_steps
from reports.regression.machines import require_alike
from reports.regression.results import Key, ResultFile
from reports.regression.rules import KINDS, Rules
from reports.regression.series import Finding, Point, Series

DEFAULT_METRICS = ("throughput_rps", "ttft_mean_ns")
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
