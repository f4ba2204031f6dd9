"""Draws a run: what every thread and every stream did when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from impl.checks import require_whole
from impl.gpu_time import GpuCause, split_gpu_time
from impl.metrics import measure
from impl.timeline import LockWait, Timeline
from impl.workload import Workload
from reports.bar_styles import KIND_WORDS, color_of, in_ms
from reports.rows import (
    SEEN_SHARE,
    BatchName,
    Kind,
    Mark,
    Row,
    arrivals,
    batch_names,
    bubbles,
    clusters,
    first_tokens,
    rows_of,
    spelled,
)
from reports.white_box.bars import draw_bubbles, draw_lock_waits, draw_row, legend_handles
from reports.white_box.canvas import RIGHT_PT, WIDTH_PT, Canvas, new_canvas
from reports.white_box.style import (
    FAINT_COLOR,
    LABEL_PT,
    POINTS_PER_INCH,
    literal,
    shortened,
    styled,
    text_width_pt,
)
from reports.wording import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW_PT, GAP_PT, STRIP_PT, TICK_PT = 34.0, 7.0, 24.0, 9.0
TITLE_PT, NAME_PT = 12.0, 9.0
LONGEST_NAME_PT = 150.0
NEAR_PT = 5.0
"""Ticks as close as this share one name."""
ARRIVALS, FIRST_TOKENS = "arrivals", "first tokens"


def draw_timeline(timeline: Timeline, workload: Workload, *, title: str, until_ns: int | None = None) -> Figure:
    """Draw what every host thread and every device stream did when, with the bubbles between forwards.

    Args:
        timeline: of a complete run.
        workload: what it served.
        title: shown literally.
        until_ns: end of the picture, in nanoseconds from the start of the run; by default the end of the run.

    Raises:
        FileError: without matplotlib.
        SettingError: if `until_ns` is not a positive whole number.
    """
    if until_ns is not None:
        require_whole("until_ns", until_ns, at_least=1, unit="nanoseconds")
    with styled():
        rows = rows_of(timeline)
        names = batch_names({taken.batch_id: taken.request_ids for taken in timeline.taken})
        canvas = _new_canvas(timeline, rows, until_ns)
        _draw_rows(canvas, timeline, workload, rows, names)
        _explain(canvas, timeline, rows, names)
        _entitle(canvas, title, _subtitle(timeline, workload, canvas))
        return canvas.figure


def _new_canvas(timeline: Timeline, rows: list[Row], until_ns: int | None) -> Canvas:
    end_ns = max((span.end_ns for span in timeline.spans), default=timeline.started_ns) - timeline.started_ns
    window_ns = end_ns if until_ns is None else min(until_ns, end_ns)
    names = [ARRIVALS, FIRST_TOKENS, *map(_name, rows)]
    return new_canvas(
        left_pt=max(text_width_pt(name, NAME_PT) for name in names) + 18,
        height_pt=2 * STRIP_PT + len(rows) * (ROW_PT + GAP_PT) + GAP_PT,
        origin_ns=timeline.started_ns,
        window_ns=window_ns + window_ns // 200,  # so that the last bar's edge is seen
    )


def _name(row: Row) -> str:
    return f"{KIND_WORDS[row.kind]} {shortened(literal(row.name), LONGEST_NAME_PT, NAME_PT)}"


def _draw_rows(
    canvas: Canvas, timeline: Timeline, workload: Workload, rows: list[Row], names: Mapping[int, BatchName]
) -> None:
    locks: dict[str, list[LockWait]] = defaultdict(list)
    for wait in timeline.lock_waits:
        locks[wait.lane].append(wait)
    _draw_marks(
        canvas, arrivals(timeline, workload), tick=(STRIP_PT - TICK_PT, STRIP_PT), text_y=STRIP_PT - TICK_PT - 7
    )
    tops = [STRIP_PT + GAP_PT + index * (ROW_PT + GAP_PT) for index in range(len(rows))]
    for row, top in zip(rows, tops, strict=True):
        canvas.axes.axhspan(top, top + ROW_PT, color="#f4f4f4", linewidth=0, zorder=0)
        draw_row(canvas, row, top, ROW_PT, names)
        if row.kind is Kind.THREAD and locks[row.name]:
            draw_lock_waits(canvas, locks[row.name], top, ROW_PT)
    _draw_bubbles(canvas, timeline, [top for row, top in zip(rows, tops, strict=True) if row.kind is Kind.STREAM])
    bottom = STRIP_PT + len(rows) * (ROW_PT + GAP_PT) + GAP_PT
    _draw_marks(canvas, first_tokens(timeline), tick=(bottom, bottom + TICK_PT), text_y=bottom + TICK_PT + 7)
    places = [STRIP_PT - 7, *(top + ROW_PT / 2 for top in tops), bottom + 7]
    canvas.axes.set_yticks(places, [ARRIVALS, *map(_name, rows), FIRST_TOKENS], fontsize=NAME_PT)


def _draw_bubbles(canvas: Canvas, timeline: Timeline, tops: list[float]) -> None:
    found = bubbles(timeline)
    if found:
        draw_bubbles(canvas, found, tops[0], tops[-1] + ROW_PT - tops[0])


def _draw_marks(canvas: Canvas, marks: list[Mark], *, tick: tuple[float, float], text_y: float) -> None:
    """Draw a tick for each mark, and name the requests of those that stand far enough from the last name."""
    visible = [mark for mark in marks if canvas.is_visible(mark.time_ns, mark.time_ns)]
    for color in sorted({color_of(mark.batch_id) for mark in visible}):
        times = [canvas.x(mark.time_ns) for mark in visible if color_of(mark.batch_id) == color]
        canvas.axes.vlines(times, *tick, color=color, linewidth=1.6, zorder=3)
    groups = clusters(visible, NEAR_PT / canvas.points_per_ns)
    placed = _placed(canvas, groups, [spelled(mark.request_id for mark in group) for group in groups])
    if len(placed) < len(groups):  # ranges with gaps between them would puzzle
        placed = _placed(canvas, groups, [spelled([group[0].request_id]) for group in groups])
    for left_ns, text in placed:
        canvas.write(left_ns, text_y, text, color=FAINT_COLOR, ha="left")


def _placed(canvas: Canvas, groups: list[list[Mark]], texts: list[str]) -> list[tuple[float, str]]:
    """Return the texts that do not cover an earlier one, with the times at which they begin."""
    found = []
    free_pt, end_pt = 0.0, canvas.window_ns * canvas.points_per_ns
    for group, text in zip(groups, texts, strict=True):
        width_pt = text_width_pt(text, LABEL_PT)
        middle_pt = (group[0].time_ns - canvas.origin_ns) * canvas.points_per_ns
        left_pt = max(0.0, min(middle_pt - width_pt / 2, end_pt - width_pt))
        if left_pt >= free_pt:
            free_pt = left_pt + width_pt + 4
            found.append((canvas.origin_ns + left_pt / canvas.points_per_ns, text))
    return found


def _subtitle(timeline: Timeline, workload: Workload, canvas: Canvas) -> str:
    summary = measure(timeline, workload).summary
    shares = split_gpu_time(timeline, workload)
    least_ns = max(1.0, SEEN_SHARE * sum(shares.values()))
    parts = [
        f"{counted(len(workload.requests), 'request')}, {counted(summary.num_forwards, 'forward')}",
        f"total {in_ms(summary.total_ns)} ms",
        f"mean TTFT {in_ms(summary.ttft_mean_ns)} ms",
        "GPU " + ", ".join(f"{c.value} {in_ms(ns)} ms" for c in GpuCause if (ns := shares.get(c, 0)) >= least_ns),
    ]
    shown_ns = canvas.window_ns
    if shown_ns < summary.total_ns:
        parts.insert(0, f"the first {in_ms(shown_ns * 200 / 201)} ms of the run")
    return "; ".join(parts)


def _explain(canvas: Canvas, timeline: Timeline, rows: list[Row], names: Mapping[int, BatchName]) -> None:
    shown = [span for row in rows for span in row.spans if canvas.is_visible(span.start_ns, span.end_ns)]
    handles = legend_handles(
        {span.stage for span in shown},
        {span.stage for span in shown if span.end_ns > span.start_ns},
        has_bubbles=any(canvas.is_visible(*each) for each in bubbles(timeline)),
        has_lock_waits=any(canvas.is_visible(wait.start_ns, wait.end_ns) for wait in timeline.lock_waits),
    )
    legend = canvas.figure.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0.005, 0),
        ncols=len(handles),
        frameon=False,
        fontsize=NAME_PT,
    )
    legend.set_zorder(1)
    is_plain = all(name.full == name.short for name in names.values())
    words = "r2 or 2: request 2" if is_plain else "B2 or 2: batch 2; r5: request 5; colors tell batches apart"
    height_pt = canvas.figure.get_figheight() * POINTS_PER_INCH
    canvas.figure.text(
        1 - RIGHT_PT / WIDTH_PT, 38.5 / height_pt, words, ha="right", va="center", fontsize=NAME_PT, color=FAINT_COLOR
    )


def _entitle(canvas: Canvas, title: str, subtitle: str) -> None:
    height_pt = canvas.figure.get_figheight() * POINTS_PER_INCH
    for text, size_pt, below_pt, color in (
        (literal(title), TITLE_PT, 8.0, "#000000"),
        (subtitle, NAME_PT, 26.0, FAINT_COLOR),
    ):
        canvas.figure.text(
            10 / WIDTH_PT,
            1 - below_pt / height_pt,
            shortened(text, WIDTH_PT - 2 * RIGHT_PT, size_pt),
            fontsize=size_pt,
            va="top",
            color=color,
        )
