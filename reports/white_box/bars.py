"""Draws spans as bars, with names, bubbles and waits, and explains them in a legend."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from impl.timeline import LockWait, Span
from reports.bar_styles import (
    BAR_STYLES,
    BUBBLE,
    BUBBLE_LEGEND,
    INSTANTS,
    LEGEND_COLOR,
    BarStyle,
    color_of,
    in_ms,
    mixed,
    text_color,
)
from reports.rows import BatchName, Row
from reports.white_box.canvas import Canvas
from reports.white_box.style import LABEL_PT, SMALL_PT, text_width_pt

if TYPE_CHECKING:
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch


LOCK_COLOR = "#000000"
BUBBLE_COLOR = "#ffffff"
MAX_OUTLINED = 300
"""Of more spans in a row, outlines would cover the bars; of fewer, they show a bar that is too narrow to be seen."""


def draw_row(canvas: Canvas, row: Row, top: float, height: float, names: Mapping[int, BatchName]) -> None:
    """Draw all spans of a row, and the names of their batches where there is room."""
    share = height / len(row.tracks)
    widest = _widest(names)
    for index, track in enumerate(row.tracks):
        visible = [span for span in track if canvas.is_visible(span.start_ns, span.end_ns)]
        _draw_track(canvas, row, visible, top + index * share, share - (1 if len(row.tracks) > 1 else 0))
        for span in visible:
            if BAR_STYLES[span.stage].has_label and share >= LABEL_PT + 1:
                _write_name(canvas, span, top + (index + 0.5) * share, names[span.batch_id], widest)


def _draw_track(canvas: Canvas, row: Row, spans: list[Span], top: float, height: float) -> None:
    """Draw bars in few collections: thousands of single patches would take minutes."""
    bars: dict[tuple[str, str], list[Span]] = defaultdict(list)
    instants: dict[tuple[str, str], list[Span]] = defaultdict(list)
    for span in spans:
        chosen = bars if span.end_ns > span.start_ns else instants
        chosen[span.stage, color_of(span.batch_id)].append(span)
    is_dense = len(spans) > MAX_OUTLINED
    for (stage, color), found in bars.items():
        bodies = _add_bars(canvas, found, BAR_STYLES[stage], color, top, height, f"{row.name}: {stage}")
        bodies.set_linewidth(0.1 if is_dense else 0.6)
    for (stage, color), found in instants.items():
        if stage in INSTANTS:
            _add_instants(canvas, found, color, top, height, f"{row.name}: {stage} without time")


def _add_bars(
    canvas: Canvas, spans: list[Span], style: BarStyle, color: str, top: float, height: float, label: str
) -> PolyCollection:
    from matplotlib.collections import PolyCollection

    upper = top + (1 - style.height) / 2 * height
    lower = upper + style.height * height
    corners = []
    for span in spans:
        left, right = canvas.x(span.start_ns), canvas.x(span.end_ns)
        corners.append([(left, upper), (right, upper), (right, lower), (left, lower)])
    edge = style.edge(color)
    found = PolyCollection(corners, facecolors=style.face(color), edgecolors=edge, hatch=style.hatch, zorder=3)
    found.set_label(label)
    canvas.axes.add_collection(found, autolim=False)
    return found


def _add_instants(canvas: Canvas, spans: list[Span], color: str, top: float, height: float, label: str) -> None:
    from matplotlib.collections import LineCollection

    lines = [[(canvas.x(span.start_ns), top), (canvas.x(span.start_ns), top + height)] for span in spans]
    found = LineCollection(lines, colors=mixed(color, "#000000", 0.25), linewidths=1.6, zorder=4, label=label)
    canvas.axes.add_collection(found, autolim=False)


class _Widest(NamedTuple):
    """Widths of the widest names, in points."""

    short_pt: float
    number_pt: float


def _widest(names: Mapping[int, BatchName]) -> _Widest:
    return _Widest(
        max((text_width_pt(name.short, LABEL_PT) for name in names.values()), default=0.0),
        max((text_width_pt(name.number, SMALL_PT) for name in names.values()), default=0.0),
    )


def _write_name(canvas: Canvas, span: Span, y: float, name: BatchName, widest: _Widest) -> None:
    """Write a batch's name into its bar. A shorter form is used where every batch's would fit: bars of one length
    are all named alike, or not at all.
    """
    room_pt = canvas.width_pt(span.start_ns, span.end_ns)
    if name.full != name.short and text_width_pt(name.full, LABEL_PT) + 4 <= room_pt:
        text, size_pt = name.full, LABEL_PT
    elif widest.short_pt + 4 <= room_pt:
        text, size_pt = name.short, LABEL_PT
    elif widest.number_pt + 2 <= room_pt:
        text, size_pt = name.number, SMALL_PT
    else:
        return
    style = BAR_STYLES[span.stage]
    face = style.face(color_of(span.batch_id))
    box = {"facecolor": face, "edgecolor": "none", "pad": 0.8} if style.hatch else None
    color = text_color(face)
    canvas.write_inside(span.start_ns, span.end_ns, y, text, size=size_pt, color=color, bbox=box, zorder=5)


def draw_bubbles(canvas: Canvas, bubbles: list[tuple[int, int]], top: float, height: float) -> None:
    """Draw stretches without a forward as dashed boxes with their length in milliseconds, where there is room."""
    from matplotlib.collections import PolyCollection

    visible = [each for each in bubbles if canvas.is_visible(*each)]
    corners = []
    for start_ns, end_ns in visible:
        left, right = canvas.x(start_ns), canvas.x(end_ns)
        corners.append([(left, top), (right, top), (right, top + height), (left, top + height)])
    found = PolyCollection(corners, facecolors=BUBBLE_COLOR, edgecolors="#000000", linestyles="dashed", zorder=2)
    found.set_label("bubbles")
    found.set_linewidth(0.1 if len(visible) > MAX_OUTLINED else 0.7)
    canvas.axes.add_collection(found, autolim=False)
    for start_ns, end_ns in visible:
        length = in_ms(end_ns - start_ns)
        choices = ((f"{BUBBLE} {length} ms", LABEL_PT, 4), (f"{length} ms", LABEL_PT, 4), (length, SMALL_PT, 2))
        for text, size_pt, margin_pt in choices:
            if text_width_pt(text, size_pt) + margin_pt <= canvas.width_pt(start_ns, end_ns):
                canvas.write_inside(start_ns, end_ns, top + height / 2, text, size=size_pt, zorder=5)
                break


def draw_lock_waits(canvas: Canvas, waits: list[LockWait], top: float, height: float) -> None:
    """Draw the time in which a thread waits for the GIL or a core, as a line along the bottom of its row."""
    from matplotlib.collections import LineCollection

    y = top + height - 1.5
    visible = [wait for wait in waits if canvas.is_visible(wait.start_ns, wait.end_ns)]
    lines = [[(canvas.x(wait.start_ns), y), (canvas.x(wait.end_ns), y)] for wait in visible]
    found = LineCollection(lines, colors=LOCK_COLOR, linewidths=3.0, zorder=4, capstyle="butt", label="lock waits")
    canvas.axes.add_collection(found, autolim=False)


def legend_handles(stages: set[str], lasting: set[str], *, has_bubbles: bool, has_lock_waits: bool) -> list[Patch]:
    """Return a sample of everything that is in the picture.

    Args:
        stages: that have spans.
        lasting: stages of which any span takes time.
        has_bubbles: whether there are any.
        has_lock_waits: whether there are any.
    """
    from matplotlib.patches import Patch

    found = [
        Patch(
            facecolor=style.face(LEGEND_COLOR),
            edgecolor=style.edge(LEGEND_COLOR),
            hatch=style.hatch,
            label=style.word if stage in lasting else f"{style.word} (a line: takes no time)",
        )
        for stage, style in BAR_STYLES.items()
        if stage in lasting or (stage in stages and stage in INSTANTS)
    ]
    if has_bubbles:
        found.append(Patch(facecolor=BUBBLE_COLOR, edgecolor="#000000", linestyle="dashed", label=BUBBLE_LEGEND))
    if has_lock_waits:
        found.append(Patch(facecolor=LOCK_COLOR, label="waits for the GIL or a core"))
    return found
