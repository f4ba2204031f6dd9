"""Draws metrics across commits: a picture of each metric, a panel for each series."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from reports.pictures import style, to_bytes
from reports.regression.change import Samples
from reports.regression.history import Commit, History
from reports.regression.history_text import direction, is_notable, name_of, title
from reports.regression.rules import KINDS, Scale
from reports.regression.series import Finding, Step
from reports.regression.views import format_change

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_PANELS = 12
NUM_COLUMNS = 3
MAX_TICKS = 24
"""Commits whose names stand below a panel; of more, every second, third, …"""
PANEL_INCHES = (5.6, 3.0)
MAX_LABELS = 18
"""Changes written out in a panel: the largest."""
NUM_LABEL_ROWS = 3
SAMPLE_COLOR = "#56b4e9"
SEGMENT_COLOR = "#000000"
STEP_STYLES: Mapping[str, tuple[str, Literal["--", "-.", ":"]]] = {
    "regression": ("#d55e00", "--"),
    "improvement": ("#0072b2", "-."),
    "change": ("#cc79a7", ":"),
}
"""Color and line of a change point: of Okabe and Ito's palette, which colour-blind readers can tell, and told by the
line and the words too."""


def draw(history: History, metric: str) -> dict[str, bytes]:
    """Return a metric's picture as files, by suffix: "png" and "svg"; the same bytes for the same history."""
    with style("history"):
        figure = _figure(history, [finding for finding in history.findings if finding.series.metric == metric], metric)
        return to_bytes(figure, dpi=110)


def _figure(history: History, findings: Sequence[Finding], metric: str) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = sorted(findings, key=lambda finding: not is_notable(finding))[:MAX_PANELS]
    columns = min(NUM_COLUMNS, len(shown))
    rows = math.ceil(len(shown) / columns)
    width = max(columns * PANEL_INCHES[0], 7.5)  # the heading has to fit
    figure = Figure(figsize=(width, rows * PANEL_INCHES[1] + 0.9), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(_caption(findings, shown, metric))
    for index, finding in enumerate(shown):
        _panel(figure.add_subplot(rows, columns, index + 1), finding, history.commits)
    _explain(figure, {step.word for finding in shown for step in finding.steps})
    return figure


def _explain(figure: Figure, words: set[str]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=SAMPLE_COLOR, marker="o", markersize=4, linestyle="none", label="sample"),
        Line2D([], [], color=SEGMENT_COLOR, linewidth=1.6, label="mean of segment"),
        *(
            Line2D([], [], color=color, linestyle=line, linewidth=1.4, label=f"change point: {word}")
            for word, (color, line) in STEP_STYLES.items()
            if word in words
        ),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)


def _caption(findings: Sequence[Finding], shown: Sequence[Finding], metric: str) -> str:
    caption = f"{metric} by commit{direction(metric)}"
    if len(shown) == len(findings):
        return caption
    left = sum(map(is_notable, findings)) - sum(map(is_notable, shown))
    words = f"{left} of them with a change point" if left else "none of them with a change point"
    return f"{caption}\n{len(findings) - len(shown)} of {len(findings)} series left out, {words}"


def unit_of(values: Samples, metric: str) -> tuple[float, str]:
    """Return a factor on a metric's values and the unit that they then have, for an axis."""
    unit = KINDS[metric].unit
    if unit != "ns":
        return 1.0, unit
    largest = float(values.max())
    return (1e-9, "s") if largest >= 1e9 else (1e-6, "ms") if largest >= 1e6 else (1e-3, "µs")


def _panel(axes: Axes, finding: Finding, commits: Sequence[Commit]) -> None:
    series = finding.series
    points = series.points
    values = np.concatenate([point.samples for point in points])
    factor, unit = unit_of(values, series.metric)
    positions = np.concatenate([np.full(len(point.samples), point.position) for point in points])
    axes.scatter(positions, values * factor, s=13, color=SAMPLE_COLOR, edgecolors="white", linewidths=0.3, zorder=3)
    for start, end in finding.segments:
        mean = float(np.concatenate([point.processes for point in points[start:end]]).mean()) * factor
        left, right = points[start].position - 0.4, points[end - 1].position + 0.4
        axes.plot([left, right], [mean, mean], color=SEGMENT_COLOR, linewidth=1.6, solid_capstyle="butt", zorder=2)
    axes.set_xlim(-0.7, len(commits) - 0.3)
    _set_heights(axes, values * factor)
    _mark(axes, finding)
    _name_commits(axes, finding, commits)
    name = series.metric.removesuffix("_ns").removesuffix("_rps")
    axes.set_ylabel(f"{name} ({unit})" if unit and not name.endswith(unit) else name)
    axes.set_title(title(finding), fontsize=9, loc="left", fontweight="bold")
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _set_heights(axes: Axes, values: Samples) -> None:
    """Leave room above the values for words, and do not blow up a flat series until its rounding shows."""
    low, high = float(values.min()), float(values.max())
    span = max(high - low, 0.02 * max(abs(low), abs(high)), 1e-9)
    middle = (low + high) / 2
    axes.set_ylim(middle - 0.6 * span, middle + 0.95 * span)


def _mark(axes: Axes, finding: Finding) -> None:
    points = finding.series.points
    left, right = axes.get_xlim()
    labelled = sorted(finding.steps, key=_size, reverse=True)[:MAX_LABELS]
    for number, step in enumerate(finding.steps):
        x = (points[step.index].position + points[step.index - 1].position) / 2
        color, line = STEP_STYLES[step.word]
        axes.axvline(x, color=color, linestyle=line, linewidth=1.4, zorder=1)
        if step not in labelled:
            continue
        is_right = x > left + 0.85 * (right - left)
        axes.annotate(
            format_change(step.estimate, step.scale, finding.series.metric),
            (x, 0.99 - 0.09 * (number % NUM_LABEL_ROWS)),  # neighbours do not cover each other
            xycoords=axes.get_xaxis_transform(),
            xytext=(-3 if is_right else 3, 0),
            textcoords="offset points",
            ha="right" if is_right else "left",
            va="top",
            fontsize=8,
            color=color,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
            zorder=4,
        )


def _size(step: Step) -> float:
    return abs(math.log(step.estimate)) if step.scale is Scale.RATIO else abs(step.estimate)


def _name_commits(axes: Axes, finding: Finding, commits: Sequence[Commit]) -> None:
    every = math.ceil(len(commits) / MAX_TICKS)
    marked = {finding.series.points[step.index].position for step in finding.steps}
    regular = [i for i in range(0, len(commits), every) if all(abs(i - each) >= every for each in marked)]
    ticks = sorted({*regular, *marked})
    axes.set_xticks(ticks, [name_of(commits[i]) for i in ticks], rotation=90, fontsize=7, family="DejaVu Sans Mono")
    for label, tick in zip(axes.get_xticklabels(), ticks, strict=True):
        label.set_fontweight("bold" if tick in marked else "normal")
