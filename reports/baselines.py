"""Baselines: what was measured before, compared case by case and in both directions.

A file holds one entry for each case ("experiment/scheduler") with its metrics, and one for each claim with its
figure. On the virtual device they are compared exactly. On a GPU, times move with the machine and ratios do not,
so an entry is compared as its ratio to `normal` of the same experiment.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, median_high
from typing import Any

from impl.costs import WorkKind
from impl.metrics import Summary
from impl.timeline import LAUNCH, POST, PRE
from reports.cases import Case, case_id
from reports.files import FileError, read_json, require_number, write_json
from reports.machine import has_gil
from reports.measure import Rounds

SCHEMA = 1
FOLDER = Path(__file__).resolve().parent.parent / "baselines"
RATIO_TOLERANCES = {"throughput_rps": 0.03, "ttft_mean_ns": 0.06}
"""Metrics compared on real devices, and by how much their ratio to `normal` may move."""
NOISY_FACTOR = 4
"""On those tolerances for cases whose rounds vary more; see `_is_noisy`."""
ABSOLUTE_TOLERANCE = 0.05
"""By how much the reference scheduler's total may move on a real device."""
METRICS = tuple(Summary.__dataclass_fields__)


@dataclass(slots=True)
class Baselines:
    """One baseline file in memory; `path` need not exist yet."""

    path: Path
    cases: dict[str, dict[str, float | None]]
    claims: dict[str, float]
    machine: dict[str, Any]
    history: list[dict[str, Any]] = field(default_factory=list)
    """What changed when, and why: date, commit, reason, number of cases and claims."""

    @classmethod
    def read(cls, path: Path) -> Baselines:
        """Read a file; a missing one is empty.

        Raises:
            FileError: naming file and field, if it is damaged.
        """
        if not path.exists():
            return cls(path, {}, {}, {})
        data = read_json(path, schema=SCHEMA)
        cases = {}
        for case, metrics in _object(path, data, "cases").items():
            if not isinstance(metrics, dict):
                raise FileError(f"{path}: field 'cases.{case}' is {metrics!r}; expected an object of metrics")
            unknown = set(metrics) ^ set(METRICS)
            if unknown:
                raise FileError(
                    f"{path}: field 'cases.{case}' lacks or adds {sorted(unknown)}; run --update-baselines REASON"
                )
            cases[case] = {name: require_number(path, f"cases.{case}.{name}", metrics[name]) for name in METRICS}
        claims = {}
        for claim, figure in _object(path, data, "claims").items():
            number = require_number(path, f"claims.{claim}", figure)
            if number is None:
                raise FileError(f"{path}: field 'claims.{claim}' is null; expected a finite number")
            claims[claim] = number
        history = data.get("history", [])
        if not isinstance(history, list) or not all(isinstance(each, dict) for each in history):
            raise FileError(f"{path}: field 'history' is no list of objects; restore it from version control")
        return cls(path, cases, claims, _object(path, data, "machine"), history)

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been recorded for this machine."""
        return not self.cases

    def write(self) -> None:
        """Write the file atomically."""
        fields = {"machine": self.machine, "cases": self.cases, "claims": self.claims, "history": self.history}
        write_json(self.path, {"schema": SCHEMA, **fields})


def _object(path: Path, data: dict[str, Any], field: str) -> dict[str, Any]:
    value = data.get(field)
    if not isinstance(value, dict):
        raise FileError(f"{path}: field {field!r} is {value!r}; expected an object")
    return value


def file_for(device: str, gpu_name: str | None) -> Path:
    """Return the baseline file of a device: virtual.json, or one named after the GPU."""
    name = device if gpu_name is None else re.sub(r"[^a-z0-9]+", "-", gpu_name.lower()).strip("-")
    return FOLDER / f"{name}.json"


def entry(rounds: Rounds, scheduler: str) -> dict[str, float | None]:
    """Return a case's metrics for a baseline: of the only round, or the (high) median of each metric."""
    summaries = [asdict(result.metrics.summary) for result in rounds.of(scheduler)]
    found: dict[str, float | None] = {}
    for name in METRICS:
        values = [summary[name] for summary in summaries if summary[name] is not None]
        found[name] = median_high(values) if values else None
    return found


def differences(baselines: Baselines, case: Case, rounds: Rounds, *, is_exact: bool) -> list[str]:
    """Return how a case differs from its baseline, in words; empty if it does not."""
    expected = baselines.cases[case.id]
    if is_exact:
        found = entry(rounds, case.scheduler)
        return [
            f"{name}: {found[name]} instead of {expected[name]}" for name in METRICS if found[name] != expected[name]
        ]
    reference = case.experiment.reference
    if case.scheduler == reference:
        return _absolute_difference(expected, rounds, reference)
    base = baselines.cases.get(case_id(case.experiment.id, reference))
    if base is None:
        return [f"the baseline has no {case_id(case.experiment.id, reference)} to compare with"]
    moved = []
    factor = NOISY_FACTOR if _is_noisy(case, rounds) else 1
    for name, usual in RATIO_TOLERANCES.items():
        tolerance = usual * factor
        before, by = expected[name], base[name]
        if before is None or by is None:
            continue
        ratio = before / by
        now = float(median(rounds.metric(name, case.scheduler) / rounds.metric(name, reference)))
        if abs(now / ratio - 1) > tolerance:
            moved.append(f"{name} over {reference}'s: {now:.4f} instead of {ratio:.4f}, allowed ±{tolerance:.0%}")
    return moved


def _is_noisy(case: Case, rounds: Rounds) -> bool:
    """Return whether a case is one whose rounds or hosts vary by several percent: its forward is launched kernel by
    kernel; or several threads compete for the GIL, and the operating system decides who gets it; or the host's speed
    decides how many batches there are.
    """
    if rounds.scenario.settings.kernels_per_forward > 1 or case.scheduler in case.experiment.paced_by_host:
        return True
    stages = (PRE, LAUNCH, POST)
    threads = {span.lane for span in rounds.of(case.scheduler)[0].timeline.spans if span.stage in stages}
    return has_gil() and rounds.scenario.costs.host_work is WorkKind.SPIN and len(threads) > 1


def _absolute_difference(expected: dict[str, float | None], rounds: Rounds, reference: str) -> list[str]:
    """Compare the reference itself: calibrated forwards make even its absolute time repeatable."""
    before = expected["total_ns"]
    settings = rounds.scenario.settings
    if before is None or settings.matmuls is not None or settings.kernels_per_forward > 1:
        return []
    now = float(median(rounds.metric("total_ns", reference)))
    if abs(now / before - 1) <= ABSOLUTE_TOLERANCE:
        return []
    return [f"total_ns: {now:.0f} instead of {before:.0f}, allowed ±{ABSOLUTE_TOLERANCE:.0%}"]


def compare_case(
    case: Case, rounds: Rounds, baselines: Baselines, device: str, *, is_updating: bool, is_ignored: bool
) -> tuple[str, list[str]]:
    """Compare a case with its baseline; return the outcome in a word or two, and what makes it a failure."""
    if case.is_user:
        return "without one (yours)", []
    if device == "cpu":
        return "without one (cpu)", []
    if is_ignored:
        return "not compared", []
    if is_updating:
        return "rewritten", []
    if baselines.is_empty:
        problem = f"{baselines.path.name} has no case; record it with --update-baselines REASON"
        return "without one", [problem] if device == "virtual" else []
    if case.id not in baselines.cases:
        return "missing", [f"{baselines.path.name} has no such entry; record it with --update-baselines REASON"]
    moved = differences(baselines, case, rounds, is_exact=device == "virtual")
    return ("moved", moved) if moved else ("equal", [])


def compare_figure(claim: str, figure: float | None, baselines: Baselines) -> str:
    """Compare a claim's figure where it is exact; return what is wrong, or nothing."""
    if claim not in baselines.claims:
        return f"{baselines.path.name} has no figure for this claim; record it with --update-baselines REASON"
    expected = baselines.claims[claim]
    return "" if figure == expected else f"the figure is {figure} instead of {expected} in {baselines.path.name}"
