"""How bars look wherever a run is drawn: the color is the batch's, lightness and hatch are the stage's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from impl.timeline import COPY, FORWARD, LAUNCH, POST, PRE, SYNCHRONIZE
from reports.rows import Kind

BATCH_COLORS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7")
"""Of Okabe and Ito's palette, which colour-blind readers can tell; neighbours differ in lightness too."""
LEGEND_COLOR = "#8c8c8c"
KIND_WORDS = {Kind.THREAD: "thread", Kind.STREAM: "stream", Kind.COPIES: "GPU"}
BUBBLE, BUBBLE_MEANING = "bubble", "no forward runs"
BUBBLE_LEGEND = f"{BUBBLE} (ms): {BUBBLE_MEANING}"


@dataclass(frozen=True, slots=True)
class BarStyle:
    """How a stage's bars look: a share of white (or black) in the batch's color, a hatch, a share of the height."""

    word: str
    white: float = 0.0
    black: float = 0.0
    hatch: str | None = None
    height: float = 1.0
    is_gray: bool = False
    has_label: bool = True

    def face(self, color: str) -> str:
        """Return the color of a bar's inside."""
        return "#ffffff" if self.is_gray else mixed(mixed(color, "#ffffff", self.white), "#000000", self.black)

    def edge(self, color: str) -> str:
        """Return the color of a bar's outline and hatch."""
        return LEGEND_COLOR if self.is_gray else mixed(color, "#000000", 0.25 if self.white else 0.45)


BAR_STYLES: Mapping[str, BarStyle] = {
    PRE: BarStyle("pre", white=0.62),
    LAUNCH: BarStyle("launch", black=0.5),
    FORWARD: BarStyle("forward"),
    COPY: BarStyle("copy", white=0.62, hatch="----"),
    POST: BarStyle("post", white=0.62, hatch="////"),
    SYNCHRONIZE: BarStyle("waits for the GPU", hatch="\\\\\\\\", height=0.3, is_gray=True, has_label=False),
}
INSTANTS = (PRE, LAUNCH, FORWARD, POST)
"""Drawn as a line if they take no time; a copy or a wait without time did not happen."""


def color_of(batch_id: int) -> str:
    """Return a batch's color; they come round again."""
    return BATCH_COLORS[batch_id % len(BATCH_COLORS)]


def mixed(color: str, other: str, share: float) -> str:
    """Return a color, as "#0072b2", with a share, from 0 to 1, of another one in it."""
    pairs = zip(_channels(color), _channels(other), strict=True)
    return "#" + "".join(f"{round((1 - share) * a + share * b):02x}" for a, b in pairs)


def text_color(background: str) -> str:
    """Return black or white, whichever reads better."""
    red, green, blue = _channels(background)
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.45 * 255 else "#ffffff"


def _channels(color: str) -> bytes:
    return bytes.fromhex(color[1:])


def in_ms(time_ns: float) -> str:
    """Write a time, given in nanoseconds, in milliseconds with three digits; whole milliseconds from one second on."""
    time_ms = time_ns / 1e6
    return f"{time_ms:,.0f}" if abs(time_ms) >= 999.5 else f"{time_ms:.3g}"
