"""`python -m reports html`: a page to look at, of one side of stored results or of two."""

from __future__ import annotations

import argparse
from pathlib import Path

from reports.commands.compare import split_names
from reports.files import FileError, write_text
from reports.regression.comparison import compare
from reports.regression.machines import require_alike
from reports.regression.results import ResultFile, find_runs, read_result
from reports.regression.rules import PATH, read_rules

HELP = "claims, the article's table, charts and a comparison, as one HTML page that needs no network"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    side = "a benchmark JSON or the name of a stored run; several, separated by commas, are pooled"
    parser.add_argument("result", metavar="RESULT", help=f"the results to show: {side}")
    parser.add_argument("--base", metavar="BASE", help="the old commit's results, to compare with")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", required=True, help="write DIR/index.html")
    parser.add_argument("--rules", type=Path, metavar="FILE", default=PATH, help="thresholds (default: perf/gate.toml)")
    parser.add_argument("--across-machines", action="store_true", help="unlike machines: compare ratios to normal only")


def run(arguments: argparse.Namespace) -> int:
    """Write the page; a regression on it is no failure of this command.

    Raises:
        FileError: for unusable input, a missing library, or a folder that cannot be written.
    """
    from reports.page.page import render  # here, as it reads what other commands never need

    head = _read(arguments.result)
    base = [] if arguments.base is None else _read(arguments.base)
    if not arguments.across_machines:
        require_alike(head)
    rules = read_rules(arguments.rules)
    found = compare(base, head, rules, across_machines=arguments.across_machines) if base else None
    text = render(head, base, found)
    path = arguments.output / "index.html"
    try:
        write_text(path, text)
    except OSError as error:
        raise FileError(f"{path}: not written: {error}") from error
    print(path)
    return 0


def _read(side: str) -> list[ResultFile]:
    names = split_names(side)
    if not names:
        raise FileError(f"{side!r} names no result; give a benchmark JSON or the name of a stored run")
    return [read_result(path) for path in find_runs(names)]
