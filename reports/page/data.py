"""Collects what the page shows, as plain data: claims, cases against `normal`, every round of every metric."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from reports.article import Article
from reports.baselines import Baselines
from reports.cases import REFERENCE, case_id, split_case_id
from reports.files import FileError
from reports.regression.results import METRICS, ClaimOutcome, Key, ResultFile
from reports.verdict import Verdict

SEVERITY = (Verdict.FAILS.value, Verdict.UNDECIDED.value, Verdict.NOT_RUN.value, Verdict.HOLDS.value)
"""Worst first."""


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A claim on a device, over all runs of one side: the worst outcome, and the mean figure."""

    outcome: ClaimOutcome
    figure: float | None
    article: float | None
    num_runs: int
    num_alike: int
    """Runs with the verdict that is shown."""


@dataclass(frozen=True, slots=True)
class Figures:
    """A number as the article, this run and the virtual device's baseline have it; None where they do not."""

    article: float | None
    here: float | None
    virtual: float | None


@dataclass(frozen=True, slots=True)
class CaseRow:
    """A case beside the article's; throughput and TTFT are changes against `normal`, as ratio − 1."""

    key: Key
    experiment: str
    scheduler: str
    num_rounds: int
    throughput_rps: float | None
    ttft_mean_ns: float | None
    throughput: Figures
    ttft: Figures
    forwards: Figures

    @property
    def is_reference(self) -> bool:
        """Whether the others are compared with this one."""
        return self.scheduler == REFERENCE

    @property
    def is_in_article(self) -> bool:
        """Whether the article has any of its figures."""
        return any(each.article is not None for each in (self.throughput, self.ttft, self.forwards))


def claim_rows(files: Sequence[ResultFile], article: dict[str, float]) -> list[ClaimRow]:
    """Return one row for each claim and device, the worst verdicts first."""
    outcomes: dict[tuple[str, str], list[ClaimOutcome]] = {}
    for file in files:
        for each in file.claims:
            outcomes.setdefault((each.claim, each.device), []).append(each)
    rows = [_claim_row(found, article) for found in outcomes.values()]
    return sorted(rows, key=lambda row: severity(row.outcome.verdict))


def _claim_row(outcomes: Sequence[ClaimOutcome], article: dict[str, float]) -> ClaimRow:
    worst = min(outcomes, key=lambda each: severity(each.verdict))
    figures = [each.figure for each in outcomes if each.figure is not None]
    num_alike = sum(each.verdict == worst.verdict for each in outcomes)
    figure = fmean(figures) if figures else None
    return ClaimRow(worst, figure, article.get(worst.claim), len(outcomes), num_alike)


def severity(verdict: str) -> int:
    """Return a rank, lowest for the worst; a word that no claim of this suite says comes first."""
    return SEVERITY.index(verdict) if verdict in SEVERITY else -1


def verdict_counts(rows: Sequence[ClaimRow]) -> dict[str, int]:
    """Return the number of claims by verdict, the worst first."""
    counts = Counter(row.outcome.verdict for row in rows)
    return {verdict: counts[verdict] for verdict in sorted(counts, key=severity)}


def require_one_scale(files: Sequence[ResultFile]) -> None:
    """Refuse to pool runs that differ in the time scale of a case.

    Raises:
        FileError: naming the case.
    """
    for key in keys(files):
        scales = {file.cases[key].scale: file.path for file in files if key in file.cases}
        if len(scales) > 1:
            found = ", ".join(f"{scale:g} in {path}" for scale, path in scales.items())
            raise FileError(f"{key} has several time scales: {found}; give runs of one scale, or one run")


def keys(files: Sequence[ResultFile]) -> list[Key]:
    """Return every case once, in the files' order."""
    return list(dict.fromkeys(key for file in files for key in file.cases))


def case_rows(files: Sequence[ResultFile], article: Article, virtual: Baselines) -> list[CaseRow]:
    """Return one row for each case of the runs."""
    return [_case_row(files, key, article, virtual) for key in keys(files)]


def _case_row(files: Sequence[ResultFile], key: Key, article: Article, virtual: Baselines) -> CaseRow:
    experiment, scheduler = split_case_id(key.case)
    named = article.cases.get(key.case, {})
    recorded = virtual.cases.get(key.case, {})
    recorded_normal = virtual.cases.get(case_id(experiment, REFERENCE), {})
    normal = Key(key.device, case_id(experiment, REFERENCE))

    def relative(metric: str, field: str) -> Figures:
        if scheduler == REFERENCE:
            return Figures(None, None, None)
        here = change(mean(files, key, metric), mean(files, normal, metric))
        return Figures(named.get(field), here, change(recorded.get(metric), recorded_normal.get(metric)))

    return CaseRow(
        key=key,
        experiment=experiment,
        scheduler=scheduler,
        num_rounds=sum(len(file.cases[key].rounds) for file in files if key in file.cases),
        throughput_rps=mean(files, key, "throughput_rps"),
        ttft_mean_ns=mean(files, key, "ttft_mean_ns"),
        throughput=relative("throughput_rps", "throughput_gain"),
        ttft=relative("ttft_mean_ns", "ttft_change"),
        forwards=Figures(named.get("num_forwards"), mean(files, key, "num_forwards"), recorded.get("num_forwards")),
    )


def change(own: float | None, normal: float | None) -> float | None:
    """Return own / normal − 1, or None where that has no meaning."""
    found = None if own is None or not normal else own / normal - 1
    return found if found is not None and math.isfinite(found) else None


def mean(files: Sequence[ResultFile], key: Key, metric: str) -> float | None:
    """Return a metric's mean over all rounds of all runs; None if it is undefined in any."""
    values = [value for rounds in values_by_run(files, key, metric) for value in rounds]
    defined = [value for value in values if value is not None]
    return fmean(defined) if defined and len(defined) == len(values) else None


def values_by_run(files: Sequence[ResultFile], key: Key, metric: str) -> list[list[float | None]]:
    """Return a metric of a case, [runs][rounds]; None where undefined or unknown to the suite that wrote the file."""
    return [[each.get(metric) for each in file.cases[key].rounds] for file in files if key in file.cases]


def rounds_for_charts(head: Sequence[ResultFile], base: Sequence[ResultFile]) -> list[dict[str, Any]]:
    """Return for each case of head what the charts draw when it is selected: all rounds of both sides."""
    cases = []
    for key in keys(head):
        experiment, scheduler = split_case_id(key.case)
        sides = {"base": _side(base, key), "head": _side(head, key)}
        cases.append({"device": key.device, "experiment": experiment, "scheduler": scheduler, "sides": sides})
    return cases


def _side(files: Sequence[ResultFile], key: Key) -> dict[str, list[list[float | None]]]:
    return {metric: values_by_run(files, key, metric) for metric in METRICS}
