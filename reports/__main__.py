"""`python -m reports`: tables and pages from stored results, and decisions about commits."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

from reports.commands import compare, error_rates, explain, gate, history, html, table
from reports.files import FileError
from reports.regression.comparison import Exit

INTERRUPTED = 130
"""As shells report a process that Ctrl-C ended."""
CUT_OFF = 141
"""As shells report a process whose reader went away."""
COMMANDS = {
    "explain": explain,
    "table": table,
    "compare": compare,
    "gate": gate,
    "error-rates": error_rates,
    "history": history,
    "html": html,
}


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of every command."""
    parser = argparse.ArgumentParser(prog="python -m reports", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in COMMANDS.items():
        command = commands.add_parser(name, help=module.HELP, description=module.HELP)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default this process's own.

    Returns:
        The command's exit code: 2 for unusable input or output, 130 after Ctrl-C.
    """
    parsed = make_parser().parse_args(arguments)
    try:
        code = _run(parsed)
        print(end="", flush=True)
        return code
    except BrokenPipeError:  # as in `python -m reports compare … | head`
        code = CUT_OFF
    except OSError as error:  # as of a full disk behind the output, or a temporary folder that is none
        code = Exit.UNUSABLE
        with suppress(OSError):
            print(f"ended without a result: {error}", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        _let_go(stream)
    return code


def _run(parsed: argparse.Namespace) -> int:
    try:
        return int(parsed.run(parsed))
    except FileError as error:
        print(error, file=sys.stderr)
        return Exit.UNUSABLE
    except KeyboardInterrupt:
        print("interrupted: nothing was decided", file=sys.stderr)
        return INTERRUPTED


def _let_go(stream: TextIO) -> None:
    """Drop what a stream cannot take, or Python tries again at its end and replaces the exit code."""
    try:
        print(end="", file=stream, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    sys.exit(main())
