"""The suite's instrument against the profilers': forwards timed by events and by CUPTI, and what recording costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from impl.experiment import run
from perf.experiments import HIGH_QPS, SATURATED
from reports.cupti import kernel_times, record, why_no_cupti
from reports.lab import Lab
from reports.measure import Experiment
from reports.records import NOTE

MOST_APART_NS = 20_000
MOST_APART = 0.01
"""A forward's two times may differ by this much or this share, whichever is larger."""


@pytest.mark.gpu
@pytest.mark.parametrize("experiment", [SATURATED, HIGH_QPS], ids=lambda experiment: experiment.id)
def test_forwards_last_as_long_by_events_as_by_cupti(
    experiment: Experiment, lab: Lab, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Forward times come from events around the kernels; torch.profiler hears of the kernels from CUPTI."""
    reason = why_no_cupti()
    if reason is not None:
        pytest.skip(reason)
    machine = lab.machine("cuda")
    scheduler, scenario = experiment.schedulers["overlap"], experiment.on(machine)
    run(scheduler, scenario, machine)  # warm-up
    recording = record(lambda: run(scheduler, scenario, machine), tmp_path / "run.torch.json")
    kernels = kernel_times(recording)
    forwards = recording.result.metrics.forwards
    start_ns = recording.result.timeline.started_ns
    assert set(kernels) == {forward.batch_id for forward in forwards}
    longer_ns, earlier_ns = [], []
    for forward in forwards:
        seen = kernels[forward.batch_id]
        by_cupti_ns = seen.end_ns - seen.start_ns
        difference_ns = forward.end_ns - forward.start_ns - by_cupti_ns
        longer_ns.append(difference_ns)
        earlier_ns.append(seen.start_ns - start_ns - forward.start_ns)
        assert abs(difference_ns) <= max(MOST_APART_NS, MOST_APART * by_cupti_ns), (
            f"forward {forward.batch_id}: {(by_cupti_ns + difference_ns) / 1e6:.3f} ms by events, "
            f"{by_cupti_ns / 1e6:.3f} ms by CUPTI ({seen.num_kernels} kernels)"
        )
    note = (
        f"{experiment.id}: {len(forwards)} forwards last {min(longer_ns) / 1e3:+.1f} to {max(longer_ns) / 1e3:+.1f} µs "
        f"longer by events than by CUPTI, and begin {min(earlier_ns) / 1e3:+.1f} to {max(earlier_ns) / 1e3:+.1f} µs earlier"
    )
    request.node.user_properties.append((NOTE, note))
