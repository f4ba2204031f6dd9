"""The suite's instrument against another: forwards and bubbles timed by events, and by CUPTI through torch.profiler."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from impl.experiment import run
from perf.experiments import HIGH_QPS, SATURATED, STARVED
from reports.cases import Experiment
from reports.cupti import kernel_times, record, why_no_cupti
from reports.lab import Lab
from reports.records import NOTE

MAX_DIFFERENCE_NS = 20_000
MAX_DIFFERENCE = 0.01
"""A forward's two times may differ by this much or this share, whichever is larger."""
MAX_BUBBLE_DIFFERENCE = 0.02
"""Share by which the two readings of all bubbles may differ."""
CASES = [(SATURATED, "overlap"), (STARVED, "normal"), (STARVED, "overlap"), (HIGH_QPS, "overlap")]


@pytest.mark.gpu
@pytest.mark.profiler
@pytest.mark.parametrize(("experiment", "scheduler"), CASES, ids=[f"{e.id}-{name}" for e, name in CASES])
def test_forwards_and_bubbles_are_as_long_by_events_as_by_cupti(
    experiment: Experiment, scheduler: str, lab: Lab, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Forward times come from events around the kernels; torch.profiler hears of the kernels from CUPTI."""
    reason = why_no_cupti()
    if reason is not None:
        pytest.skip(reason)
    machine = lab.machine("cuda")
    chosen, scenario = experiment.schedulers[scheduler], experiment.on(machine)
    run(chosen, scenario, machine)  # warm-up
    recording = record(lambda: run(chosen, scenario, machine), tmp_path / "run.torch.json")
    kernels = kernel_times(recording)
    forwards = recording.result.metrics.forwards
    assert set(kernels) == {forward.batch_id for forward in forwards}

    longer_ns = []
    for forward in forwards:
        seen = kernels[forward.batch_id]
        by_cupti_ns = seen.end_ns - seen.start_ns
        longer_ns.append(forward.end_ns - forward.start_ns - by_cupti_ns)
        assert abs(longer_ns[-1]) <= max(MAX_DIFFERENCE_NS, MAX_DIFFERENCE * by_cupti_ns), (
            f"forward {forward.batch_id}: {(by_cupti_ns + longer_ns[-1]) / 1e6:.3f} ms by events, "
            f"{by_cupti_ns / 1e6:.3f} ms by CUPTI ({seen.num_kernels} kernels)"
        )

    idle_ns = sum(max(0, after.start_ns - before.end_ns) for before, after in pairwise(forwards))
    in_order = sorted(kernels.values())
    idle_by_cupti_ns = sum(max(0, after.start_ns - before.end_ns) for before, after in pairwise(in_order))
    most_apart_ns = max(MAX_DIFFERENCE_NS * len(forwards), MAX_BUBBLE_DIFFERENCE * idle_by_cupti_ns)
    assert abs(idle_ns - idle_by_cupti_ns) <= most_apart_ns, (
        f"bubbles of {idle_ns / 1e6:.3f} ms by events, {idle_by_cupti_ns / 1e6:.3f} ms by CUPTI"
    )
    longer = f"{min(longer_ns) / 1e3:+.1f} to {max(longer_ns) / 1e3:+.1f} µs longer"
    bubbles = f"bubbles {idle_ns / 1e6:.3f} against {idle_by_cupti_ns / 1e6:.3f} ms"
    note = f"{experiment.id}/{scheduler}: {len(forwards)} forwards are {longer} by events than by CUPTI, {bubbles}"
    request.node.user_properties.append((NOTE, note))
