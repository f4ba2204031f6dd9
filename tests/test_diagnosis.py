from __future__ import annotations

import linecache
from dataclasses import replace

import pytest
from hypothesis import given

from impl.batching import Continuous
from impl.costs import Costs, WorkKind, cost_ms
from impl.device.protocol import DeviceSettings
from impl.diagnosis import Diagnosis, Finding, diagnose
from impl.engine import Engine, Scheduler
from impl.experiment import Scenario
from impl.machines import CpuMachine, Machine, VirtualMachine
from impl.schedulers import SCHEDULERS
from impl.timeline import FORWARD, LAUNCH, POST, PRE, SYNCHRONIZE, LockWait, Span, Taken, Timeline
from impl.workload import Lengths, burst, constant
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
from tests.build import MS, attempt, scenario, stages
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
    (LAUNCH_BLOCKED_BY_OWN, SCHEDULERS["overlap_worker_thread"], Finding.WAITS_INSIDE_LAUNCH, "engine.launch("),
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
    (LAUNCH_BLOCKED_BY_OWN, "overlap_worker_thread_no_wait", Finding.ON),
    (LAUNCH_BLOCKED_BY_PREVIOUS, "overlap_worker_thread_no_wait", Finding.ON),
    (LAUNCH_QUEUE_FULL, "overlap_worker_thread_no_wait", Finding.ON),
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
    """With three times the usual scale: this machine may be busy. It may all the same keep a thread from seeing in time
    what it waited for, and who gets the GIL next is for the kernel to say: a run that shows something else may be
    followed by others.
    """
    slower = replace(experiment, real_scale=3 * experiment.real_scale)
    shown = []
    for _ in range(5 if finding is Finding.LOCK else 3):
        shown.append(of(slower, scheduler, CpuMachine()))
        if shown[-1].finding is finding:
            break
    assert shown[-1].finding is finding, shown
    assert line in source(shown[-1])


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


def with_a_long_launch(lock_waits: list[LockWait], *, pre_lane: str = "launch", gap: int = 0) -> Diagnosis:
    """Two forwards, between which the GPU idles for `gap` ms; the second one's launch lasts for most of the first.

    Meanwhile another thread prepares.
    """
    timeline = Timeline(start_ns=0, lock_waits=lock_waits)
    timeline.call_sites["launch", LAUNCH] = [(0, "loops.py:1")]
    for batch_id, launch, forward in ((0, (10, 12), (12, 112)), (1, (20, 118 + gap), (112 + gap, 212 + gap))):
        timeline.taken.append(Taken(batch_id, 0, 1, (batch_id,)))
        spans = {PRE: (pre_lane, 0, 10), LAUNCH: ("launch", *launch), FORWARD: ("engine", *forward)}
        spans |= {SYNCHRONIZE: ("post", *forward), POST: ("post", forward[1], forward[1] + 5)}
        timeline.spans += [Span(lane, stage, batch_id, a * MS, b * MS) for stage, (lane, a, b) in spans.items()]
    timeline.spans.append(Span("scheduler", PRE, 2, 20 * MS, 100 * MS))
    return diagnose(timeline, burst(2))


def test_a_launch_that_needs_the_gil_back_is_not_taken_for_a_full_queue() -> None:
    assert with_a_long_launch([]).finding is Finding.QUEUE_FULL
    waits = [LockWait("scheduler", 80 * MS, 100 * MS)]
    assert with_a_long_launch(waits) == Diagnosis(Finding.LOCK, 1, 1, "loops.py:1")
    assert with_a_long_launch(waits, pre_lane="scheduler", gap=1).finding is Finding.LOCK


def test_a_thread_that_only_launches_may_be_kept_while_the_gpu_does_not_wait() -> None:
    for waits in ([], [LockWait("scheduler", 80 * MS, 100 * MS)]):
        assert with_a_long_launch(waits, pre_lane="scheduler") == Diagnosis(Finding.ON, 0, 1, None)
    for gap in (1, 4, 30):
        assert not with_a_long_launch([], pre_lane="scheduler", gap=gap).is_on


@pytest.mark.slow
def test_in_real_time_a_launch_thread_that_blocks_on_the_previous_forward_makes_the_gpu_wait() -> None:
    slower = replace(LAUNCH_BLOCKED_BY_PREVIOUS, real_scale=3 * LAUNCH_BLOCKED_BY_PREVIOUS.real_scale)
    assert not of(slower, "overlap_worker_thread_no_wait", CpuMachine()).is_on


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
    spans = late.timeline.stage(SYNCHRONIZE)
    assert [since_ns for since_ns, _ in places] == [span.start_ns for span in spans[:2]]
    assert [late.timeline.call_site(span) for span in spans] == [places[0][1]] + [places[1][1]] * 5
    assert places[0][1] != places[1][1]


def test_batches_may_be_launched_in_another_order_than_they_were_taken() -> None:
    def reversing(engine: Engine) -> None:
        prepare, stream = engine.stream("scheduler"), engine.stream("engine")
        while batches := [b for b in (engine.next_batch(), engine.next_batch(wait=False)) if b is not None]:
            for batch in batches:
                engine.pre(batch, prepare)
            stream.wait_stream(prepare)
            flights = [engine.launch(batch, stream) for batch in reversed(batches)]
            for flight in flights:
                engine.synchronize(flight)
            for flight in flights:
                engine.post(flight)

    result = attempt(reversing, scenario(burst(8)))
    found = diagnose(result.timeline, result.scenario.workload)
    assert found.finding is Finding.SYNCHRONIZES
    assert source(found) == "engine.synchronize(flight)"


def served(settings: DeviceSettings | None = None, **ms: float) -> Scenario:
    """Return 40 requests at once, one a forward, with stage times in milliseconds."""
    costs = Costs(**{stage: cost_ms(time) for stage, time in ms.items()})
    return scenario(burst(40), costs=costs, settings=settings)


SHARED = DeviceSettings(has_copy_stream=False)
TURNS = broken.three_threads_that_take_turns
VERDICTS = {
    "work in the gap alone": (TURNS, served(pre=9.6, forward=10, post=1), Finding.HELD_BACK),
    "pre as long as the forward": ("overlap", served(pre=9.6, forward=10, post=1), Finding.CPU_LONGER),
    "bound by the post thread": ("overlap_post_thread", served(pre=0.5, forward=10, post=12), Finding.CPU_LONGER),
    "no time left behind a copy": ("overlap", served(pre=3, forward=10, copy=5, post=3), Finding.CPU_LONGER),
    "a long launch that is only work": ("overlap", served(pre=0.5, launch=7.6, forward=10, post=1.5), Finding.ON),
    "a copy on the forwards' stream": ("overlap", served(SHARED, pre=1, forward=10, copy=5, post=1), Finding.COPY),
    "a queue just too short": (
        "overlap",
        served(DeviceSettings(kernels_per_forward=1001), pre=5, forward=100, post=5),
        Finding.QUEUE_FULL,
    ),
}


@pytest.mark.parametrize(("scheduler", "run", "finding"), VERDICTS.values(), ids=VERDICTS)
def test_what_the_host_could_have_done_decides(scheduler: str | Scheduler, run: Scenario, finding: Finding) -> None:
    chosen = SCHEDULERS[scheduler] if isinstance(scheduler, str) else scheduler
    result = attempt(chosen, run)
    assert diagnose(result.timeline, run.workload).finding is finding


@pytest.mark.parametrize("gap_ms", [95, 105, 115])
def test_requests_that_come_one_by_one_are_no_fault_of_the_scheduler(gap_ms: int) -> None:
    run = scenario(constant(60, qps=1000 / gap_ms), costs=stages(10, 100, 10))
    for name in ("overlap", "overlap_three_thread", "overlap_post_thread"):
        result = attempt(SCHEDULERS[name], run)
        assert diagnose(result.timeline, run.workload).is_on, name


def test_a_copy_is_not_mistaken_for_the_gil() -> None:
    costs = Costs(pre=cost_ms(0.2), forward=cost_ms(1), copy=cost_ms(0.2), post=cost_ms(0.2), host_work=WorkKind.SPIN)
    run = scenario(burst(40), costs=costs, settings=SHARED)
    result = attempt(SCHEDULERS["overlap_three_thread"], run)
    assert diagnose(result.timeline, run.workload).finding is Finding.COPY


@pytest.mark.parametrize("name", [name for name in SCHEDULERS if name.startswith("overlap")])
def test_decode_steps_in_which_nothing_else_can_run_leave_overlap_on(name: str) -> None:
    run = scenario(burst(8, Lengths(prompt_tokens=10, max_output_tokens=30)), Continuous(8, 100), stages(1, 10, 3))
    result = attempt(SCHEDULERS[name], run)
    assert diagnose(result.timeline, run.workload).finding is Finding.ON
