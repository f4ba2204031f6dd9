"""Several looks at growing data, without spoiling the false-alarm rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reports.regression.change import Verdict
from reports.regression.comparison import Comparison, Row, compare_pairs
from reports.regression.results import Key, ResultFile
from reports.regression.rules import Plan, Rules


class Looks:
    """Judges pairs at each look of a plan; a regression that one look has found stays.

    The rate is divided among the looks (Bonferroni), so it holds whatever made the gate stop or go on.
    """

    def __init__(self, rules: Rules, plan: Plan) -> None:
        self._rules = rules
        self._num_looks = len(plan.pairs)
        self._regressions: dict[tuple[Key, str], Row] = {}

    def look(self, base: Sequence[ResultFile], head: Sequence[ResultFile]) -> Comparison:
        """Return the comparison after another look, at all pairs so far."""
        found = compare_pairs(base, head, self._rules, num_looks=self._num_looks)
        rows = {(row.key, row.metric): row for row in found.rows} | self._regressions
        self._regressions = {name: row for name, row in rows.items() if row.verdict is Verdict.REGRESSION}
        return replace(found, rows=list(rows.values()))


def undecided(found: Comparison) -> set[Key]:
    """Return the cases that need more pairs."""
    return {row.key for row in found.rows if row.verdict is Verdict.UNDECIDED}


def is_over(found: Comparison) -> bool:
    """Return whether more pairs would change no exit code: a regression was found, or nothing is undecided."""
    return bool(found.counts[Verdict.REGRESSION]) or not undecided(found)
