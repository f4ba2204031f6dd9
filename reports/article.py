"""The article's figures, for tables; nothing is compared with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reports.baselines import FOLDER
from reports.files import FileError, read_json, require_number

SCHEMA = 1
PATH = FOLDER / "article.json"


@dataclass(frozen=True, slots=True)
class Article:
    """Figures by claim, and by case ("experiment/scheduler") the ones the article names."""

    claims: dict[str, float]
    cases: dict[str, dict[str, float]]


def read_article() -> Article:
    """Read the article's figures.

    Raises:
        FileError: naming file and field, if it is damaged.
    """
    data = read_json(PATH, schema=SCHEMA)
    claims = {name: _number(f"claims.{name}.value", entry.get("value")) for name, entry in _entries(data, "claims")}
    cases = {
        name: {field: _number(f"cases.{name}.{field}", value) for field, value in entry.items()}
        for name, entry in _entries(data, "cases")
    }
    return Article(claims, cases)


def _entries(data: dict[str, Any], field: str) -> list[tuple[str, dict[str, Any]]]:
    found = data.get(field)
    if not isinstance(found, dict) or not all(isinstance(entry, dict) for entry in found.values()):
        raise FileError(f"{PATH}: field {field!r} is no object of objects; restore it from version control")
    return list(found.items())


def _number(field: str, value: object) -> float:
    number = require_number(PATH, field, value)
    if number is None:
        raise FileError(f"{PATH}: field {field!r} is null; expected a finite number")
    return number
