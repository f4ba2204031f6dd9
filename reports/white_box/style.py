"""Colors, texts and figures as the pictures of runs show them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

from reports.pictures import require_pictures, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS_PER_INCH = 72
WORSE_COLOR, BETTER_COLOR = "#d55e00", "#0072b2"
TOTAL_COLOR = "#7f7f7f"
GRID_COLOR = "#e2e2e2"
FAINT_COLOR = "#595959"
LABEL_PT = 8.0
"""Size of a name or number beside what it explains."""
SMALL_PT = 6.5
"""Size of a number in a narrow bar."""
FALLBACK_FAMILIES = ("Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Zen Hei", "Noto Emoji")
"""Asked, where they are installed, for what the usual font lacks."""


@contextmanager
def styled() -> Iterator[None]:
    """Draw and save in the suite's style.

    Raises:
        FileError: without matplotlib.
    """
    require_pictures()
    import matplotlib

    with style("white box"):
        matplotlib.rcParams["font.family"] = list(families())
        yield


def new_figure(width_in: float, height_in: float) -> Figure:
    """Return an empty figure, in inches, that no window shows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in))
    FigureCanvasAgg(figure)
    return figure


@lru_cache(maxsize=4096)
def text_width_pt(text: str, size_pt: float) -> float:
    """Return how wide a text is, in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family=list(families()), size=size_pt)
    return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0])


def shortened(text: str, width_pt: float, size_pt: float) -> str:
    """Cut a text that is wider than a number of points, and say so with an ellipsis."""
    longest = int(width_pt)  # no letter is narrower than a point
    if len(text) <= longest and text_width_pt(text, size_pt) <= width_pt:
        return text
    lengths = range(1, min(len(text), longest) + 1)
    length = bisect_right(lengths, width_pt, key=lambda length: text_width_pt(text[:length] + "…", size_pt))
    return text[:length] + "…"


def literal(text: str) -> str:
    """Return a name as it is shown: what no font here can draw is written as Python would escape it.

    Empty boxes would make different names look alike, and an SVG must not hold control characters at all.
    """
    return "".join(char if char.isprintable() and _has_glyph(char) else repr_of(char) for char in text)


def repr_of(char: str) -> str:
    """Return a character's escape."""
    return char.encode("unicode_escape").decode("ascii")


@lru_cache(maxsize=1)
def families() -> tuple[str, ...]:
    """Return the fonts to ask, in order."""
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return ("DejaVu Sans", *(name for name in FALLBACK_FAMILIES if name in installed))


@lru_cache(maxsize=4096)
def _has_glyph(char: str) -> bool:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return any(get_font(findfont(FontProperties(family=name))).get_char_index(ord(char)) for name in families())
