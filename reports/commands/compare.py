"""`python -m reports compare`: two sides of stored results."""

from __future__ import annotations

import argparse

from reports.commands.decision import add_decision_arguments, show
from reports.regression.comparison import compare
from reports.regression.results import read_side
from reports.regression.rules import PATH, read_rules

HELP = "is HEAD slower than BASE? From stored results"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    side = "a benchmark JSON or the name of a stored run; several, separated by commas or as a pattern, are pooled"
    parser.add_argument("base", metavar="BASE", help=f"the old commit's results: {side}")
    parser.add_argument("head", metavar="HEAD", help="the new commit's results")
    parser.add_argument("--across-machines", action="store_true", help="unlike machines: compare ratios to normal only")
    add_decision_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare, print, and return the exit code.

    Raises:
        FileError: for unusable input.
    """
    rules = read_rules(arguments.rules or PATH)
    base, head = read_side("BASE", arguments.base), read_side("HEAD", arguments.head)
    return show(compare(base, head, rules, across_machines=arguments.across_machines), arguments)
