"""Explains one scheduler's TTFT against another's by the difference of their causes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table

from impl.attribution import Cause, attribute
from impl.experiment import Result
from impl.gpu_time import GpuCause, split_gpu_time
from reports.summary import draw

NAMED_SHARE = 0.01
"""A cause is named in the sentence if its difference is at least this share of the mean TTFT."""

MeanParts = Mapping[Cause, float]
"""Nanoseconds by cause, means over requests."""


@dataclass(frozen=True, slots=True)
class Explained:
    """What the runs of one scheduler spent their time on."""

    name: str
    parts: MeanParts
    gpu: Mapping[GpuCause, float]
    """Shares of the window between the first forward's start and the last one's end."""

    @property
    def ttft_ns(self) -> float:
        """The mean TTFT, which the parts add up to."""
        return sum(self.parts.values())


def explain(name: str, results: Sequence[Result]) -> Explained:
    """Average the causes over all requests of all rounds."""
    parts: dict[Cause, float] = defaultdict(float)
    gpu: dict[GpuCause, float] = defaultdict(float)
    for result in results:
        workload = result.scenario.workload
        weight = 1 / (len(workload.requests) * len(results))
        for found in attribute(result.timeline, workload):
            for cause, time_ns in found.parts.items():
                parts[cause] += time_ns * weight
        split = split_gpu_time(result.timeline, workload)
        window_ns = sum(split.values())
        for gpu_cause, time_ns in split.items():
            gpu[gpu_cause] += time_ns / window_ns / len(results) if window_ns else 0.0
    return Explained(name, dict(parts), dict(gpu))


def sentence(before: Explained, after: Explained) -> str:
    """Return in one sentence why the mean TTFT of `after` differs from that of `before`."""
    change_ns = after.ttft_ns - before.ttft_ns
    differences = {cause: after.parts.get(cause, 0.0) - before.parts.get(cause, 0.0) for cause in Cause}
    least_ns = NAMED_SHARE * before.ttft_ns
    named = sorted([c for c in Cause if abs(differences[c]) >= least_ns], key=lambda c: -abs(differences[c]))
    rest_ns = change_ns - sum(differences[cause] for cause in named)
    terms = [f"{_signed(differences[cause])} {cause.value}" for cause in named]
    if abs(rest_ns) >= 0.5e3 or not terms:  # half a microsecond, the last digit shown
        terms.append(f"{_signed(rest_ns)} everything else")
    relation = "below" if change_ns < 0 else "above"
    return (
        f"{after.name}'s mean TTFT is {100 * abs(change_ns) / before.ttft_ns:.1f} % {relation} {before.name}'s "
        f"({after.ttft_ns / 1e6:,.3f} against {before.ttft_ns / 1e6:,.3f} ms): {', '.join(terms)}."
    )


def _signed(time_ns: float) -> str:
    return f"{time_ns / 1e6:+,.3f} ms"


def cause_table(found: Sequence[Explained], *, width: int) -> str:
    """Draw mean TTFT by cause, and what the GPU did, a column for each scheduler."""
    table = Table(box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("mean TTFT, ms")
    for each in found:
        table.add_column(each.name, justify="right", no_wrap=True)
    for cause in Cause:
        if any(each.parts.get(cause) for each in found):
            table.add_row(cause.value, *(f"{each.parts.get(cause, 0.0) / 1e6:,.3f}" for each in found))
    table.add_section()
    table.add_row("together", *(f"{each.ttft_ns / 1e6:,.3f}" for each in found))
    table.add_section()
    for gpu_cause in GpuCause:
        if any(each.gpu.get(gpu_cause) for each in found):
            table.add_row(f"GPU {gpu_cause.value}", *(f"{100 * each.gpu.get(gpu_cause, 0.0):.1f} %" for each in found))
    return draw(table, width)
