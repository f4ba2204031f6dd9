"""Draws how large the batches were over a run, and how long the queue, for several schedulers above each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from impl.checks import require_whole
from impl.errors import SettingError
from impl.metrics import ForwardMetrics, Metrics
from reports.bar_styles import BATCH_COLORS, mixed
from reports.white_box.style import (
    FAINT_COLOR,
    GRID_COLOR,
    LABEL_PT,
    POINTS_PER_INCH,
    SMALL_PT,
    literal,
    new_figure,
    shortened,
    styled,
    text_width_pt,
)
from reports.wording import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN, PANEL_IN, HEADING_IN, ABOVE_IN, BELOW_IN = 12.0, 1.25, 0.3, 0.32, 0.8
LEFT_IN, RIGHT_IN = 0.7, 0.25
NAME_PT, TITLE_PT = 9.0, 12.0
BAR_COLOR, QUEUE_COLOR = BATCH_COLORS[4], BATCH_COLORS[3]


def draw_batch_sizes(runs: Mapping[str, Metrics], *, title: str, until_ns: int | None = None) -> Figure:
    """Draw the size of each forward over its time, with the length of the queue; one panel a run, axes shared.

    Args:
        runs: by name, which is shown literally.
        title: shown literally.
        until_ns: end of the picture, in nanoseconds from the start of the runs; by default the end of the longest.

    Raises:
        FileError: without matplotlib.
        SettingError: without runs, or if `until_ns` is not a positive whole number.
    """
    if not runs:
        raise SettingError("batch sizes of 0 runs; allowed: one or more")
    if until_ns is not None:
        require_whole("until_ns", until_ns, at_least=1, unit="nanoseconds")
    end_ns = max(
        1, *(run.summary.total_ns for run in runs.values()), *(run.forwards[-1].end_ns for run in runs.values())
    )
    window_ns = min(end_ns, until_ns or end_ns)
    with styled():
        height_in = ABOVE_IN + len(runs) * (PANEL_IN + HEADING_IN) + BELOW_IN
        figure = new_figure(WIDTH_IN, height_in)
        queues = {name: queue_lengths(run) for name, run in runs.items()}
        highest = max(
            *(forward.size for run in runs.values() for forward in run.forwards),
            *(length for queue in queues.values() for _, length in queue),
        )
        for index, (name, run) in enumerate(runs.items()):
            bottom_in = height_in - ABOVE_IN - (index + 1) * (PANEL_IN + HEADING_IN)
            width_in = WIDTH_IN - LEFT_IN - RIGHT_IN
            axes = figure.add_axes(
                (LEFT_IN / WIDTH_IN, bottom_in / height_in, width_in / WIDTH_IN, PANEL_IN / height_in)
            )
            axes.set_xlim(0, window_ns / 1e6)
            axes.set_ylim(0, 1.2 * highest)
            points_per_ns = width_in * POINTS_PER_INCH / window_ns
            _draw_panel(axes, name, run, queues[name], points_per_ns, is_last=index == len(runs) - 1)
        shown = shortened(literal(title), (WIDTH_IN - 0.5) * POINTS_PER_INCH, TITLE_PT)
        figure.text(LEFT_IN / 4 / WIDTH_IN, 1 - 0.1 / height_in, shown, fontsize=TITLE_PT, va="top")
        _explain(figure)
        return figure


def queue_lengths(run: Metrics) -> list[tuple[int, int]]:
    """Return times, in nanoseconds from the start, with the number of requests that had arrived and were not taken.

    The first time is 0; a length holds until the next time. What arrives at the moment when a batch is taken was in
    the queue first: no batch is larger than the queue that it came from.
    """
    changes = [(request.arrival_ns, 0, 1) for request in run.requests]
    changes += [(request.arrival_ns + request.queue_wait_ns, 1, -1) for request in run.requests]
    found, length = [(0, 0)], 0
    for (time_ns, _), group in groupby(sorted(changes), key=lambda change: change[:2]):
        length += sum(change for _, _, change in group)
        found.append((time_ns, length))
    return found


def _draw_panel(
    axes: Axes, name: str, run: Metrics, queue: Sequence[tuple[int, int]], points_per_ns: float, *, is_last: bool
) -> None:
    from matplotlib.ticker import MaxNLocator

    _draw_forwards(axes, run.forwards, points_per_ns)
    times_ms = [time_ns / 1e6 for time_ns, _ in queue]
    end_ms = max(run.summary.total_ns / 1e6, times_ms[-1])
    lengths = [length for _, length in queue]
    axes.step([*times_ms, end_ms], [*lengths, lengths[-1]], where="post", color=QUEUE_COLOR, linewidth=0.8, zorder=4)
    caption = (
        f"  {counted(run.summary.num_forwards, 'forward')}, "
        f"{run.summary.batch_size_mean:.3g} requests each on average; "
        f"queue at most {max(lengths)}; total {run.summary.total_ns / 1e6:,.0f} ms"
    )
    room_pt = (WIDTH_IN - LEFT_IN - RIGHT_IN) * POINTS_PER_INCH - text_width_pt(caption, NAME_PT) - 8
    shown = shortened(literal(name), room_pt / 1.15, NAME_PT)  # bold letters are wider
    axes.set_title(shown, fontsize=NAME_PT, loc="left", fontweight="bold", pad=4)
    axes.set_title(caption, fontsize=NAME_PT, loc="right", color=FAINT_COLOR, pad=4)
    axes.set_ylabel("requests")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    axes.xaxis.set_major_formatter("{x:,.6g}")
    axes.grid(axis="y", color=GRID_COLOR, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="x", labelbottom=is_last)
    if is_last:
        axes.set_xlabel("time since the start of the run (ms)")


def _draw_forwards(axes: Axes, forwards: Sequence[ForwardMetrics], points_per_ns: float) -> None:
    from matplotlib.collections import PolyCollection

    corners = []
    for forward in forwards:
        left, right = forward.start_ns / 1e6, forward.end_ns / 1e6
        corners.append([(left, 0), (right, 0), (right, forward.size), (left, forward.size)])
    bars = PolyCollection(
        corners, facecolors=BAR_COLOR, edgecolors=mixed(BAR_COLOR, "#000000", 0.45), linewidths=0.5, zorder=3
    )
    bars.set_label("forwards")
    axes.add_collection(bars, autolim=False)
    _write_sizes(axes, forwards, points_per_ns)


def _write_sizes(axes: Axes, forwards: Sequence[ForwardMetrics], points_per_ns: float) -> None:
    """Write sizes into the bars, or above those that are too low; small where some would not fit otherwise."""
    narrowest_ns = min(forward.end_ns - forward.start_ns for forward in forwards)
    widest_pt = max(text_width_pt(str(forward.size), LABEL_PT) for forward in forwards)
    size_pt = LABEL_PT if widest_pt + 2 <= narrowest_ns * points_per_ns else SMALL_PT
    points_per_request = PANEL_IN * POINTS_PER_INCH / axes.get_ylim()[1]
    for forward in forwards:
        if text_width_pt(str(forward.size), size_pt) + 1 > (forward.end_ns - forward.start_ns) * points_per_ns:
            continue
        is_inside = forward.size * points_per_request >= LABEL_PT + 4
        axes.annotate(
            str(forward.size),
            ((forward.start_ns + forward.end_ns) / 2e6, 0 if is_inside else forward.size),
            xytext=(0, 2.5),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=size_pt,
            bbox={"facecolor": BAR_COLOR if is_inside else "#ffffff", "edgecolor": "none", "pad": 0.5},
            zorder=5,
            annotation_clip=True,
        )


def _explain(figure: Figure) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Patch(
            facecolor=BAR_COLOR,
            edgecolor=mixed(BAR_COLOR, "#000000", 0.45),
            label="requests in a forward, over its time",
        ),
        Line2D([], [], color=QUEUE_COLOR, linewidth=1.0, label="queue: arrived, not yet taken"),
    ]
    figure.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0.005, 0), ncols=2, frameon=False, fontsize=NAME_PT
    )
