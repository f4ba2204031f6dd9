"""Reads and writes JSON files so that a bad one is named and a good one is never damaged."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any


class FileError(ValueError):
    """A file cannot be used; the message names the file, the field and the remedy."""


LARGEST_NUMBER = 1e30
"""No metric comes near; NaN and infinities are refused by the same comparison."""


def read_json(path: Path, *, schema: int) -> dict[str, Any]:
    """Read an object whose field "schema" is at most `schema`.

    Raises:
        FileError: if the file is missing, truncated, not an object, or of a newer schema.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: cannot be read: {error}") from error
    try:
        data = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_twins)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: not valid JSON: {error}; restore it from version control") from error
    if not isinstance(data, dict):
        raise FileError(f"{path}: holds a {type(data).__name__}; expected an object with the field 'schema'")
    found = data.get("schema")
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise FileError(f"{path}: field 'schema' is {found!r}; expected a whole number of at least 1")
    if found > schema:
        raise FileError(f"{path}: field 'schema' is {found}, newer than {schema}; update this suite to read it")
    return data


def _refuse_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(n for n in names if names.count(n) > 1)!r} stands twice in one object")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number that JSON knows")


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write an object atomically: either the whole new file is there afterwards, or the old one.

    Raises:
        FileError: if a value is NaN or infinite, or the folder cannot be written.
    """
    try:
        text = json.dumps(data, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"
    except ValueError as error:
        raise FileError(f"{path}: not written: {error}; undefined values must be null") from error
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise FileError(f"{path}: not written: {error}; make the folder writable") from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


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
