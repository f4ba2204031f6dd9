"""Writes a picture as PNG and SVG, the same bytes for the same picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reports.files import safe_name, write_bytes
from reports.pictures import to_bytes
from reports.white_box.style import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PNG_DPI = 150


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a picture atomically, once as PNG and once as SVG.

    Args:
        figure: the picture.
        folder: made if it is missing.
        name: of the files, without suffix; made safe by `safe_name`.

    Returns:
        The files.

    Raises:
        FileError: without matplotlib, or if the folder cannot be written.
    """
    with styled():
        files = to_bytes(figure, dpi=PNG_DPI)
    paths = []
    for suffix, data in files.items():
        path = folder / f"{safe_name(name)}.{suffix}"
        write_bytes(path, data)
        paths.append(path)
    return paths
