"""`python -m reports gate`: two commits against each other on this machine."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from impl.machines import why_no_cuda
from reports.commands.decision import add_decision_arguments, require_outputs, show, show_failure
from reports.files import FileError
from reports.lab import MACHINES
from reports.machine import ROOT
from reports.regression.checkout import require_clean, resolve, worktree
from reports.regression.comparison import Comparison, Exit
from reports.regression.gate import run_gate
from reports.regression.rules import read_rules
from reports.regression.suite import CasesFailed, Suite

HELP = "is HEAD slower than BASE? Measured here and now, base and head alternately"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument("--base", required=True, metavar="REF", help="the commit to compare with, as origin/main")
    parser.add_argument("--head", default="HEAD", metavar="REF", help="the commit to judge (default: HEAD)")
    parser.add_argument("--device", choices=tuple(MACHINES), default="cuda", help="default: %(default)s")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="folder for every process's JSON (default: in reports/out/gate)",
    )
    add_decision_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the gate and return its exit code.

    Raises:
        FileError: for unusable input, and if a side cannot be measured.
    """
    interrupt_on_signals()
    base = resolve(ROOT, "--base", arguments.base)
    head = resolve(ROOT, "--head", arguments.head)
    require_clean(ROOT)
    require_outputs(arguments)
    folder = prepare_folder(arguments.output, base, head)
    try:
        found = measure(base, head, arguments.device, arguments.rules, folder)
    except CasesFailed as error:
        code = Exit.UNUSABLE if error.side == "base" else Exit.REGRESSION
        return show_failure(error, code, arguments)
    code = show(found, arguments)
    say(f"every process's JSON: {folder}")
    return code


def interrupt_on_signals() -> None:
    """Let what ends a CI job or a terminal leave as little behind as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in watched:  # they come in pairs, to a process and to its group: the second must not stop the removal
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    every = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    watched = [each for each in every if signal.getsignal(each) is not signal.SIG_IGN]  # nohup ignores one of them
    for each in watched:
        signal.signal(each, interrupt)


def prepare_folder(wanted: Path | None, base: str, head: str) -> Path:
    """Make the output folder before anything is measured.

    Raises:
        FileError: if it cannot be made, or holds something already.
    """
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    folder = wanted or ROOT / "reports" / "out" / "gate" / f"{now}-{base[:7]}-{head[:7]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_empty = next(folder.iterdir(), None) is None
    except OSError as error:
        raise FileError(f"{folder}: cannot be used for output: {error}; choose another folder with -o") from error
    if not is_empty:
        raise FileError(f"{folder}: is not empty, and results are never overwritten; choose another folder with -o")
    return folder.resolve()


def measure(base: str, head: str, device: str, rules: Path | None, folder: Path) -> Comparison:
    """Check both commits out and compare them; without other rules, by those of the base.

    A commit that loosens its own gate is judged by the old one.
    """
    reason = why_no_cuda() if device == "cuda" else None
    if reason is not None:
        raise FileError(f"no usable CUDA device: {reason} (--device virtual needs none)")
    with ExitStack() as stack:
        # Both in worktrees of equal depth, so that neither side has an advantage of its own, and a change made to the
        # checkout meanwhile is not measured.
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="overlap-gate-"))).resolve()
        suites = [
            Suite(side, commit, stack.enter_context(worktree(ROOT, commit, temporary / side)), device)
            for side, commit in (("base", base), ("head", head))
        ]
        own, judged = (suite.root / "perf" / "gate.toml" for suite in suites)
        if rules is None and own.read_bytes() != judged.read_bytes():
            say("perf/gate.toml differs between base and head: the base's decides")
        return run_gate(suites[0], suites[1], read_rules(rules or own), folder, say)


def say(text: str) -> None:
    """Show progress apart from the result."""
    print(text, file=sys.stderr, flush=True)
