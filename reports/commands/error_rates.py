"""`python -m reports error-rates`: what the gate's verdicts are worth on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from reports.arguments import positive
from reports.regression.error_rates import Outcomes, of_plan, read_pairs, resample
from reports.regression.rules import PATH, read_rules

HELP = "false alarms and power of the gate, resampled from the pairs that gates of one commit against itself left"
REGRESSIONS = (0.0, 0.02, 0.05)
LIMIT = 0.02
SEED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="output folders of gate --base HEAD")
    parser.add_argument(
        "--gates", type=positive, default=1000, metavar="N", help="resampled gates (default: %(default)s)"
    )
    parser.add_argument("--rules", type=Path, metavar="FILE", default=PATH, help="thresholds (default: perf/gate.toml)")


def run(arguments: argparse.Namespace) -> int:
    """Print the table as Markdown.

    Raises:
        FileError: if the folders do not hold enough pairs of one commit.
    """
    rules = read_rules(arguments.rules)
    pairs = read_pairs(arguments.folders)
    device = next(iter(pairs[0][0].cases)).device
    plan = rules.plan(device)
    pairs = of_plan(pairs, plan)
    found: list[tuple[float, Outcomes]] = []
    with Progress(console=Console(stderr=True)) as progress:
        for worse_by in REGRESSIONS:
            gates = range(arguments.gates)
            seen = progress.track(gates, description=f"regression of {worse_by:.0%}")
            outcomes = resample(pairs, rules, plan, seen, seed=SEED, worse_by=worse_by, limit=LIMIT)
            found.append((worse_by, outcomes))
    print(f"{len(pairs)} pairs of {len(pairs[0][0].cases)} cases on {device}; looks after {list(plan.pairs)} pairs\n")
    print(f"| in head | gate: REGRESSION | gate: UNDECIDED | `--benchmark-compare-fail=mean:{LIMIT:.0%}`, one pair |")
    print("| --- | --- | --- | --- |")
    for worse_by, outcomes in found:
        planted = f"one case's times {worse_by:.0%} longer" if worse_by else "no change"
        print(f"| {planted} | {outcomes.regression} | {outcomes.undecided} | {outcomes.limit} |")
    return 0
