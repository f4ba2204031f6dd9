from __future__ import annotations

import linecache
from dataclasses import replace

import pytest
from hypothesis import given

from impl.diagnosis import Diagnosis, Finding, diagnose
from impl.engine import Engine, Scheduler
from impl.experiment import Scenario
from impl.machines import CpuMachine, Machine, VirtualMachine
from impl.schedulers import SCHEDULERS
from impl.timeline import FORWARD, LAUNCH, POST, PRE, SYNCHRONIZE, LockWait, Span, Taken, Timeline
from impl.workload import burst
from perf import broken
from perf.experiments import (
    COPY_ON_ENGINE_STREAM,
    DYNAMIC_BATCHING,
    GIL,
    HIGH_QPS,
    JUST_IN_TIME,
    LAUNCH_BLOCKED_BY_OWN,
    LAUNCH_BLOCKED_BY_PREVIOUS,
    LAUNCH_BOUND,
    LAUNCH_FREE,
    LAUNCH_QUEUE_FULL,
    LAUNCH_TIME,
    LOW_QPS,
    ONE_FORWARD_LOW_QPS,
    PROTOTYPE,
    SATURATED,
    STARVED,
)
from reports.cases import Experiment
from tests.build import attempt, scenario
from tests.strategies import machines, scenarios


def of(experiment: Experiment, scheduler: str | Scheduler, machine: Machine | None = None) -> Diagnosis:
    found = experiment.schedulers[scheduler] if isinstance(scheduler, str) else scheduler
    where = machine or VirtualMachine()
    result = attempt(found, experiment.on(where), where)
    return diagnose(result.timeline, result.scenario.workload)


def source(found: Diagnosis) -> str:
    """Return the line of source that a diagnosis points at."""
    assert found.where is not None
    path, _, line = found.where.rpartition(":")
    return linecache.getline(path, int(line)).strip()


FAULTS = [
    (SATURATED, broken.overlap_that_synchronizes, Finding.SYNCHRONIZES, "engine.synchronize(ongoing)"),
    (SATURATED, "normal", Finding.SYNCHRONIZES, "engine.synchronize(flight)"),
    (LAUNCH_FREE, "normal", Finding.SYNCHRONIZES, "engine.synchronize(flight)"),
    (HIGH_QPS, broken.overlap_that_waits_before_launch, Finding.WAITS_BEFORE_LAUNCH, "engine.synchronize(last)"),
    (SATURATED, broken.overlap_that_waits_before_launch, Finding.WAITS_BEFORE_LAUNCH, "engine.synchronize(last)"),
    (SATURATED, broken.overlap_that_posts_first, Finding.POST_FIRST, "engine.post(last)"),
    (LAUNCH_BLOCKED_BY_OWN, "overlap", Finding.WAITS_INSIDE_LAUNCH, "ongoing = engine.launch(batch, stream)"),
    (LAUNCH_BLOCKED_BY_PREVIOUS, "overlap", Finding.BLOCKING_COPY, "ongoing = engine.launch(batch, stream)"),
    (LAUNCH_QUEUE_FULL, "overlap", Finding.QUEUE_FULL, "ongoing = engine.launch(batch, stream)"),
    (GIL, "overlap_three_thread", Finding.LOCK, "engine.launch("),
]
"""Planted faults, what must be found, and the line at which the host waits."""
WITHOUT_A_LINE = [
    (COPY_ON_ENGINE_STREAM, "overlap", Finding.COPY),
    (JUST_IN_TIME, broken.just_in_time_told_a_second, Finding.HELD_BACK),
    (LAUNCH_TIME, "lead_-3_pre", Finding.HELD_BACK),
    (LAUNCH_TIME, "lead_0_pre", Finding.HELD_BACK),
]
"""Planted faults in which the host waits in no call of the scheduler."""
SOUND = [
    (SATURATED, "overlap", Finding.ON),
    (SATURATED, "overlap_three_thread", Finding.ON),
    (STARVED, "overlap", Finding.CPU_LONGER),
    (STARVED, "overlap_three_thread", Finding.ON),
    (LAUNCH_FREE, "overlap", Finding.ON),
    (LAUNCH_BOUND, "overlap_worker_thread_no_wait", Finding.CPU_LONGER),
    (DYNAMIC_BATCHING, "overlap", Finding.ON),
    (JUST_IN_TIME, "overlap_just_in_time", Finding.ON),
    (LOW_QPS, "overlap", Finding.ON),
    (HIGH_QPS, "overlap_just_in_time", Finding.ON),
    (PROTOTYPE, "overlap", Finding.ON),
    (ONE_FORWARD_LOW_QPS, "overlap", Finding.NO_REQUESTS),
]


def name_of(value: object) -> str:
    return str(getattr(value, "name", ""))


with_faults = pytest.mark.parametrize(("experiment", "scheduler", "finding", "line"), FAULTS, ids=name_of)


@with_faults
def test_every_planted_fault_is_named_with_the_line_at_which_the_host_waits(
    experiment: Experiment, scheduler: str | Scheduler, finding: Finding, line: str
) -> None:
    found = of(experiment, scheduler)
    assert found.finding is finding
    assert not found.is_on
    assert found.num_late > 0
    assert line in source(found)
    told = str(found)
    assert told.replace("off in part: ", "off: ").startswith(f"{found.finding.value} ({found.num_late} of ")
    assert told.startswith("off: ") == (found.num_late > found.num_launches / 2)


@pytest.mark.parametrize(("experiment", "scheduler", "finding"), SOUND, ids=name_of)
def test_what_overlaps_is_called_on(experiment: Experiment, scheduler: str, finding: Finding) -> None:
    found = of(experiment, scheduler)
    assert found.finding is finding
    assert found.is_on
    assert found.where is None


@pytest.mark.parametrize(("experiment", "scheduler", "finding"), WITHOUT_A_LINE, ids=name_of)
def test_faults_in_which_the_host_waits_nowhere_are_named_too(
    experiment: Experiment, scheduler: str | Scheduler, finding: Finding
) -> None:
    found = of(experiment, scheduler)
    assert found.finding is finding
    assert not found.is_on
    assert found.where is None


def test_a_single_forward_is_nothing_to_overlap() -> None:
    result = attempt(SCHEDULERS["overlap"], scenario(burst(1)))
    found = diagnose(result.timeline, result.scenario.workload)
    assert found == Diagnosis(Finding.SINGLE, 0, 0, None)
    assert found.is_on
    assert str(found) == "nothing to overlap: a single forward"


@pytest.mark.slow
@with_faults
def test_faults_are_named_in_real_time_too(
    experiment: Experiment, scheduler: str | Scheduler, finding: Finding, line: str
) -> None:
    """With three times the usual scale: this machine may be busy."""
    slower = replace(experiment, real_scale=3 * experiment.real_scale)
    found = of(slower, scheduler, CpuMachine())
    assert found.finding is finding
    assert line in source(found)


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["overlap", "overlap_three_thread"])
def test_what_overlaps_is_called_on_in_real_time_too(scheduler: str) -> None:
    assert of(replace(SATURATED, real_scale=0.3), scheduler, CpuMachine()).is_on


@pytest.mark.parametrize("name", SCHEDULERS)
@given(served=scenarios(), machine=machines)
def test_every_run_has_a_diagnosis(name: str, served: Scenario, machine: VirtualMachine) -> None:
    result = attempt(SCHEDULERS[name], served, machine)
    found = diagnose(result.timeline, served.workload)
    assert 0 <= found.num_late <= found.num_launches


def with_a_long_launch(lock_waits: list[LockWait]) -> Diagnosis:
    """Two forwards; the second one's launch lasts for most of the first, while another thread post-processes."""
    timeline = Timeline(start_ns=0, lock_waits=lock_waits)
    timeline.call_sites["launch", LAUNCH] = [(0, "loops.py:1")]
    for batch_id, launch, forward in ((0, (10, 12), (12, 112)), (1, (20, 118), (112, 212))):
        timeline.taken.append(Taken(batch_id, 0, 1, (batch_id,)))
        spans = {PRE: ("scheduler", 0, 10), LAUNCH: ("launch", *launch), FORWARD: ("engine", *forward)}
        spans |= {SYNCHRONIZE: ("post", *forward), POST: ("post", forward[1], forward[1] + 5)}
        timeline.spans += [Span(lane, stage, batch_id, begin, end) for stage, (lane, begin, end) in spans.items()]
    timeline.spans.append(Span("scheduler", PRE, 2, 20, 100))
    return diagnose(timeline, burst(2))


def test_a_launch_that_needs_the_gil_back_is_not_taken_for_a_full_queue() -> None:
    assert with_a_long_launch([]).finding is Finding.QUEUE_FULL
    assert with_a_long_launch([LockWait("scheduler", 80, 100)]) == Diagnosis(Finding.LOCK, 1, 1, "loops.py:1")


def test_the_line_is_that_of_the_late_call_and_not_of_the_first_one() -> None:
    def warmed_up(engine: Engine) -> None:
        prepare, stream = engine.stream("scheduler"), engine.stream("engine")
        batch = engine.next_batch()
        while batch is not None:
            engine.pre(batch, prepare)
            stream.wait_stream(prepare)
            flight = engine.launch(batch, stream)
            if batch.id == 0:
                engine.synchronize(flight)  # a harmless one
            else:
                engine.synchronize(flight)  # the fault
            engine.post(flight)
            batch = engine.next_batch()

    found = of(SATURATED, warmed_up)
    assert found.finding is Finding.SYNCHRONIZES
    late = attempt(warmed_up, scenario(burst(6)))
    places = late.timeline.call_sites["scheduler", SYNCHRONIZE]
    assert [batch_id for batch_id, _ in places] == [0, 1]
    spans = late.timeline.stage(SYNCHRONIZE)
    assert [late.timeline.call_site(span) for span in spans] == [places[0][1]] + [places[1][1]] * 5
    assert places[0][1] != places[1][1]
