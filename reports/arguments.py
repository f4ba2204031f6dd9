"""Types of command-line arguments, for pytest's options and for the commands."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """Return a whole number of at least 1.

    Raises:
        ArgumentTypeError: for anything else.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}; expected a whole number of at least 1")
    return int(text)
