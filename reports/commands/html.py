"""`python -m reports html`: a page to look at, of one side of stored results or of two."""

from __future__ import annotations

import argparse
from pathlib import Path

from reports.files import write_text
from reports.regression.comparison import compare
from reports.regression.machines import require_alike
from reports.regression.results import read_side
from reports.regression.rules import PATH, read_rules

HELP = "claims, the article's table, charts, timelines and a comparison, as one HTML page that needs no network"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    side = "a benchmark JSON or the name of a stored run; several, separated by commas or as a pattern, are pooled"
    parser.add_argument("result", metavar="RESULT", help=f"the results to show: {side}")
    parser.add_argument("--base", metavar="BASE", help="the old commit's results, to compare with")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", required=True, help="write DIR/index.html")
    parser.add_argument(
        "--trace-dir",
        type=Path,
        metavar="DIR",
        help="draw the traces that pytest perf --trace-dir DIR wrote for RESULT",
    )
    parser.add_argument("--rules", type=Path, metavar="FILE", default=PATH, help="thresholds (default: perf/gate.toml)")
    parser.add_argument("--across-machines", action="store_true", help="unlike machines: compare ratios to normal only")


def run(arguments: argparse.Namespace) -> int:
    """Write the page; a regression on it is no failure of this command.

    Raises:
        FileError: for unusable input, a missing library, or a folder that cannot be written.
    """
    from reports.page.page import render  # here, as it reads what other commands never need

    head = read_side("RESULT", arguments.result)
    base = [] if arguments.base is None else read_side("--base", arguments.base)
    if not arguments.across_machines:
        require_alike(head)
    rules = read_rules(arguments.rules)
    found = compare(base, head, rules, across_machines=arguments.across_machines) if base else None
    text = render(head, base, found, arguments.trace_dir)
    path = arguments.output / "index.html"
    write_text(path, text)
    print(path)
    return 0
