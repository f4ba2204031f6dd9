"""Small phrases that several reports share."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
