"""What all pictures share: matplotlib only when needed, one style for every reader, the same bytes every time."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from reports.files import FileError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE: Mapping[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so it is everywhere the same
    "font.size": 9,
    "text.parse_math": False,  # a name may hold a dollar sign
}


def require_pictures() -> None:
    """Refuse to draw without matplotlib.

    Raises:
        FileError: with the remedy.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise FileError('pictures need matplotlib; install it with: pip install -e ".[pictures]"') from error


@contextmanager
def style(salt: str) -> Iterator[None]:
    """Draw and save in the suite's own style, whatever the reader has configured.

    Args:
        salt: of the ids inside an SVG, which would be random without one.
    """
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()  # a reader's own style must not change the picture
        matplotlib.rcParams.update({**STYLE, "svg.hashsalt": salt})
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # of a name
        yield


def to_bytes(figure: Figure, *, dpi: int) -> dict[str, bytes]:
    """Return a figure as files, by suffix: "png" and "svg"; without dates and versions. Call it inside `style`."""
    return {
        "png": _saved(figure, format="png", dpi=dpi, metadata={"Software": None}),
        "svg": _saved(figure, format="svg", metadata={"Date": None, "Creator": None}),
    }


def _saved(figure: Figure, **options: Any) -> bytes:
    target = io.BytesIO()
    figure.savefig(target, **options)
    return target.getvalue()
