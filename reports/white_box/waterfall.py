"""Draws how mean TTFT comes about from another scheduler's: a step up or down for every cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from impl.attribution import Cause
from reports.white_box.style import (
    BETTER_COLOR,
    FAINT_COLOR,
    GRID_COLOR,
    POINTS_PER_INCH,
    TOTAL_COLOR,
    WORSE_COLOR,
    literal,
    new_figure,
    shortened,
    styled,
    text_width_pt,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALLEST_STEP_NS = 0.5
"""Means of whole nanoseconds that differ by less differ by rounding."""
COLUMN_IN, SIDES_IN, HEIGHT_IN = 1.05, 0.95, 4.6
NAME_PT, TITLE_PT = 9.0, 12.0
MAX_LINES = 3
"""Of a name below the axis."""


class Step(NamedTuple):
    """One bar, in nanoseconds from the axis."""

    name: str
    from_ns: float
    to_ns: float
    is_total: bool

    @property
    def change_ns(self) -> float:
        """What the bar adds."""
        return self.to_ns - self.from_ns


def steps(before: Mapping[Cause, float], after: Mapping[Cause, float], names: tuple[str, str]) -> list[Step]:
    """Return the bars from left to right; causes without a difference have none.

    Args:
        before: mean nanoseconds by cause; a missing cause is 0.
        after: the same of the other scheduler.
        names: of both.
    """
    level_ns = sum(before.values())
    found = [Step(names[0], 0.0, level_ns, is_total=True)]
    for cause in Cause:
        change_ns = after.get(cause, 0.0) - before.get(cause, 0.0)
        if abs(change_ns) >= SMALLEST_STEP_NS:
            found.append(Step(cause.value, level_ns, level_ns + change_ns, is_total=False))
            level_ns += change_ns
    return [*found, Step(names[1], 0.0, sum(after.values()), is_total=True)]


def draw_waterfall(
    before: Mapping[Cause, float], after: Mapping[Cause, float], *, names: tuple[str, str], title: str
) -> Figure:
    """Draw mean TTFT of one scheduler, the steps by cause, and mean TTFT of the other.

    Args:
        before: mean nanoseconds by cause, see `impl.attribution.mean_by_cause`; a missing cause is 0.
        after: the same of the other scheduler.
        names: of both, shown literally.
        title: shown literally.

    Raises:
        FileError: without matplotlib.
    """
    with styled():
        found = steps(before, after, names)
        width_in = max(6.5, SIDES_IN + COLUMN_IN * len(found))
        figure = new_figure(width_in, HEIGHT_IN)
        axes = figure.add_axes((0.75 / width_in, 0.15, 1 - SIDES_IN / width_in, 0.75))
        _draw_bars(axes, found)
        _name_columns(axes, found, (width_in - SIDES_IN) / len(found) * POINTS_PER_INCH - 6)
        shown = shortened(literal(title), (width_in - 0.4) * POINTS_PER_INCH, TITLE_PT)
        figure.text(0.2 / width_in, 0.97, shown, fontsize=TITLE_PT, va="top")
        if len(found) == 2:
            figure.text(0.5, 0.87, "no cause differs", fontsize=NAME_PT, color=FAINT_COLOR, ha="center", va="top")
        return figure


def _draw_bars(axes: Axes, found: Sequence[Step]) -> None:
    top_ms = max(max(step.from_ns, step.to_ns) for step in found) / 1e6 or 1.0
    digits = _digits(top_ms)
    for index, step in enumerate(found):
        low_ms, high_ms = sorted((step.from_ns / 1e6, step.to_ns / 1e6))
        is_worse = step.change_ns > 0
        color = TOTAL_COLOR if step.is_total else WORSE_COLOR if is_worse else BETTER_COLOR
        axes.bar(
            index, high_ms - low_ms, bottom=low_ms, width=0.66, color=color, edgecolor=color, linewidth=0.8, zorder=3
        )
        if step is not found[-1]:
            level_ms = step.to_ns / 1e6
            axes.plot([index + 0.33, index + 0.67], [level_ms] * 2, color=FAINT_COLOR, linewidth=0.8, zorder=2)
        is_above = step.is_total or is_worse or low_ms < 0.08 * top_ms
        _label(axes, index, high_ms if is_above else low_ms, _written(step, digits), is_above=is_above)
    axes.set_xlim(-0.6, len(found) - 0.4)
    axes.set_ylim(0, 1.12 * top_ms)
    axes.set_ylabel("mean TTFT (ms)")
    axes.yaxis.set_major_formatter("{x:,.6g}")
    axes.grid(axis="y", color=GRID_COLOR, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _label(axes: Axes, x: float, y: float, text: str, *, is_above: bool) -> None:
    place: dict[str, Any] = {"xytext": (0, 3 if is_above else -3), "va": "bottom" if is_above else "top"}
    axes.annotate(text, (x, y), textcoords="offset points", ha="center", fontsize=NAME_PT, zorder=4, **place)


def _digits(top_ms: float) -> int:
    """Return decimals with which all labels of a picture are written, so that they add up."""
    return 1 if top_ms >= 100 else 2 if top_ms >= 10 else 3


def _written(step: Step, digits: int) -> str:
    ms = step.change_ns / 1e6
    if step.is_total:
        return f"{ms:,.{digits}f} ms"
    if abs(ms) < 0.5 * 10**-digits:
        return "≈ 0 ms"
    return f"{ms:+,.{digits}f} ms".replace("-", "−")


def _name_columns(axes: Axes, found: Sequence[Step], room_pt: float) -> None:
    axes.set_xticks(range(len(found)), [_wrapped(literal(step.name), room_pt) for step in found], fontsize=NAME_PT)
    axes.tick_params(axis="x", length=0)
    for label, step in zip(axes.get_xticklabels(), found, strict=True):
        label.set_fontweight("bold" if step.is_total else "normal")


def _wrapped(text: str, room_pt: float) -> str:
    """Break a name between words, or behind an underscore, into lines that fit."""
    lines = [""]
    for word in text.replace("_", "_ ").split(" "):
        glue = "" if not lines[-1] or lines[-1].endswith("_") else " "
        together = lines[-1] + glue + word
        if lines[-1] and text_width_pt(together, NAME_PT) > room_pt:
            lines.append(word)
        else:
            lines[-1] = together
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], lines[MAX_LINES - 1] + "…"]
    return "\n".join(shortened(line, room_pt, NAME_PT) for line in lines)
