"""What the commands that decide share: their options, their output, their exit codes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reports.files import require_writable_file, write_json, write_text
from reports.regression.comparison import Comparison, Exit
from reports.regression.views import SCHEMA, to_json, to_markdown, to_text

EXIT_CODES = (
    "exit codes: 0 nothing worse, and the data could have shown it; 1 a regression, or cases changed; "
    "2 unusable input; 3 undecided, or nothing compared"
)


def add_decision_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = EXIT_CODES
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the comment for a pull request")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything for machines")
    parser.add_argument("--rules", type=Path, metavar="FILE", help="thresholds (default: perf/gate.toml)")
    parser.add_argument(
        "--allow-changed-cases", action="store_true", help="do not fail for new, missing or renamed cases"
    )


def require_outputs(arguments: argparse.Namespace) -> None:
    """Refuse files that cannot be written: before anything is measured.

    Raises:
        FileError: naming the file.
    """
    for path in (arguments.markdown, arguments.json):
        if path:
            require_writable_file(path)


def show(found: Comparison, arguments: argparse.Namespace) -> Exit:
    """Print a comparison, write its files, and return the exit code.

    Raises:
        FileError: if a file cannot be written.
    """
    allow = arguments.allow_changed_cases
    print(to_text(found, allow_changed_cases=allow))
    if arguments.markdown:
        write_text(arguments.markdown, to_markdown(found, allow_changed_cases=allow))
    if arguments.json:
        write_json(arguments.json, to_json(found, allow_changed_cases=allow))
    return found.exit_code(allow_changed_cases=allow)


def show_failure(error: Exception, code: Exit, arguments: argparse.Namespace) -> Exit:
    """Print why there is no comparison, write that into the files in place of older results, and return the exit code.

    Raises:
        FileError: if a file cannot be written.
    """
    print(error, file=sys.stderr)
    if arguments.markdown:
        write_text(arguments.markdown, f"### Overlap scheduling: {code.name}\n\n`{error}`\n")
    if arguments.json:
        told = {"schema": SCHEMA, "result": code.name, "exit_code": int(code), "sentence": str(error), "rows": []}
        write_json(arguments.json, told)
    return code
