"""`python -m reports history`: a metric across commits, with the change points marked."""

from __future__ import annotations

import argparse
from pathlib import Path

from reports.files import require_writable, write_bytes
from reports.regression.results import find_runs, read_result
from reports.regression.rules import PATH, read_rules

HELP = "when did a metric change? Stored results of many commits, as tables and pictures"
FOLDER = Path("reports") / "out" / "history"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.epilog = "exit codes: 0 reported, whatever it says; 2 unusable input"
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="a benchmark JSON or the name of a stored run; in any order"
    )
    parser.add_argument(
        "--case",
        metavar="PATTERN",
        action="append",
        default=[],
        help='such as "saturated/*" (repeatable; default: all)',
    )
    parser.add_argument(
        "--metric",
        metavar="NAME",
        action="append",
        help="(repeatable; default: throughput_rps and ttft_mean_ns)",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", default=FOLDER, help="folder of the pictures (default: %(default)s)"
    )
    parser.add_argument("--rules", type=Path, metavar="FILE", default=PATH, help="thresholds (default: perf/gate.toml)")


def run(arguments: argparse.Namespace) -> int:
    """Print the tables, write the pictures, and return 0.

    Raises:
        FileError: for unusable input, a folder that cannot be written, or without matplotlib.
    """
    from reports.pictures import require_pictures
    from reports.regression.history import DEFAULT_METRICS, trace
    from reports.regression.history_figures import draw
    from reports.regression.history_text import to_text

    require_pictures()
    require_writable(arguments.output)
    rules = read_rules(arguments.rules)
    paths = {path.resolve(): path for path in find_runs(arguments.files)}  # a run named twice is one run
    files = [read_result(path) for path in paths.values()]
    found = trace(files, rules, patterns=arguments.case, metrics=arguments.metric or DEFAULT_METRICS)
    print(to_text(found))
    for metric in dict.fromkeys(finding.series.metric for finding in found.findings):
        for suffix, data in draw(found, metric).items():
            path = arguments.output / f"{metric}.{suffix}"
            write_bytes(path, data)
            print(f"wrote {path}")
    return 0
