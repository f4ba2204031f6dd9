"""`python -m reports explain`: where the time of a TTFT went, and why one scheduler's differs from another's."""

from __future__ import annotations

import argparse
import shutil
import sys

from impl.errors import DeviceUnavailable, RunFailed
from reports.explanation import cause_table, explain, sentence
from reports.files import FileError
from reports.lab import MACHINES, Lab
from reports.measure import Experiment

HELP = "run an experiment and say where every millisecond of TTFT went"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument("experiment", help="its id, as 'saturated'; a wrong one lists them")
    parser.add_argument(
        "schedulers",
        nargs="*",
        help="of the experiment; the first one is compared with (default: its reference and all)",
    )
    parser.add_argument("--device", choices=tuple(MACHINES), default="virtual", help="default: %(default)s")


def run(arguments: argparse.Namespace) -> int:
    """Run, print the table and a sentence for each scheduler.

    Raises:
        FileError: for an unknown experiment or scheduler, or if the device cannot be used or a run fails.
    """
    experiment = find_experiment(arguments.experiment)
    names = arguments.schedulers or list(experiment.schedulers)
    unknown = [name for name in names if name not in experiment.schedulers]
    if unknown:
        raise FileError(
            f"experiment {experiment.id!r} has no scheduler {unknown[0]!r}; it has {', '.join(experiment.schedulers)}"
        )
    try:
        rounds = Lab({}, lambda text: print(text, file=sys.stderr)).rounds(experiment, arguments.device)
        found = [explain(name, rounds.of(name)) for name in names]
    except (DeviceUnavailable, RunFailed) as error:
        raise FileError(f"{experiment.id} on {arguments.device}: {error}") from error
    print(cause_table(found, width=max(100, shutil.get_terminal_size().columns)).rstrip())
    for each in found[1:]:
        print(sentence(found[0], each))
    return 0


def find_experiment(name: str) -> Experiment:
    """Return an experiment of the suite.

    Raises:
        FileError: listing them, if there is none of that id.
    """
    from perf.experiments import EXPERIMENTS  # the suite's cases stand on reports, and only here the other way round

    by_id = {experiment.id: experiment for experiment in EXPERIMENTS}
    if name not in by_id:
        raise FileError(f"no experiment {name!r}; there are: {', '.join(by_id)}")
    return by_id[name]
