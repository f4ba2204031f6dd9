"""Axes whose units are known before anything is drawn: nanoseconds across, points down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reports.white_box.style import GRID_COLOR, LABEL_PT, POINTS_PER_INCH, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_PT = 14.0 * POINTS_PER_INCH
RIGHT_PT = 16.0
ABOVE_PT, BELOW_PT = 46.0, 62.0
"""Room for title and subtitle, and for the time axis and the legend."""


@dataclass(frozen=True, slots=True)
class Canvas:
    """Axes in milliseconds since the start of a run and in points from the top."""

    figure: Figure
    axes: Axes
    origin_ns: int
    """The start of the run on its clock."""
    window_ns: int
    """What the axes show, from the origin."""
    points_per_ns: float

    def x(self, time_ns: float) -> float:
        """Return where a time on the run's clock is, in milliseconds."""
        return (time_ns - self.origin_ns) / 1e6

    def is_visible(self, start_ns: int, end_ns: int) -> bool:
        """Tell whether a stretch lies at least partly inside the window."""
        return start_ns <= self.origin_ns + self.window_ns and end_ns >= self.origin_ns

    def width_pt(self, start_ns: int, end_ns: int) -> float:
        """Return how wide the visible part of a stretch is."""
        inside_ns = min(end_ns, self.origin_ns + self.window_ns) - max(start_ns, self.origin_ns)
        return max(0.0, inside_ns * self.points_per_ns)

    def write(self, time_ns: float, y: float, text: str, **options: Any) -> None:
        """Write a text around a place, cut off with the axes."""
        options = {"size": LABEL_PT, "ha": "center", "va": "center_baseline", "clip_on": True, **options}
        self.axes.text(self.x(time_ns), y, text, **options)

    def write_inside(self, start_ns: int, end_ns: int, y: float, text: str, **options: Any) -> None:
        """Write a text into the middle of the visible part of a stretch."""
        middle_ns = (max(start_ns, self.origin_ns) + min(end_ns, self.origin_ns + self.window_ns)) / 2
        self.write(middle_ns, y, text, **options)


def new_canvas(*, left_pt: float, height_pt: float, origin_ns: int, window_ns: int) -> Canvas:
    """Return empty axes.

    Args:
        left_pt: room for the names of rows.
        height_pt: of the axes; y counts from 0 at the top to this.
        origin_ns: the start of the run on its clock.
        window_ns: what the axes show, from the origin.
    """
    window_ns = max(1, window_ns)
    total_pt = ABOVE_PT + height_pt + BELOW_PT
    figure = new_figure(WIDTH_PT / POINTS_PER_INCH, total_pt / POINTS_PER_INCH)
    width_pt = WIDTH_PT - left_pt - RIGHT_PT
    axes = figure.add_axes((left_pt / WIDTH_PT, BELOW_PT / total_pt, width_pt / WIDTH_PT, height_pt / total_pt))
    axes.set_xlim(0, window_ns / 1e6)
    axes.set_ylim(height_pt, 0)
    axes.set_xlabel("time since the start of the run (ms)")
    axes.xaxis.set_major_formatter("{x:,.6g}")
    axes.grid(axis="x", color=GRID_COLOR, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return Canvas(figure, axes, origin_ns, window_ns, width_pt / window_ns)
