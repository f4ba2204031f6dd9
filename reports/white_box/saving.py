"""Writes a picture as PNG and SVG, the same bytes for the same picture."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from reports.files import write_bytes
from reports.pictures import to_bytes
from reports.white_box.style import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PNG_DPI = 150
LONGEST_NAME = 80


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


def safe_name(name: str) -> str:
    """Return a file name for any text: letters, digits, '.', '_' and '-', inside the folder, not hidden.

    A name that has to be changed for it gets a digest, so that different names never share a file.
    """
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:LONGEST_NAME]
    if safe == name and name:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{safe or 'picture'}-{digest}"
