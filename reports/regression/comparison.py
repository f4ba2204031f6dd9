"""Two sides of runs, matched case by case in both directions, and judged row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from reports.files import FileError
from reports.measure import case_id, split_case_id
from reports.regression.change import (
    Change,
    Judgement,
    Samples,
    Verdict,
    exact_change,
    is_constant,
    judge_exact,
    judge_measured,
    measured_change,
)
from reports.regression.machines import require_alike
from reports.regression.results import METRICS, Key, ResultFile, is_known, samples
from reports.regression.rules import FALSE_ALARM_RATE, KINDS, Better, Metric, Rule, Rules, Scale

FEWEST_PROCESSES = 3
"""So many runs a side are compared process by process; fewer, round by round."""
REFERENCE = "normal"
NO_RULE = Rule(relative=0.0, absolute=0.0, visible=float("inf"))
"""Of metrics that are shown and not judged."""


class Exit(IntEnum):
    """Exit codes of the commands that decide."""

    OK = 0
    REGRESSION = 1
    UNUSABLE = 2
    UNDECIDED = 3


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of one case."""

    key: Key
    metric: str
    change: Change
    judgement: Judgement

    @property
    def verdict(self) -> Verdict:
        """The row's verdict."""
        return self.judgement.verdict


@dataclass(frozen=True, slots=True)
class Method:
    """How the rows were judged."""

    is_paired: bool
    unit: str
    """What a sample is: "process" or "round"."""
    is_ratio_to_reference: bool
    num_tests: int
    """Measured rows, between which the false-alarm rate is divided."""
    num_looks: int

    @property
    def alpha(self) -> float:
        """Probability of a false alarm in one row at one look."""
        return FALSE_ALARM_RATE / (max(1, self.num_tests) * self.num_looks)


@dataclass(slots=True)
class Comparison:
    """Everything that two sides of runs say."""

    base: Sequence[ResultFile]
    head: Sequence[ResultFile]
    method: Method
    rows: list[Row]
    only_base: list[str] = field(default_factory=list)
    only_head: list[str] = field(default_factory=list)
    incomparable: list[str] = field(default_factory=list)
    """Cases whose time scale differs, and metrics that are undefined on one side."""
    notes: list[str] = field(default_factory=list)

    @property
    def judged(self) -> list[Row]:
        """Rows that take part in the verdict."""
        return [row for row in self.rows if row.verdict is not Verdict.SHOWN]

    @property
    def counts(self) -> Counter[Verdict]:
        """Number of rows by verdict."""
        return Counter(row.verdict for row in self.rows)

    @property
    def has_changed_cases(self) -> bool:
        """Whether a case exists on one side only, or with another time scale."""
        return bool(self.only_base or self.only_head or self.incomparable)

    def exit_code(self, *, allow_changed_cases: bool) -> Exit:
        """Return what the command ends with."""
        if self.counts[Verdict.REGRESSION] or (self.has_changed_cases and not allow_changed_cases):
            return Exit.REGRESSION
        if self.counts[Verdict.UNDECIDED] or not self.judged:
            return Exit.UNDECIDED
        return Exit.OK

    def sentence(self, *, allow_changed_cases: bool) -> str:
        """Return the result in a sentence."""
        counts = self.counts
        cases = len({row.key for row in self.judged})
        start = f"{len(self.judged)} metrics of {cases} cases compared: "
        found = [f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict]]
        changed = len(self.only_base) + len(self.only_head) + len(self.incomparable)
        if changed:
            found.append(f"{changed} cases changed{' (allowed)' if allow_changed_cases else ''}")
        if not self.judged:
            return f"nothing compared: {self._examples()}"
        return start + ", ".join(found)

    def _examples(self) -> str:
        sides = (("base", self.only_base), ("head", self.only_head))
        return "; ".join(f"{name} has {', '.join(cases[:3]) or 'nothing else'}" for name, cases in sides)


def compare(
    base: Sequence[ResultFile], head: Sequence[ResultFile], rules: Rules, *, across_machines: bool = False
) -> Comparison:
    """Compare two sides of runs that were made apart from each other.

    Args:
        base: one run or several of the old commit.
        head: of the new one.
        rules: thresholds.
        across_machines: compare only each case's ratio to `normal`, so that unlike machines may be compared.

    Raises:
        FileError: for runs of unlike machines, or a base whose tests failed.
    """
    refuse_failed(base)
    if not across_machines:
        require_alike([*base, *head])
    unit = "process" if min(len(base), len(head)) >= FEWEST_PROCESSES else "round"
    return _compare(base, head, rules, is_paired=False, unit=unit, num_looks=1, is_ratio=across_machines)


def compare_pairs(
    base: Sequence[ResultFile], head: Sequence[ResultFile], rules: Rules, *, num_looks: int
) -> Comparison:
    """Compare pairs of processes, base[i] and head[i] run one after the other on one machine."""
    return _compare(base, head, rules, is_paired=True, unit="process", num_looks=num_looks, is_ratio=False)


def refuse_failed(base: Sequence[ResultFile]) -> None:
    """Refuse a base whose tests failed.

    Raises:
        FileError: naming a test.
    """
    for file in base:
        if file.failed:
            more = f" and {len(file.failed) - 1} more" if len(file.failed) > 1 else ""
            raise FileError(
                f"{file.path}: a failing run is no base: {file.failed[0]}{more} failed; run it again when it passes"
            )


def _compare(
    base: Sequence[ResultFile],
    head: Sequence[ResultFile],
    rules: Rules,
    *,
    is_paired: bool,
    unit: str,
    num_looks: int,
    is_ratio: bool,
) -> Comparison:
    common, only_base, only_head, incomparable = _match(base, head)
    if is_ratio:
        common = [key for key in common if _reference(key) in common and _reference(key) != key]
    sides = _Sides(base, head, is_paired, unit, is_ratio)
    tests: dict[tuple[Key, str], tuple[Samples, Samples]] = {}
    known = [metric for metric in METRICS if is_known([*base, *head], metric)]
    for key in common:
        for metric in known:
            x, y = sides.samples(key, metric)
            if x is not None and y is not None:
                tests[key, metric] = x, y
            elif x is not None or y is not None:
                incomparable.append(f"{metric} of {key}: undefined in {'head' if y is None else 'base'} only")
    num_measured = sum(key.device != "virtual" and rules.is_judged(metric) for key, metric in tests)
    method = Method(is_paired, unit, is_ratio, num_measured, num_looks)
    rows = [_row(key, metric, x, y, rules, method) for (key, metric), (x, y) in tests.items()]
    found = Comparison(base, head, method, rows, only_base, only_head, incomparable)
    found.notes += [
        f"{metric}: not available, an older suite wrote a file" for metric in METRICS if metric not in known
    ]
    foreign = sum(file.num_foreign for file in (*base, *head))
    if foreign:
        found.notes.append(f"{foreign} entries of other tests left out")
    return found


def _match(base: Sequence[ResultFile], head: Sequence[ResultFile]) -> tuple[list[Key], list[str], list[str], list[str]]:
    scales = [
        {key: {file.cases[key].scale for file in side if key in file.cases} for file in side for key in file.cases}
        for side in (base, head)
    ]
    before, after = scales
    rescaled = [
        f"{key}: time scale {sorted(before[key])} in base, {sorted(after[key])} in head"
        for key in before
        if key in after and len(before[key] | after[key]) > 1
    ]
    common = [key for key in before if key in after and len(before[key] | after[key]) == 1]
    only_base = [str(key) for key in before if key not in after]
    only_head = [str(key) for key in after if key not in before]
    return common, only_base, only_head, rescaled


def _reference(key: Key) -> Key:
    experiment, _ = split_case_id(key.case)
    return Key(key.device, case_id(experiment, REFERENCE))


@dataclass(frozen=True, slots=True)
class _Sides:
    """Turns rounds into samples."""

    base: Sequence[ResultFile]
    head: Sequence[ResultFile]
    is_paired: bool
    unit: str
    is_ratio: bool

    def samples(self, key: Key, metric: str) -> tuple[Samples | None, Samples | None]:
        """Return a metric's samples of both sides; None where it is undefined."""
        base, head = self.base, self.head
        if self.is_paired:
            both = [pair for pair in zip(base, head, strict=True) if all(key in file.cases for file in pair)]
            base, head = [pair[0] for pair in both], [pair[1] for pair in both]
        return self._values(base, key, metric), self._values(head, key, metric)

    def _values(self, files: Sequence[ResultFile], key: Key, metric: str) -> Samples | None:
        if self.is_ratio:
            if KINDS[metric].scale is Scale.DIFFERENCE:
                return None
            reference = _reference(key)
            files = [file for file in files if reference in file.cases]
            found = _ratios(samples(files, key, metric), samples(files, reference, metric))
        else:
            found = samples(files, key, metric)
        # A metric that is undefined in any round has no mean over rounds that can be compared.
        if not found or any(value is None for rounds in found for value in rounds):
            return None
        if self.unit == "process":
            return np.array([np.mean(rounds) for rounds in found], dtype=np.float64)  # type: ignore[arg-type] # no None
        return np.array([value for rounds in found for value in rounds], dtype=np.float64)


def _ratios(own: list[list[float | None]], reference: list[list[float | None]]) -> list[list[float | None]]:
    """Return own / reference round by round: rounds of one process are paired."""
    return [
        [None if a is None or not b else a / b for a, b in zip(rounds, by, strict=False)]
        for rounds, by in zip(own, reference, strict=False)
    ]


def _row(key: Key, metric: str, x: Samples, y: Samples, rules: Rules, method: Method) -> Row:
    kind = KINDS[metric]
    if key.device == "virtual":
        return _exact_row(key, metric, kind, x, y)
    rule = rules.rule(key, metric) if rules.is_judged(metric) else NO_RULE
    if kind.is_count and is_constant(x, y):
        change = exact_change(x, y, kind)
        judgement = judge_exact(change, kind)
    else:
        change = measured_change(x, y, kind, rule, is_paired=method.is_paired, alpha=method.alpha)
        judgement = judge_measured(change, kind, rule)
    if not rules.is_judged(metric):
        judgement = Judgement(Verdict.SHOWN, "not judged")
    return Row(key, metric, change, judgement)


def _exact_row(key: Key, metric: str, kind: Metric, x: Samples, y: Samples) -> Row:
    change = exact_change(x, y, kind)
    for side in (x, y):
        if (side != side[0]).any():
            return Row(key, metric, change, Judgement(Verdict.REGRESSION, "no longer exact: its rounds differ"))
    return Row(key, metric, change, judge_exact(change, kind))


def neutral(change: Change) -> float:
    """Return the value of a change that is none."""
    return 1.0 if change.scale is Scale.RATIO else 0.0


def is_worse(row: Row) -> bool:
    """Return whether the estimate of a row points to the worse side, whatever its verdict."""
    if row.change.estimate is None:
        return False
    up = row.change.estimate > neutral(row.change)
    return up == (KINDS[row.metric].better is Better.LOWER)
