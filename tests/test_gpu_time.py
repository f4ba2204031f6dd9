from __future__ import annotations

import pytest
from hypothesis import given, settings

from impl.costs import Costs, cost_ms
from impl.device.protocol import DeviceSettings, LaunchBlocks
from impl.engine import Engine
from impl.experiment import Result, Scenario
from impl.gpu_time import GpuCause, split_gpu_time
from impl.machines import CpuMachine, VirtualMachine
from impl.schedulers import SCHEDULERS
from impl.workload import burst, from_gaps
from perf.experiments import SATURATED, STARVED
from tests.build import MS, attempt, scenario, stages
from tests.strategies import machines, scenarios, scenarios_in_real_time


def split(result: Result) -> dict[GpuCause, float]:
    found = split_gpu_time(result.timeline, result.scenario.workload)
    return {cause: ns / MS for cause, ns in found.items() if ns}


def require_whole(result: Result) -> None:
    found = split_gpu_time(result.timeline, result.scenario.workload)
    forwards = result.metrics.forwards
    window_ns = max(f.end_ns for f in forwards) - forwards[0].start_ns
    assert sum(found.values()) == window_ns
    assert min(found.values()) >= 0
    if window_ns:
        assert 1 - found[GpuCause.BUSY] / window_ns == pytest.approx(result.metrics.summary.gpu_idle_share)


@pytest.mark.parametrize("name", SCHEDULERS)
@given(served=scenarios(), machine=machines)
def test_the_causes_add_up_to_the_window(name: str, served: Scenario, machine: VirtualMachine) -> None:
    require_whole(attempt(SCHEDULERS[name], served, machine))


@pytest.mark.slow
@settings(max_examples=10)
@given(served=scenarios_in_real_time())
def test_the_causes_add_up_in_real_time_too(served: Scenario) -> None:
    require_whole(attempt(SCHEDULERS["overlap_three_thread"], served, CpuMachine()))


def test_normal_lets_the_gpu_wait_for_the_cpu() -> None:
    assert split(attempt(SCHEDULERS["normal"])) == {GpuCause.BUSY: 15, GpuCause.CPU: 4}


def test_saturated_overlap_keeps_the_gpu_busy_and_starved_leaves_bubbles_of_known_size() -> None:
    """Starved: a step takes pre + post = 240 ms, a forward 165 of them."""
    assert split(attempt(SCHEDULERS["overlap"], SATURATED.scenario)) == {GpuCause.BUSY: 5 * 490}
    starved = split(attempt(SCHEDULERS["overlap"], STARVED.scenario))
    assert starved[GpuCause.BUSY] == 5 * 165
    assert set(starved) == {GpuCause.BUSY, GpuCause.CPU}


def test_requests_that_are_far_apart_leave_the_gpu_without_work() -> None:
    """A request every 20 ms and 1 + 5 + 1 ms of work: 13 ms of want, then 1 ms of pre behind 1 ms of post."""
    served = scenario(from_gaps([0, 20 * MS, 20 * MS]))
    found = split(attempt(SCHEDULERS["normal"], served))
    assert found == {GpuCause.BUSY: 15, GpuCause.REQUESTS: 2 * 14, GpuCause.CPU: 2 * 1}


def test_a_launch_that_blocks_takes_the_launch_slot() -> None:
    settings_ = DeviceSettings(launch_blocks=LaunchBlocks.OWN_FORWARD)
    launches = Costs(pre=cost_ms(1), launch=cost_ms(3), forward=cost_ms(2), post=cost_ms(1))
    blocked = scenario(burst(4), costs=launches, settings=settings_)
    found = split(attempt(SCHEDULERS["overlap_three_thread"], blocked))
    assert found[GpuCause.CPU] > 0, "its own launch is work"
    tail = split(attempt(SCHEDULERS["overlap_three_thread"], scenario(burst(4)), VirtualMachine(launch_tail_ns=9 * MS)))
    assert tail[GpuCause.LAUNCH_SLOT] == 3 * 4, "launches of 9 ms with forwards of 5"


def test_a_copy_on_the_engine_stream_stands_in_the_way() -> None:
    costs = Costs(pre=cost_ms(1), forward=cost_ms(5), copy=cost_ms(2), post=cost_ms(1))
    served = scenario(burst(4), costs=costs, settings=DeviceSettings(has_copy_stream=False))
    assert split(attempt(SCHEDULERS["overlap_three_thread"], served)) == {GpuCause.BUSY: 20, GpuCause.COPY: 6}
    apart = scenario(burst(4), costs=costs)
    assert split(attempt(SCHEDULERS["overlap_three_thread"], apart)) == {GpuCause.BUSY: 20}


def test_a_scheduler_that_waits_although_requests_are_there_holds_them_back() -> None:
    def lazy(engine: Engine) -> None:
        stream = engine.stream("engine")
        while (batch := engine.next_batch()) is not None:
            engine.pre(batch, stream)
            flight = engine.launch(batch, stream)
            engine.synchronize(flight)
            engine.post(flight)
            engine.queue("never filled").get(30 * MS)

    found = split(attempt(lazy, scenario(burst(2), costs=stages(1, 5, 1))))
    assert found == {GpuCause.BUSY: 10, GpuCause.HELD: 30, GpuCause.CPU: 2}
