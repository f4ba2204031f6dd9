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


def require_positive(name: str, value: object, *, unit: str) -> float:
    """Return `value` as a float if it is a finite number above zero.

    Raises:
        SettingError: for other types, NaN, infinities, zero and negative values.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise SettingError(f"{name} is {value!r}; allowed: a finite number of {unit} above 0")
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
