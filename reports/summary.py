"""The table at the end of a session: claim, article, measured, baseline, verdict."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from reports.baselines import Baselines
from reports.records import CaseRecord, ClaimRecord, PredictionRecord


def format_figure(value: float | None, unit: str) -> str:
    """Return a figure with its unit; a dash for none."""
    if value is None:
        return "–"
    if unit == "%":
        return f"{100 * value:+.2f} %"
    if unit == "share":
        return f"{value:.3f}"
    return f"{value:,.6g} {unit}".rstrip()


def sentence(claim: str) -> str:
    """Return a test's name as the sentence it asserts."""
    return claim.removeprefix("test_").replace("_", " ")


def claim_table(
    device: str, records: Sequence[ClaimRecord], article: dict[str, float], baselines: Baselines, width: int
) -> str:
    """Draw the table of one device."""
    table = Table(title=f"claims on {device}", title_justify="left", expand=True, box=box.SIMPLE_HEAD)
    table.add_column("claim → figure", ratio=1)
    table.add_column("§", no_wrap=True)
    for name in ("article", "measured", "baseline"):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("verdict", no_wrap=True)
    for record in records:
        table.add_row(
            f"{sentence(record.claim)} → {record.figure or 'not measured'}",
            record.section,
            format_figure(article.get(record.claim), record.unit),
            format_figure(record.value, record.unit),
            format_figure(baselines.claims.get(record.claim), record.unit),
            record.verdict,
        )
    return draw(table, width)


def prediction_table(device: str, records: Sequence[PredictionRecord], width: int) -> str:
    """Draw what the virtual device predicted beside what a real one measured."""
    table = Table(
        title=f"the virtual device's prediction for {device}", title_justify="left", expand=True, box=box.SIMPLE_HEAD
    )
    table.add_column("case", ratio=1, overflow="fold")
    for name in ("req/s", "measured", "error", "TTFT ms", "measured", "error"):
        table.add_column(name, no_wrap=True, justify="right")
    for record in records:
        table.add_row(
            f"{record.experiment}/{record.scheduler}",
            f"{record.throughput_rps:.3f}",
            f"{record.throughput_measured_rps:.3f}",
            format_figure(record.throughput_error, "%"),
            f"{record.ttft_ns / 1e6:.2f}",
            f"{record.ttft_measured_ns / 1e6:.2f}",
            format_figure(record.ttft_error, "%"),
        )
    return draw(table, width)


def user_table(device: str, records: Sequence[CaseRecord], width: int) -> str:
    """Draw what the user's own schedulers did, against the reference of each experiment."""
    table = Table(
        title=f"your schedulers on {device}, against normal (or the experiment's first)",
        title_justify="left",
        expand=True,
        box=box.SIMPLE_HEAD,
    )
    table.add_column("case", ratio=1, overflow="fold")
    for name in ("throughput", "mean TTFT", "forwards", "GPU idle", "launch lead"):
        table.add_column(name, no_wrap=True, justify="right")
    for record in records:
        table.add_row(
            record.case,
            format_figure(record.throughput_gain, "%"),
            format_figure(record.ttft_change, "%"),
            format_figure(record.metrics["num_forwards"], ""),
            format_figure(record.metrics["gpu_idle_share"], "share"),
            format_figure(record.metrics["launch_lead"], "share"),
        )
    return draw(table, width)


def draw(table: Table, width: int) -> str:
    """Return a table as text without colours."""
    text = io.StringIO()
    Console(file=text, width=width, force_terminal=False, highlight=False).print(table)
    return text.getvalue()
