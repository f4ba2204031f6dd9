"""What the suite itself costs, as benchmarks; the figures are reported at the end of a session.

The goals are 50,000 requests a second on the virtual device and 100 µs of host time a forward on CUDA. Machines are
shared and differ, so what is asserted is a ratio, or a bound twice as wide as the goal.
"""

from __future__ import annotations

import time
from collections.abc import Generator

import pytest
import simpy
from pytest_benchmark.fixture import BenchmarkFixture

from impl.batching import Batching, Dynamic, Single
from impl.costs import Costs, cost_ms
from impl.experiment import Scenario, run
from impl.machines import VirtualMachine
from impl.schedulers import overlap
from impl.workload import burst
from reports.lab import Lab
from reports.records import NOTE

NUM_REQUESTS = 20_000
NUM_FORWARDS = 1_000
MOST_EVENTS_PER_REQUEST = 200
"""A request may cost as much as this many bare SimPy events, timed beside it."""
MOST_OVERHEAD_US = 200


@pytest.mark.parametrize("batching", [Single(), Dynamic(32)], ids=["single", "dynamic"])
def test_virtual_device_speed(batching: Batching, benchmark: BenchmarkFixture, request: pytest.FixtureRequest) -> None:
    """Simulate 20,000 requests under `overlap`, with every span and metric."""
    costs = Costs(pre=cost_ms(1), forward=cost_ms(1), post=cost_ms(1))
    scenario = Scenario("speed", burst(NUM_REQUESTS), batching, costs)
    times_s, bare_s = [], []

    def simulate() -> None:
        bare_s.append(time_bare_events(NUM_REQUESTS))
        start_s = time.perf_counter()
        run(overlap, scenario, VirtualMachine())
        times_s.append(time.perf_counter() - start_s)

    benchmark.pedantic(simulate, rounds=3)
    per_second = NUM_REQUESTS / min(times_s)
    events = min(time_s / bare for time_s, bare in zip(times_s, bare_s, strict=True))
    benchmark.extra_info.update(requests_per_second=per_second, events_per_request=events)
    name = request.node.callspec.id
    note = f"virtual device, {name}: {per_second:,.0f} requests a second, {events:.1f} bare events each"
    request.node.user_properties.append((NOTE, note))
    assert events <= MOST_EVENTS_PER_REQUEST


def time_bare_events(num_events: int) -> float:
    """Return the seconds that a SimPy process takes to wait for as many timeouts."""
    env = simpy.Environment()

    def wait() -> Generator[simpy.Event, None, None]:
        for _ in range(num_events):
            yield env.timeout(1)

    env.process(wait())
    start_s = time.perf_counter()
    env.run()
    return time.perf_counter() - start_s


@pytest.mark.gpu
def test_cuda_host_overhead(lab: Lab, benchmark: BenchmarkFixture, request: pytest.FixtureRequest) -> None:
    """Forwards of 20 µs with nothing modelled on the host: the time a step takes is the harness's own."""
    scenario = Scenario("overhead", burst(NUM_FORWARDS), Single(), Costs(forward=cost_ms(0.02)))
    machine = lab.machine("cuda")
    steps_us = []

    def serve() -> None:
        steps_us.append(run(overlap, scenario, machine).metrics.summary.total_ns / NUM_FORWARDS / 1e3)

    benchmark.pedantic(serve, rounds=3, warmup_rounds=1)
    overhead_us = min(steps_us)
    benchmark.extra_info["host_overhead_us"] = overhead_us
    request.node.user_properties.append((NOTE, f"host overhead of a forward on cuda: {overhead_us:.1f} µs"))
    assert overhead_us <= MOST_OVERHEAD_US
