"""Checks of settings, so that every refusal shows the value, its unit and what is allowed."""

from __future__ import annotations

import math

from impl.errors import SettingError


def require_whole(name: str, value: object, *, at_least: int, unit: str) -> int:
    """Return `value` if it is a whole number of at least `at_least`.

    Raises:
        SettingError: for other types (bool included), fractions, NaN and smaller values.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise SettingError(f"{name} is {value!r}; allowed: a whole number of {unit}, at least {at_least}")
    return value


SMALLEST, LARGEST = 1e-6, 1e9
"""Bounds of rates and factors: beyond them nanoseconds overflow, and nobody measures there."""


def require_positive(name: str, value: object, *, unit: str) -> float:
    """Return `value` as a float if it is a number between `SMALLEST` and `LARGEST`.

    Raises:
        SettingError: for other types, NaN, infinities, zero, negative and extreme values.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise SettingError(f"{name} is {value!r}; allowed: a finite number of {unit} above 0")
    if not SMALLEST <= value <= LARGEST:
        raise SettingError(f"{name} is {value!r} {unit}; allowed: from {SMALLEST:g} to {LARGEST:g}")
    return float(value)


def nanoseconds(name: str, milliseconds: float) -> int:
    """Return a duration given in milliseconds as whole nanoseconds.

    Raises:
        SettingError: for NaN, infinities and negative values.
    """
    number = isinstance(milliseconds, (int, float)) and not isinstance(milliseconds, bool)
    if not number or not math.isfinite(milliseconds) or milliseconds < 0:
        raise SettingError(f"{name} is {milliseconds!r} ms; allowed: a finite number of milliseconds, 0 or more")
    return round(milliseconds * 1e6)
