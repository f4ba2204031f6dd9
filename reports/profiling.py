"""Runs cases once more on the GPU under torch.profiler, when everything is measured.

Not at once: CUPTI, once it has started, makes every later launch of the process longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from impl.experiment import run
from reports.cases import Case
from reports.cupti import record
from reports.files import FileError
from reports.lab import Lab
from reports.trace import write_trace

MARK = "profiler"
"""Of tests that start CUPTI themselves."""


class Profiles:
    """Registered as a plugin of its own; profiles what it was given once all tests have run.

    Args:
        note: takes a line for the session's summary.
        progress: called with a line of text before each case.
    """

    def __init__(self, note: Callable[[str], None], progress: Callable[[str], None]) -> None:
        self._note = note
        self._progress = progress
        self._waiting: list[tuple[Case, Lab, Path]] = []

    def add(self, case: Case, lab: Lab, path: Path) -> None:
        """Take a case, and the path of the suite's own trace; the profiler's goes beside it."""
        self._waiting.append((case, lab, path))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Put tests that start CUPTI last; here, as --ff and --nf order the tests after every other hook."""
        session.items.sort(key=lambda item: item.get_closest_marker(MARK) is not None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[None]:
        """Profile after the loop; one that ends early, by Ctrl-C or -x, profiles nothing.

        A case that cannot be profiled, or Ctrl-C meanwhile, makes the session fail, and takes nothing from what was
        measured: the summary says which cases lack a profile, and files are written as ever.
        """
        outcome = yield
        try:
            failed = sum([not self._profile(number) for number in range(len(self._waiting))])
        except KeyboardInterrupt:
            failed = 1
            self._note("torch.profiler: interrupted; the cases after the last one told of have no profile")
        session.testsfailed += failed
        return outcome

    def _profile(self, number: int) -> bool:
        """Run a case and write both traces; return whether that went well."""
        case, lab, path = self._waiting[number]
        self._progress(f"torch.profiler: {case.id}, {number + 1} of {len(self._waiting)}")
        scheduler, machine = lab.schedulers(case.experiment)[case.scheduler], lab.machine("cuda")
        profiled = partial(run, scheduler, case.experiment.on(machine), machine)
        try:
            left_out = write_trace(record(profiled, path.with_suffix(".torch.json")).result, path)
        except (RuntimeError, OSError, FileError) as error:  # of the run, of CUPTI, or of the disk
            self._note(f"torch.profiler: {case.id} has no profile: {type(error).__name__}: {error}")
            return False
        if left_out:
            self._note(left_out)
        return True
