"""Explains one scheduler's TTFT against another's by the difference of their causes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from rich import box
from rich.table import Table

from impl.attribution import Cause, attribute, mean_by_cause
from impl.diagnosis import Diagnosis, diagnose
from impl.experiment import Result
from impl.gpu_time import GpuCause, split_gpu_time
from impl.steps import Step, six_steps
from reports.gpu_state import GpuState
from reports.summary import draw

NAMED_SHARE = 0.01
"""A cause is named in the sentence if its difference is at least this share of the mean TTFT."""
MAIN_SHARE = 0.25
"""Or at least this share of all differences: a small change has main causes too."""

LABEL_WIDTH = 36
NUMBER_WIDTH = 9
WIDEST = 1000
"""Columns are never cut: a block is as wide as it has to be."""
LEAST_SHOWN_NS = 0.5e3
LEAST_SHOWN_SHARE = 0.0005
"""Half of the last digit that is shown."""
SHOWN_METRICS = {
    "throughput_rps": ("throughput, req/s", 1),
    "itl_mean_ns": ("ITL, mean, ms", 1e6),
    "itl_max_ns": ("ITL, longest, ms", 1e6),
    "num_forwards": ("forwards", 1),
    "batch_size_mean": ("mean batch size", 1),
}
"""Metrics in the table, with label and unit; those that no run defines have no row."""
MeanParts = Mapping[Cause, float]
"""Nanoseconds by cause, means over requests."""


@dataclass(frozen=True, slots=True)
class Explained:
    """What the runs of one scheduler spent their time on."""

    name: str
    parts: MeanParts
    gpu: Mapping[GpuCause, float]
    """Shares of the window between the first forward's start and the last one's end."""
    diagnosis: Diagnosis
    """Of the last round."""
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    """Metrics of `SHOWN_METRICS`, means over rounds; None if undefined in one of them."""
    states: Sequence[GpuState] = ()
    """Of the real GPU, of the rounds in which it was sampled."""

    @property
    def ttft_ns(self) -> float:
        """The mean TTFT, which the parts add up to."""
        return sum(self.parts.values())


def explain(name: str, results: Sequence[Result], states: Sequence[GpuState] = ()) -> Explained:
    """Average the causes over all requests of all rounds."""
    found = [each for result in results for each in attribute(result.timeline, result.scenario.workload)]
    gpu: dict[GpuCause, float] = defaultdict(float)
    for result in results:
        split = split_gpu_time(result.timeline, result.scenario.workload)
        window_ns = sum(split.values())
        for gpu_cause, time_ns in split.items():
            gpu[gpu_cause] += time_ns / window_ns / len(results) if window_ns else 0.0
    last = results[-1]
    diagnosis = diagnose(last.timeline, last.scenario.workload)
    metrics = {metric: _mean_metric(results, metric) for metric in SHOWN_METRICS}
    return Explained(name, mean_by_cause(found), dict(gpu), diagnosis, metrics, states)


def _mean_metric(results: Sequence[Result], name: str) -> float | None:
    values = [getattr(result.metrics.summary, name) for result in results]
    return None if None in values else fmean(values)


def sentence(before: Explained, after: Explained) -> str:
    """Return in a sentence why the mean TTFT of `after` differs from that of `before`, and how its throughput does."""
    change_ns = after.ttft_ns - before.ttft_ns
    differences = {cause: after.parts.get(cause, 0.0) - before.parts.get(cause, 0.0) for cause in Cause}
    moved_ns = sum(abs(difference_ns) for difference_ns in differences.values())
    least_ns = max(LEAST_SHOWN_NS, min(NAMED_SHARE * before.ttft_ns, MAIN_SHARE * moved_ns))
    named = sorted([c for c in Cause if abs(differences[c]) >= least_ns], key=lambda c: -abs(differences[c]))
    rest_ns = change_ns - sum(differences[cause] for cause in named)
    terms = [f"{_signed(differences[cause])} {cause.value}" for cause in named]
    others = [cause for cause in Cause if cause not in named and abs(differences[cause]) >= LEAST_SHOWN_NS]
    if len(others) == 1:
        terms.append(f"{_signed(rest_ns)} {others[0].value}")
    elif abs(rest_ns) >= LEAST_SHOWN_NS:
        terms.append(f"{_signed(rest_ns)} everything else")
    numbers = f"({after.ttft_ns / 1e6:,.3f} against {before.ttft_ns / 1e6:,.3f} ms)"
    if not terms:
        return f"{after.name}'s mean TTFT is equal to {before.name}'s {numbers}.{_throughput(before, after)}"
    relation = "below" if change_ns < 0 else "above"
    by = f"{100 * abs(change_ns) / before.ttft_ns:.1f} % " if before.ttft_ns else ""
    why = ", ".join(terms)
    return f"{after.name}'s mean TTFT is {by}{relation} {before.name}'s {numbers}: {why}.{_throughput(before, after)}"


def _throughput(before: Explained, after: Explained) -> str:
    rps, reference_rps = after.metrics.get("throughput_rps"), before.metrics.get("throughput_rps")
    return "" if rps is None or reference_rps is None else f" Throughput {100 * (rps / reference_rps - 1):+.1f} %."


def _signed(time_ns: float) -> str:
    return f"{time_ns / 1e6:+,.3f} ms"


def cause_table(found: Sequence[Explained], *, width: int) -> str:
    """Draw mean TTFT by cause, and what the GPU did, a column for each scheduler; in blocks if they are many."""
    by_name = {each.name: each for each in found}
    return "\n".join(_block([by_name[name] for name in names], found) for names in _blocks(by_name, width))


def _blocks(names: Iterable[str], width: int) -> list[list[str]]:
    """Divide columns among tables that are no wider than a terminal."""
    blocks: list[list[str]] = [[]]
    room = width - LABEL_WIDTH
    for name in names:
        needed = max(len(name), NUMBER_WIDTH) + 3
        if blocks[-1] and needed > room:
            blocks.append([])
            room = width - LABEL_WIDTH
        blocks[-1].append(name)
        room -= needed
    return blocks


def _block(block: Sequence[Explained], every: Sequence[Explained]) -> str:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("mean TTFT, ms", no_wrap=True)
    for each in block:
        table.add_column(each.name, justify="right", no_wrap=True)
    for cause in Cause:
        if any(each.parts.get(cause, 0.0) >= LEAST_SHOWN_NS for each in every):
            table.add_row(cause.value, *(f"{each.parts.get(cause, 0.0) / 1e6:,.3f}" for each in block))
    table.add_section()
    table.add_row("together", *(f"{each.ttft_ns / 1e6:,.3f}" for each in block))
    table.add_section()
    for name, (label, unit) in SHOWN_METRICS.items():
        if any(each.metrics.get(name) is not None for each in every):
            table.add_row(label, *(_shown(each.metrics.get(name), unit) for each in block))
    table.add_section()
    for gpu_cause in GpuCause:
        if any(each.gpu.get(gpu_cause, 0.0) >= LEAST_SHOWN_SHARE for each in every):
            shares = (f"{100 * each.gpu.get(gpu_cause, 0.0):.1f} %" for each in block)
            table.add_row(f"GPU {gpu_cause.value}", *shares)
    if any(each.states for each in every):
        table.add_section()
        table.add_row("SM clock, MHz", *(_mean([s.sm_clock_mhz for s in each.states]) for each in block))
        table.add_row("power, W", *(_mean([s.power_w for s in each.states]) for each in block))
    return draw(table, WIDEST)


def _shown(value: float | None, unit: float) -> str:
    return "–" if value is None else f"{value / unit:,.2f}"


def _mean(values: Sequence[float]) -> str:
    return f"{fmean(values):,.0f}" if values else "–"


def step_table(runs: Mapping[str, Result], request_id: int, *, width: int) -> str:
    """Draw the article's six steps of one request, in milliseconds, a column for each scheduler; in blocks too."""
    return "\n".join(_step_block({name: runs[name] for name in names}, request_id) for names in _blocks(runs, width))


def _step_block(runs: Mapping[str, Result], request_id: int) -> str:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column(f"request {request_id}, ms on its threads", no_wrap=True)
    found = []
    for name, result in runs.items():
        table.add_column(name, justify="right", no_wrap=True)
        found.append(six_steps(result.timeline, request_id))
    for step in Step:
        table.add_row(step.value, *(f"{steps.get(step, 0) / 1e6:,.3f}" for steps in found))
    table.add_section()
    table.add_row("service TTFT", *(f"{sum(steps.values()) / 1e6:,.3f}" for steps in found))
    return draw(table, WIDEST)
