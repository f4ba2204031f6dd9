from __future__ import annotations

import pytest
from hypothesis import given, settings

from impl.attribution import Attribution, Cause, attribute
from impl.costs import WorkKind
from impl.experiment import Result, Scenario
from impl.machines import CpuMachine, VirtualMachine
from impl.schedulers import SCHEDULERS
from impl.workload import burst
from perf.experiments import GIL, SATURATED, STARVED
from tests.build import MS, attempt, scenario, stages
from tests.strategies import machines, scenarios, scenarios_in_real_time


def parts_of(result: Result) -> list[Attribution]:
    return attribute(result.timeline, result.scenario.workload)


def in_ms(found: Attribution) -> dict[Cause, float]:
    return {cause: ns / MS for cause, ns in found.parts.items() if ns}


@pytest.mark.parametrize("name", SCHEDULERS)
@given(served=scenarios(), machine=machines)
def test_the_parts_of_every_request_add_up_to_its_ttft_and_nothing_is_unexplained(
    name: str, served: Scenario, machine: VirtualMachine
) -> None:
    result = attempt(SCHEDULERS[name], served, machine)
    for found, metrics in zip(parts_of(result), result.metrics.requests, strict=True):
        assert found.ttft_ns == metrics.ttft_ns == sum(found.parts.values())
        assert min(found.parts.values()) >= 0
        assert found.parts[Cause.QUEUE] == metrics.queue_wait_ns
        assert found.parts.get(Cause.UNEXPLAINED, 0) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULERS)
@settings(max_examples=5)
@given(served=scenarios_in_real_time())
def test_the_parts_add_up_in_real_time_too(name: str, served: Scenario) -> None:
    result = attempt(SCHEDULERS[name], served, CpuMachine())
    for found, metrics in zip(parts_of(result), result.metrics.requests, strict=True):
        assert found.ttft_ns == metrics.ttft_ns == sum(found.parts.values())


def test_normal_has_nothing_but_queue_and_own_steps() -> None:
    for index, found in enumerate(parts_of(attempt(SCHEDULERS["normal"]))):
        assert in_ms(found) == {
            **({Cause.QUEUE: 7.0 * index} if index else {}),
            Cause.OWN_PRE: 1.0,
            Cause.OWN_FORWARD: 5.0,
            Cause.OWN_POST: 1.0,
        }


def test_saturated_what_is_inserted_is_the_previous_forward() -> None:
    """Request 3 of chapter 7: prepared behind a launch, it waits for the forward ahead of it."""
    found = parts_of(attempt(SCHEDULERS["overlap"], SATURATED.scenario))[2]
    own = {Cause.OWN_PRE: 100.0, Cause.OWN_FORWARD: 490.0, Cause.OWN_POST: 100.0}
    parts = in_ms(found)
    assert {cause: parts[cause] for cause in own} == own
    rest = {cause: ms for cause, ms in parts.items() if cause not in own and cause is not Cause.QUEUE}
    assert set(rest) == {Cause.EARLIER_FORWARDS}


def test_starved_what_is_inserted_is_host_work_of_others_beyond_the_own_forward() -> None:
    """Request 2 of chapter 8: the next pre and the previous post take 240 ms, its own forward hides 165 of them."""
    parts = in_ms(parts_of(attempt(SCHEDULERS["overlap"], STARVED.scenario))[2])
    assert parts[Cause.OWN_FORWARD] == 165
    inserted = parts.get(Cause.INSERTED_PRE, 0) + parts.get(Cause.INSERTED_POST, 0)
    assert inserted == 2 * 120 - 165
    assert Cause.EARLIER_FORWARDS not in parts


def test_threads_that_hold_the_gil_wait_for_it() -> None:
    spinning = parts_of(attempt(SCHEDULERS["overlap_three_thread"], GIL.scenario))
    assert sum(found.parts.get(Cause.LOCK, 0) for found in spinning) > 0
    free = parts_of(attempt(SCHEDULERS["overlap_three_thread"], GIL.scenario, VirtualMachine(has_gil=False)))
    assert sum(found.parts.get(Cause.LOCK, 0) for found in free) == 0


@pytest.mark.slow
def test_computation_on_the_clock_beyond_its_processor_time_counts_as_waiting() -> None:
    served = scenario(burst(4), costs=stages(2, 1, 2, host_work=WorkKind.SPIN))
    result = attempt(SCHEDULERS["overlap_three_thread"], served, CpuMachine())
    assert all(wait.end_ns > wait.start_ns for wait in result.timeline.lock_waits)
    assert sum(found.parts.get(Cause.LOCK, 0) for found in parts_of(result)) > 0
