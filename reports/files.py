"""Reads and writes JSON files so that a bad one is named and a good one is never damaged."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class FileError(ValueError):
    """A file cannot be used; the message names the file, the field and the remedy."""


LARGEST_FILE_BYTES = 64_000_000
"""Larger files are refused before they are read."""
LARGEST_NUMBER = 1e30
"""No metric comes near; NaN and infinities are refused by the same comparison."""
LONGEST_NAME = 80
"""Of a file, in letters, without its suffix."""


def read_object(path: Path, *, remedy: str) -> dict[str, Any]:
    """Read a JSON object in which every number is finite.

    Args:
        path: of the file.
        remedy: what to do about a damaged file, for the message.

    Raises:
        FileError: if the file is missing, too large, truncated, or not an object, or has a number that is not finite.
    """
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE_BYTES:
            raise FileError(
                f"{path}: has {size / 1e6:,.0f} MB; allowed: {LARGEST_FILE_BYTES / 1e6:,.0f} MB, "
                f"of which a whole run takes about one; {remedy}"
            )
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: cannot be read: {error}") from error
    try:
        data = json.loads(text, object_pairs_hook=_refuse_twins)
        undefined = _find_undefined(data, "")
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: not valid JSON: {error}; {remedy}") from error
    if not isinstance(data, dict):
        raise FileError(f"{path}: holds a {type(data).__name__}; expected an object")
    if undefined is not None:
        field, value = undefined
        raise FileError(f"{path}: field {field!r} is {value}; expected a finite number or null; {remedy}")
    return data


def read_json(path: Path, *, schema: int) -> dict[str, Any]:
    """Read an object whose field "schema" is at most `schema`.

    Raises:
        FileError: as `read_object` does, and if the schema is newer.
    """
    data = read_object(path, remedy="restore it from version control")
    require_schema(path, "schema", data.get("schema"), schema)
    return data


def require_schema(path: Path, field: str, found: object, newest: int) -> None:
    """Refuse a schema version that this suite does not know.

    Raises:
        FileError: unless `found` is a whole number from 1 to `newest`.
    """
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise FileError(f"{path}: field {field!r} is {found!r}; expected a whole number of at least 1")
    if found > newest:
        raise FileError(f"{path}: field {field!r} is {found}, newer than {newest}; update this suite to read it")


def _find_undefined(value: object, field: str) -> tuple[str, float] | None:
    """Return the first number that is not finite, with the path of its field."""
    if isinstance(value, float):
        return None if math.isfinite(value) else (field, value)
    if isinstance(value, dict):
        pairs = ((f"{field}.{name}" if field else name, each) for name, each in value.items())
    elif isinstance(value, list):
        pairs = ((f"{field}[{index}]", each) for index, each in enumerate(value))
    else:
        return None
    return next((found for name, each in pairs if (found := _find_undefined(each, name)) is not None), None)


def _refuse_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(n for n in names if names.count(n) > 1)!r} stands twice in one object")
    return found


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write an object atomically.

    Raises:
        FileError: if a value is NaN or infinite, or the folder cannot be written.
    """
    try:
        text = json.dumps(data, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"
    except ValueError as error:
        raise FileError(f"{path}: not written: {error}; undefined values must be null") from error
    write_text(path, text)


def write_text(path: Path, text: str) -> None:
    """Write a text as UTF-8, as `write_bytes` does.

    Raises:
        FileError: if the folder cannot be written.
    """
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically, as `write_chunks` does.

    Raises:
        FileError: if the folder cannot be written, or has no room.
    """
    write_chunks(path, (data,))


def write_chunks(path: Path, chunks: Iterable[bytes]) -> None:
    """Write a file atomically, piece by piece: either the whole new file is there afterwards, or the old one.

    What is no regular file, as a device or a pipe, cannot be replaced and is written to; a symbolic link stays one.

    Raises:
        FileError: if the folder cannot be written, or has no room.
    """
    try:
        _replace(path, chunks)
    except OSError as error:
        raise FileError(f"{path}: not written: {error}; make the folder writable") from error


def _replace(path: Path, chunks: Iterable[bytes]) -> None:
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            file.writelines(chunks)
        return
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(chunks)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:  # Ctrl-C too leaves no half-written file
        os.unlink(temporary)
        raise


def require_writable(folder: Path) -> None:
    """Make a folder, and refuse one that takes no files: before work whose results would be lost.

    Raises:
        FileError: if it cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise FileError(f"{folder}: no file can be written there: {error}; choose another folder") from error


def require_writable_file(path: Path) -> None:
    """Refuse a path that `write_bytes` could not write: before work whose result would be lost.

    Raises:
        FileError: if it is a folder, or cannot be written.
    """
    try:
        is_replaced = path.is_file() or not path.exists()
        if not is_replaced and (path.is_dir() or not os.access(path, os.W_OK)):
            raise FileError(f"{path}: cannot be written; choose another file")
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error}; choose another file") from error
    if is_replaced:
        require_writable(Path(os.path.realpath(path)).parent)


def safe_name(name: str) -> str:
    """Return a file name for any text: letters, digits, '.', '_' and '-', inside the folder, not hidden.

    A name that has to be changed for it gets a digest, so that different names never share a file.
    """
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:LONGEST_NAME]
    if safe == name and name:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{safe or 'unnamed'}-{digest}"


def require_number(path: Path, field: str, value: object) -> float | None:
    """Return a metric read from a file: a finite number or None.

    Raises:
        FileError: for anything else.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= LARGEST_NUMBER:
        raise FileError(f"{path}: field {field!r} is {value!r}; expected a finite number or null")
    return value
