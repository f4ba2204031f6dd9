"""Runs cases once more on the GPU under torch.profiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from impl.errors import RunFailed
from impl.experiment import run
from reports.cases import Case
from reports.cupti import record
from reports.lab import Lab
from reports.trace import write_trace


def profile_cases(waiting: Sequence[tuple[Case, Path]], lab: Lab, progress: Callable[[str], None]) -> None:
    """Write two traces of one run of each case: the suite's own to its path, and the profiler's beside it.

    Raises:
        RunFailed: after all cases, naming those that failed.
    """
    failed = []
    for number, (case, path) in enumerate(waiting, 1):
        progress(f"torch.profiler: {case.id}, {number} of {len(waiting)}")
        scheduler, machine = lab.schedulers(case.experiment)[case.scheduler], lab.machine("cuda")
        profiled = partial(run, scheduler, case.experiment.on(machine), machine)
        try:
            recording = record(profiled, path.with_suffix(".torch.json"))
        except RunFailed as error:
            failed.append(f"{case.id}: {error}")
            continue
        left_out = write_trace(recording.result, path)
        if left_out:
            progress(left_out)
    if failed:
        raise RunFailed("under torch.profiler " + "; ".join(failed))
