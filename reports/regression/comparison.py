"""Two sides of runs, matched case by case in both directions, and judged row by row."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np

from reports.cases import REFERENCE
from reports.files import FileError
from reports.regression.change import (
    Change,
    Judgement,
    Samples,
    Verdict,
    exact_change,
    is_constant,
    judge_constant,
    judge_exact,
    judge_measured,
    measured_change,
)
from reports.regression.machines import require_alike, require_known
from reports.regression.results import METRICS, Key, ResultFile, Values
from reports.regression.rules import FALSE_ALARM_RATE, KINDS, Metric, Rule, Rules
from reports.regression.sides import Sides, match, reference

FEWEST_PROCESSES = 3
"""So many runs a side are compared process by process; fewer, round by round."""
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
    is_ratio_to_reference: bool = False
    """Whether its values are ratios to `normal`, without a unit."""

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
    luck: float = 0.0
    """Assumed standard deviation between the two sides' processes, where there are too few to measure it."""

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
    """Cases whose time scale differs or that have no reference, and metrics that a side lacks."""
    failed: list[str] = field(default_factory=list)
    """Tests that failed in head."""
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
        if self.failed or self.counts[Verdict.REGRESSION] or (self.has_changed_cases and not allow_changed_cases):
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
        if self.failed:
            found.append(f"{len(self.failed)} tests of head failed")
        if changed:
            how = "allowed" if allow_changed_cases else "--allow-changed-cases allows that"
            found.append(f"{changed} cases changed ({how})")
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
    for name, side in (("base", base), ("head", head)):
        require_one_commit(name, side)
    refuse_failed(base)
    if not across_machines:
        require_known([*base, *head])
        require_alike([*base, *head])
    unit = "process" if min(len(base), len(head)) >= FEWEST_PROCESSES else "round"
    return _compare(base, head, rules, is_paired=False, unit=unit, num_looks=1, is_ratio=across_machines)


def compare_pairs(
    base: Sequence[ResultFile], head: Sequence[ResultFile], rules: Rules, *, num_looks: int
) -> Comparison:
    """Compare pairs of processes, base[i] and head[i] run one after the other on one machine."""
    return _compare(base, head, rules, is_paired=True, unit="process", num_looks=num_looks, is_ratio=False)


def require_one_commit(name: str, side: Sequence[ResultFile]) -> None:
    """Refuse to pool runs of different commits.

    Raises:
        FileError: naming the commits.
    """
    commits = sorted({file.commit for file in side})
    if len(commits) > 1:
        raise FileError(f"{name}: runs of {len(commits)} commits ({', '.join(c[:12] for c in commits)}); give one")


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
    matched = match(base, head)
    common, incomparable = matched.common, [*matched.rescaled]
    if is_ratio:
        measured = {key for file in (*base, *head) for key in file.cases}  # an experiment may have no such case
        lacking_one = [key for key in common if reference(key) not in common and reference(key) in measured]
        incomparable += [f"{key}: no {REFERENCE} to relate it to" for key in lacking_one]
        common = [key for key in common if reference(key) in common and reference(key) != key]
    sides = Sides(base, head, is_paired, unit, is_ratio)
    tests: dict[tuple[Key, str], tuple[Samples, Samples]] = {}
    older: set[str] = set()
    for key in common:
        for metric in METRICS:
            x, y = sides.samples(key, metric)
            if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
                tests[key, metric] = x, y
            elif x is Values.MISSING and y is not Values.MISSING:
                older.add(metric)  # new metrics come with new suites
            elif not x is y is Values.UNDEFINED and not is_ratio:
                lacking = [(name, why) for name, why in (("base", x), ("head", y)) if isinstance(why, Values)]
                name, why = lacking[-1]
                incomparable.append(f"{metric} of {key}: {why.value} in {name}")
    num_measured = sum(key.device != "virtual" and rules.is_judged(metric) for key, metric in tests)
    luck = rules.process_luck * math.sqrt(1 / len(base) + 1 / len(head)) if unit == "round" else 0.0
    method = Method(is_paired, unit, is_ratio, num_measured, num_looks, luck)
    rows = [
        _row(key, metric, x, y, rules, method, _resolution(key, metric, sides), min(len(base), len(head)))
        for (key, metric), (x, y) in tests.items()
    ]
    failed = list(dict.fromkeys(test for file in head for test in file.failed))
    notes = _notes(base, head, rules, sorted(older))
    return Comparison(base, head, method, rows, matched.only_base, matched.only_head, incomparable, failed, notes)


def _notes(base: Sequence[ResultFile], head: Sequence[ResultFile], rules: Rules, older: Sequence[str]) -> list[str]:
    notes = [f"{metric}: not available, an older suite wrote the base" for metric in older]
    foreign = sum(file.num_foreign for file in (*base, *head))
    if foreign:
        notes.append(f"{foreign} entries of other tests left out")
    unmatched = rules.unmatched(key.case for file in (*base, *head) for key in file.cases)
    return [*notes, *(f"{rules.path.name}: the override for {pattern!r} matches no case" for pattern in unmatched)]


def _resolution(key: Key, metric: str, sides: Sides) -> float:
    """Return the smallest step between two values of a metric; 0 for a continuous one."""
    if KINDS[metric].is_count:
        return 1.0 / sides.reference_mean(key, metric) if sides.is_ratio else 1.0
    if metric == "launch_lead":  # a share of all launches but the first
        forwards, _ = sides.samples(key, "num_forwards")
        return 0.0 if isinstance(forwards, Values) else 1.0 / max(1.0, float(forwards.mean()) - 1)
    return 0.0


def _row(
    key: Key, metric: str, x: Samples, y: Samples, rules: Rules, method: Method, resolution: float, num_processes: int
) -> Row:
    kind = KINDS[metric]
    if key.device == "virtual":
        return _exact_row(key, metric, kind, x, y)
    rule = rules.rule(key, metric) if rules.is_judged(metric) else NO_RULE
    if method.is_ratio_to_reference:
        rule = replace(rule, absolute=0.0)  # its unit is not that of a ratio
    if resolution > 0 and is_constant(x, y):
        change = exact_change(x, y, kind)
        num_independent = len(x) if method.unit == "process" else num_processes
        judgement = judge_constant(change, kind, rule, method.alpha, num_independent)
    else:
        change = measured_change(
            x, y, kind, rule, is_paired=method.is_paired, alpha=method.alpha, resolution=resolution, luck=method.luck
        )
        judgement = judge_measured(change, kind, rule)
    if not rules.is_judged(metric):
        judgement = Judgement(Verdict.SHOWN, "not judged")
    return Row(key, metric, change, judgement, method.is_ratio_to_reference)


def _exact_row(key: Key, metric: str, kind: Metric, x: Samples, y: Samples) -> Row:
    change = exact_change(x, y, kind)
    for side in (x, y):
        if (side != side[0]).any():
            return Row(key, metric, change, Judgement(Verdict.REGRESSION, "no longer exact: its rounds differ"))
    return Row(key, metric, change, judge_exact(change, kind))
