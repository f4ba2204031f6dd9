"""Builds the charts that show all cases at once, as plotly figures in plain dicts; page.js draws them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from reports.page.data import CaseRow, Figures
from reports.summary import format_figure

Figure = dict[str, Any]

COLORS = ("#2457a6", "#c2571a", "#2e7d4f", "#8e3b8a", "#a1842c", "#0f7f8c", "#b3374b", "#5c6b7a", "#6b8e23", "#7a5230")
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x")
NUMBER = re.compile(r"(?<!\d)(?:(?<=_)-)?\d{1,15}(?:\.\d{1,15})?(?!\d)")
"""In an id. A minus only behind an underscore: elsewhere it is a hyphen."""
PLACE = "#"
"""Stands for the number that a sweep varies."""
FEWEST_IN_SWEEP = 3
MOST_NAMED = 5
"""Cases at one point."""
TICKS = (1, 2, 0.5, 1.5, 0.75, 1.25, 5, 0.2, 10, 0.1, 0.9, 1.1, 3, 1.75, 0.6, 0.8, 1.05, 0.95, 20, 50, 100, 0.02, 1000)
"""Ratios worth a tick, the most welcome first."""
FEWEST_SPAN = math.log10(1.1)
"""Of an axis of ratios, so that noise is not blown up to the whole width."""
CHANGE_FORMATS = {"tickformat": "+.4~%", "hoverformat": "+.2%"}
"""Of an axis of changes. Ticks have the decimals that they need: small changes would read alike without."""

BETTER = {
    "text": "better ↘",
    "xref": "paper",
    "yref": "paper",
    "x": 1,
    "y": 0,
    "xanchor": "right",
    "yanchor": "bottom",
    "showarrow": False,
}


def scheduler_colors(cases: Iterable[CaseRow]) -> dict[str, str]:
    """Return a color for each scheduler, in all charts the same."""
    schedulers = dict.fromkeys(case.scheduler for case in cases)
    return {name: COLORS[index % len(COLORS)] for index, name in enumerate(schedulers)}


def plain(text: str) -> str:
    """Return text so that plotly, which knows some tags, shows it as it is."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def overview(cases: Sequence[CaseRow]) -> Figure:
    """Return throughput over mean TTFT against `normal`, a point for each case, on logarithmic axes of ratios.

    `customdata` of a point is the case's index.
    """
    shown = [(index, case) for index, case in enumerate(cases) if _is_drawable(case)]
    colors = scheduler_colors(cases)
    symbols = {device: SYMBOLS[i % len(SYMBOLS)] for i, device in enumerate(dict.fromkeys(c.key.device for c in cases))}
    hovers = _hovers(shown)
    groups: dict[tuple[str, str], list[tuple[int, CaseRow]]] = {}
    for index, case in shown:
        groups.setdefault((case.scheduler, case.key.device), []).append((index, case))
    traces = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": plain(scheduler if len(symbols) == 1 else f"{scheduler}, {device}"),
            "x": [_ratio(case.throughput) for _, case in own],
            "y": [_ratio(case.ttft) for _, case in own],
            "customdata": [index for index, _ in own],
            "text": [hovers[index] for index, _ in own],
            "hovertemplate": "%{text}<extra></extra>",
            "marker": {"size": 10, "color": colors[scheduler], "symbol": symbols[device], "opacity": 0.85},
        }
        for (scheduler, device), own in groups.items()
    ]
    layout = {
        "xaxis": _ratio_axis("throughput against normal", [_ratio(case.throughput) for _, case in shown]),
        "yaxis": _ratio_axis("mean TTFT against normal", [_ratio(case.ttft) for _, case in shown]),
        "shapes": [_line("x"), _line("y")],
        "annotations": [BETTER],
    }
    return {"data": traces, "layout": layout}


def _is_drawable(case: CaseRow) -> bool:
    """Return whether both ratios exist and have a logarithm."""
    return all(each.here is not None and each.here > -1 for each in (case.throughput, case.ttft))


def _ratio(figures: Figures) -> float:
    assert figures.here is not None, "left out by _is_drawable"
    return 1 + figures.here


def _hovers(shown: Sequence[tuple[int, CaseRow]]) -> dict[int, str]:
    """Return what hovering over each case tells, with the cases hidden below it."""
    places: dict[tuple[float, float], list[int]] = {}
    for index, case in shown:
        places.setdefault((round(_ratio(case.throughput), 3), round(_ratio(case.ttft), 3)), []).append(index)
    names = {index: plain(str(case.key)) for index, case in shown}
    texts = {index: _hover(case) for index, case in shown}
    for indices in places.values():
        for index in indices:
            others = [names[other] for other in indices if other != index]
            more = [f"and {len(others) - MOST_NAMED} more"] if len(others) > MOST_NAMED else []
            if others:
                texts[index] += "<br>here too: " + "<br>".join([*others[:MOST_NAMED], *more])
    return texts


def _hover(case: CaseRow) -> str:
    lines = [
        f"<b>{plain(str(case.key))}</b>",
        f"throughput {format_figure(case.throughput.here, '%')}",
        f"mean TTFT {format_figure(case.ttft.here, '%')}",
    ]
    return "<br>".join(lines)


def _ratio_axis(title: str, ratios: Sequence[float]) -> dict[str, Any]:
    """Return a logarithmic axis around 1 whose ticks read as changes in percent."""
    logs = [0.0, *(math.log10(ratio) for ratio in ratios)]
    low, high = min(logs), max(logs)
    span = max(high - low, FEWEST_SPAN)
    middle = (low + high) / 2
    low, high = middle - 0.58 * span, middle + 0.58 * span
    ticks = _ticks(low, high)
    return {
        "type": "log",
        "title": {"text": title},
        "range": [low, high],
        "tickvals": ticks,
        "ticktext": [f"{100 * (tick - 1):+.0f} %" if tick != 1 else "0 %" for tick in ticks],
        "zeroline": False,
    }


def _ticks(low: float, high: float) -> list[float]:
    kept: list[float] = []
    for tick in TICKS:
        at = math.log10(tick)
        if low <= at <= high and all(abs(at - math.log10(other)) >= (high - low) / 9 for other in kept):
            kept.append(tick)
    return sorted(kept)


def _line(axis: str) -> dict[str, Any]:
    """Return a line at no change across the whole chart."""
    across = "y" if axis == "x" else "x"
    ends = {f"{axis}0": 1, f"{axis}1": 1, f"{across}0": 0, f"{across}1": 1}
    style = {"color": "#8c959f", "width": 1, "dash": "dot"}
    return {"type": "line", f"{axis}ref": axis, f"{across}ref": "paper", **ends, "line": style, "layer": "below"}


@dataclass(frozen=True, slots=True)
class Sweep:
    """Cases whose ids differ in one number."""

    device: str
    name: str
    """The part of the ids that they share, with `PLACE` for the number."""
    lines: dict[str, list[tuple[float, int]]]
    """For each scheduler the number and the case's index, by number."""


def sweeps(cases: Sequence[CaseRow]) -> list[Sweep]:
    """Find every number in a case's id that others vary, three values or more, and group the lines by experiment."""
    lines: dict[tuple[str, str, str], dict[float, int]] = {}
    for index, case in enumerate(cases):
        for experiment, scheduler, number in _varied(case):
            lines.setdefault((case.key.device, experiment, scheduler), {}).setdefault(number, index)
    found: dict[tuple[str, str], Sweep] = {}
    for (device, experiment, scheduler), line in lines.items():
        if len(line) < FEWEST_IN_SWEEP:
            continue
        name = f"{experiment}/{scheduler}" if PLACE in scheduler and PLACE not in experiment else experiment
        found.setdefault((device, name), Sweep(device, name, {})).lines[scheduler] = sorted(line.items())
    return list(found.values())


def _varied(case: CaseRow) -> Iterator[tuple[str, str, float]]:
    """Yield experiment and scheduler with `PLACE` for one of their numbers, and that number; for each number."""
    for match in NUMBER.finditer(case.experiment):
        yield _without(match), case.scheduler, float(match[0])
    for match in NUMBER.finditer(case.scheduler):
        yield case.experiment, _without(match), float(match[0])


def _without(match: re.Match[str]) -> str:
    return match.string[: match.start()] + PLACE + match.string[match.end() :]


def sweep_figures(sweep: Sweep, cases: Sequence[CaseRow]) -> list[Figure]:
    """Return throughput and mean TTFT over the number: against `normal` where every case has it, else as they are."""
    return [
        _sweep_figure(
            sweep, cases, "throughput", "req/s", [c.throughput for c in cases], [c.throughput_rps for c in cases]
        ),
        _sweep_figure(sweep, cases, "mean TTFT", "ms", [c.ttft for c in cases], [_ms(c.ttft_mean_ns) for c in cases]),
    ]


def _ms(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / 1e6


def _sweep_figure(
    sweep: Sweep,
    cases: Sequence[CaseRow],
    title: str,
    unit: str,
    relative: Sequence[Figures],
    absolute: Sequence[float | None],
) -> Figure:
    is_relative, lines = _compared(sweep, cases, relative)
    values = [figures.here for figures in relative] if is_relative else absolute
    colors = scheduler_colors(cases)
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": plain(scheduler),
            "x": [number for number, _ in line],
            "y": [values[index] for _, index in line],
            "customdata": [index for _, index in line],
            "text": [plain(cases[index].key.case) for _, index in line],
            "hovertemplate": "%{text}<br>%{y}<extra></extra>",
            "line": {"color": colors[cases[line[0][1]].scheduler]},
            "marker": {"size": 8},
        }
        for scheduler, line in lines.items()
    ]
    y_axis: dict[str, Any] = {"title": {"text": f"{title} against normal" if is_relative else f"{title} ({unit})"}}
    if is_relative:
        y_axis |= CHANGE_FORMATS
    else:
        y_axis["rangemode"] = "tozero"
    return {"data": traces, "layout": {"xaxis": {"title": {"text": plain(sweep.name)}}, "yaxis": y_axis}}


def _compared(
    sweep: Sweep, cases: Sequence[CaseRow], relative: Sequence[Figures]
) -> tuple[bool, dict[str, list[tuple[float, int]]]]:
    """Return whether all lines but those of `normal` have changes against it, and the lines to draw."""
    others = {
        scheduler: line
        for scheduler, line in sweep.lines.items()
        if not any(cases[index].is_reference for _, index in line)
    }
    have_changes = all(relative[index].here is not None for line in others.values() for _, index in line)
    return (True, others) if others and have_changes else (False, sweep.lines)
