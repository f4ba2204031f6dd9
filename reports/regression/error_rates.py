"""The gate's own error rates, measured: A/A gates resampled from recorded pairs of one commit.

Each resampled gate draws as many recorded pairs as the plan may need, with replacement, and in each pair a coin decides
which process is called base. So equal commits are compared by construction: any regression found is a false alarm.
With one case's times made worse by a known share in head, a gate that finds it shows the power.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.special import betaincinv

from reports.cases import split_case_id
from reports.files import FileError
from reports.regression.change import Verdict
from reports.regression.comparison import Comparison
from reports.regression.looks import Looks, is_over, undecided
from reports.regression.results import Key, ResultFile, Values, read_result, samples
from reports.regression.rules import KINDS, Plan, Rules

CONFIDENCE = 0.95
FEWEST_PAIRS = 5

Pair = tuple[ResultFile, ResultFile]


@dataclass(frozen=True, slots=True)
class Rate:
    """How often something happened, with the exact two-sided binomial interval.

    Source: Clopper and Pearson, Biometrika 26 (1934), 404–413.
    """

    count: int
    total: int

    @property
    def share(self) -> float:
        """Count over total."""
        return self.count / self.total

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        tail = (1 - CONFIDENCE) / 2
        return 0.0 if self.count == 0 else float(betaincinv(self.count, self.total - self.count + 1, tail))

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        tail = (1 - CONFIDENCE) / 2
        rest = self.total - self.count
        return 1.0 if rest == 0 else float(betaincinv(self.count + 1, rest, 1 - tail))

    def __str__(self) -> str:
        return f"{self.count} of {self.total} ({self.share:.1%}) [{self.low:.2%}, {self.high:.2%}]"


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What many resampled gates said, and what a limit of pytest-benchmark's kind said of each one's first pair."""

    regression: Rate
    """Gates with a REGRESSION; with a planted one, gates that found it in the right case."""
    undecided: Rate
    """Gates that ended undecided: with no regression either."""
    limit: Rate
    """The first pair's mean run time beyond the limit: in any case, or in the planted one."""


def read_pairs(folders: Sequence[Path]) -> list[Pair]:
    """Read the pairs that gates have left in their output folders.

    Raises:
        FileError: if there are too few, or they are of more than one commit.
    """
    pairs = []
    for folder in folders:
        for path in sorted(folder.glob("pair-*-base.json")):
            other = path.with_name(path.name.replace("-base", "-head"))
            if other.exists():
                pairs.append((read_result(path), read_result(other)))
    commits = sorted({file.commit for pair in pairs for file in pair})
    if len(commits) > 1:
        raise FileError(f"pairs of {len(commits)} commits ({', '.join(c[:12] for c in commits)}); expected one")
    # Later pairs of a gate may have only what was undecided.
    most = max((len(file.cases) for pair in pairs for file in pair), default=0)
    whole = [pair for pair in pairs if all(len(file.cases) == most for file in pair)]
    if len(whole) < FEWEST_PAIRS:
        names = ", ".join(map(str, folders))
        raise FileError(
            f"{names}: {len(whole)} pairs with every case; at least {FEWEST_PAIRS} are needed: "
            "gate --base HEAD -o FOLDER"
        )
    return whole


def of_plan(pairs: Sequence[Pair], plan: Plan) -> list[Pair]:
    """Return pairs with the cases of a plan's experiments alone.

    Raises:
        FileError: if none of them was recorded.
    """

    def kept(file: ResultFile) -> ResultFile:
        wanted = plan.experiments
        cases = {k: case for k, case in file.cases.items() if not wanted or split_case_id(k.case)[0] in wanted}
        return replace(file, cases=cases)

    found = [(kept(base), kept(head)) for base, head in pairs]
    if not found[0][0].cases:
        raise FileError(f"none of the plan's experiments ({', '.join(plan.experiments)}) is among the recorded cases")
    return found


def resample(
    pairs: Sequence[Pair],
    rules: Rules,
    plan: Plan,
    gates: Iterable[int],
    *,
    seed: int,
    worse_by: float,
    limit: float,
) -> Outcomes:
    """Run resampled gates.

    Args:
        pairs: recorded ones, of one commit.
        rules: thresholds.
        plan: when the gate looks, and how many pairs it may take.
        gates: one item for each gate, such as a range, or one that shows progress.
        seed: of the draws.
        worse_by: share by which every time of one case, drawn for each gate, is longer in head; 0 for equal commits.
        limit: share by which pytest-benchmark's mean may grow, as `--benchmark-compare-fail=mean:2%`.
    """
    random = np.random.default_rng(seed)
    keys = sorted(pairs[0][0].cases)
    regressions = num_undecided = beyond = num_gates = 0
    for _ in gates:
        num_gates += 1
        planted = keys[random.integers(len(keys))] if worse_by else None
        indices = random.integers(len(pairs), size=plan.pairs[-1])
        drawn = [pairs[index] if random.random() < 0.5 else pairs[index][::-1] for index in indices]
        base = [pair[0] for pair in drawn]
        head = [pair[1] if planted is None else slowed(pair[1], planted, worse_by) for pair in drawn]
        found = _decide(base, head, rules, plan)
        hits = {row.key for row in found.rows if row.verdict is Verdict.REGRESSION}
        regressions += planted in hits if planted else bool(hits)
        num_undecided += bool(undecided(found)) and not hits
        beyond += any(
            _mean_total_ns(head[0], key) > (1 + limit) * _mean_total_ns(base[0], key)
            for key in ([planted] if planted else keys)
        )
    return Outcomes(Rate(regressions, num_gates), Rate(num_undecided, num_gates), Rate(beyond, num_gates))


def _decide(base: Sequence[ResultFile], head: Sequence[ResultFile], rules: Rules, plan: Plan) -> Comparison:
    """Look at growing numbers of pairs until the gate would be over."""
    looks = Looks(rules, plan)
    for num_pairs in plan.pairs:
        found = looks.look(base[:num_pairs], head[:num_pairs])
        if is_over(found):
            break
    return found


def slowed(file: ResultFile, key: Key, by: float) -> ResultFile:
    """Return a run in which every time of one case is longer by a share, and its throughput lower to match."""
    case = file.cases[key]
    rounds = tuple({name: _slowed(name, value, by) for name, value in each.items()} for each in case.rounds)
    return replace(file, cases={**file.cases, key: replace(case, rounds=rounds)})


def _slowed(metric: str, value: float | None, by: float) -> float | None:
    if value is None:
        return None
    if metric == "throughput_rps":
        return value / (1 + by)
    return value * (1 + by) if KINDS[metric].unit == "ns" else value


def _mean_total_ns(file: ResultFile, key: Key) -> float:
    """Return what pytest-benchmark calls the mean: of the run times of all rounds."""
    found = samples([file], key, "total_ns")
    if isinstance(found, Values):
        raise FileError(f"{file.path}: total_ns of {key} is {found.value}; record the pairs again")
    return float(np.mean(found))
