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
from reports.lab import Lab
from reports.trace import write_trace

MARK = "profiler"
"""Of tests that start CUPTI themselves."""


class Profiles:
    """Registered as a plugin of its own; profiles what it was given once all tests have run.

    Args:
        note: takes a line for the session's summary.
        fail: takes one that makes the session end as failed; what was measured is written all the same.
        progress: called with a line of text before each case.
    """

    def __init__(
        self, note: Callable[[str], None], fail: Callable[[str], None], progress: Callable[[str], None]
    ) -> None:
        self._note = note
        self._fail = fail
        self._progress = progress
        self._waiting: list[tuple[Case, Lab, Path]] = []

    def add(self, case: Case, lab: Lab, path: Path) -> None:
        """Take a case, and the path of the suite's own trace; the profiler's goes beside it."""
        self._waiting.append((case, lab, path))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put tests that start CUPTI last, before --sw leaves out what stands before a failure."""
        items.sort(key=_starts_cupti)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Put them last again: --ff and --nf order the tests after every other hook."""
        session.items.sort(key=_starts_cupti)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Iterator[None]:
        """Profile after the loop; one that ends early, by Ctrl-C or -x, profiles nothing, and says so."""
        try:
            outcome = yield
        except BaseException:  # Ctrl-C and -x come as such; it goes on to pytest
            if self._waiting:
                self._note(f"torch.profiler: no case was profiled, as the session ended early; {self._left(0)}")
            raise
        number = 0
        try:
            for number in range(len(self._waiting)):
                self._profile(number)
        except KeyboardInterrupt:
            self._fail(f"torch.profiler: interrupted; {self._left(number)}")
        return outcome

    def _left(self, number: int) -> str:
        """Name the cases from a number on."""
        return f"without a profile: {', '.join(case.id for case, _, _ in self._waiting[number:])}"

    def _profile(self, number: int) -> None:
        """Run a case, and write the profiler's trace and the suite's own of the same run."""
        case, lab, path = self._waiting[number]
        self._progress(f"torch.profiler: {case.id}, {number + 1} of {len(self._waiting)}")
        scheduler, machine = lab.schedulers(case.experiment)[case.scheduler], lab.machine("cuda")
        profiled = partial(run, scheduler, case.experiment.on(machine), machine)
        try:
            left_out = write_trace(record(profiled, path.with_suffix(".torch.json")).result, path)
        except (RuntimeError, OSError, ValueError) as error:  # of the run, of CUPTI, of the disk, of what was written
            self._fail(f"torch.profiler: {case.id} has no profile: {type(error).__name__}: {error}")
            return
        if left_out:
            self._note(left_out)


def _starts_cupti(item: pytest.Item) -> bool:
    return item.get_closest_marker(MARK) is not None
