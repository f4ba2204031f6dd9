"""`python -m reports explain`: where the time of a TTFT went, and why one scheduler's differs from another's."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from impl.errors import DeviceUnavailable, RunFailed, SettingError
from impl.experiment import Result
from impl.schedulers import load_users
from reports.arguments import positive
from reports.cases import Experiment, require_new_names
from reports.explanation import Explained, cause_table, explain, sentence, step_table
from reports.files import FileError, require_writable
from reports.lab import MACHINES, Lab
from reports.pictures import require_pictures
from reports.tools import missing_tools
from reports.white_box.batch_sizes import draw_batch_sizes
from reports.white_box.saving import save
from reports.white_box.timeline import draw_timeline
from reports.white_box.waterfall import draw_waterfall

HELP = "run an experiment and say where every millisecond of TTFT went"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument("experiment", help="its id, as 'saturated'; a wrong one lists them")
    parser.add_argument(
        "schedulers",
        nargs="*",
        help="of the experiment; the first one is compared with (default: its reference and all)",
    )
    parser.add_argument(
        "--scheduler", action="append", default=[], metavar="PACKAGE.MODULE:NAME", help="explain your own (repeatable)"
    )
    parser.add_argument(
        "--request",
        type=int,
        action="append",
        default=[],
        metavar="ID",
        help="show the article's six steps of a request, the first one being 0 (repeatable)",
    )
    parser.add_argument("--device", choices=tuple(MACHINES), default="virtual", help="default: %(default)s")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="draw timelines, waterfalls and batch sizes (needs matplotlib)"
    )
    parser.add_argument(
        "--until-ms",
        type=positive,
        metavar="MS",
        help="draw only the first MS milliseconds of timelines and batch sizes",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run, print the table and a sentence for each scheduler.

    Raises:
        FileError: for an unknown experiment or scheduler, or if the device cannot be used or a run fails.
    """
    if arguments.output is not None:  # before the run, not after it
        require_pictures()
        require_writable(arguments.output)
    experiment = find_experiment(arguments.experiment)
    try:
        users = load_users(arguments.scheduler)
        require_new_names(experiment, users)
    except SettingError as error:
        raise FileError(str(error)) from error
    if users and not experiment.is_open_to_users:
        raise FileError(f"--scheduler: experiment {experiment.id!r} compares given schedulers and takes no other")
    known = {**experiment.schedulers, **users}
    names = list(dict.fromkeys([*arguments.schedulers, *users] if arguments.schedulers else known))
    if arguments.until_ms is not None and arguments.output is None:
        raise FileError("--until-ms cuts pictures: say where to draw them, with -o DIR")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise FileError(
            f"experiment {experiment.id!r} has no scheduler {unknown[0]!r}; it has {', '.join(known)} "
            "(--scheduler package.module:name adds yours)"
        )
    for request in arguments.request:
        num_requests = len(experiment.scenario.workload.requests)
        if not 0 <= request < num_requests:
            raise FileError(f"--request {request}: {experiment.id} has requests 0 to {num_requests - 1}")
    chosen = replace(experiment, schedulers={name: known[name] for name in names}, is_open_to_users=False)
    try:
        with closing(Lab({}, lambda text: print(text, file=sys.stderr))) as lab:
            rounds = lab.rounds(chosen, arguments.device)
        for failure in filter(None, map(rounds.failure, names)):
            print(failure, file=sys.stderr)
        found = [explain(name, rounds.of(name), list(filter(None, rounds.states.get(name, [])))) for name in names]
    except (DeviceUnavailable, RunFailed) as error:
        raise FileError(f"{experiment.id} on {arguments.device}: {error}") from error
    last = {name: rounds.of(name)[-1] for name in names}
    width = shutil.get_terminal_size().columns
    print(cause_table(found, width=width).rstrip())
    for request in arguments.request:
        print(step_table(last, request, width=width).rstrip())
    for each in found:
        print(f"{each.name}: {each.diagnosis}")
    for each in found[1:]:
        print(sentence(found[0], each))
    for note in (*rounds.left_out, *missing_tools({arguments.device}, wants_cupti=False)):
        print(note, file=sys.stderr)
    if arguments.output is not None:
        until_ns = None if arguments.until_ms is None else arguments.until_ms * 1_000_000
        for path in draw_all(experiment.id, arguments.device, found, last, arguments.output, until_ns):
            print(path)
    return 0


def draw_all(
    experiment: str,
    device: str,
    found: Sequence[Explained],
    runs: Mapping[str, Result],
    folder: Path,
    until_ns: int | None,
) -> Iterator[Path]:
    """Draw the last round of each scheduler, and what makes each one's TTFT differ from the first's.

    Yields:
        The files written.
    """
    for name, result in runs.items():
        title = f"{experiment}: {name} ({device})"
        figure = draw_timeline(result.timeline, result.scenario.workload, title=title, until_ns=until_ns)
        yield from save(figure, folder, f"{experiment}-{name}-{device}")
    first = found[0]
    for each in found[1:]:
        title = f"{experiment}: mean TTFT, {first.name} and {each.name} ({device})"
        figure = draw_waterfall(first.parts, each.parts, names=(first.name, each.name), title=title)
        yield from save(figure, folder, f"{experiment}-{first.name}-{each.name}-{device}")
    metrics = {name: result.metrics for name, result in runs.items()}
    figure = draw_batch_sizes(metrics, title=f"{experiment}: batch sizes ({device})", until_ns=until_ns)
    yield from save(figure, folder, f"{experiment}-batches-{device}")


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
