"""Hypothesis strategies for everything a run on the virtual device depends on."""

from __future__ import annotations

from hypothesis import strategies as st

from impl.batching import Batching, Continuous, Dynamic, Single
from impl.costs import Cost, Costs, WorkKind
from impl.device.protocol import DeviceSettings, GilReleases, LaunchBlocks
from impl.experiment import Scenario
from impl.machines import VirtualMachine
from impl.workload import Lengths, Workload, burst, constant, from_gaps, gamma, poisson

MAX_REQUESTS = 10
RATES = st.floats(min_value=1, max_value=5000)
SEEDS = st.integers(0, 2**32)
TIMES_NS = st.one_of(st.just(0), st.integers(0, 10), st.integers(0, 20_000_000))

costs = st.builds(
    Costs,
    pre=st.builds(Cost, TIMES_NS, TIMES_NS, st.integers(0, 10_000)),
    launch=st.builds(Cost, TIMES_NS),
    forward=st.builds(Cost, TIMES_NS, TIMES_NS, st.integers(0, 1_000_000)),
    copy=st.builds(Cost, TIMES_NS),
    post=st.builds(Cost, TIMES_NS, TIMES_NS, st.integers(0, 10_000)),
    host_work=st.sampled_from(WorkKind),
)
device_settings = st.builds(
    DeviceSettings,
    launch_blocks=st.sampled_from(LaunchBlocks),
    kernels_per_forward=st.one_of(st.just(1), st.sampled_from([2, 999, 1000, 1001, 5000]), st.integers(1, 5000)),
    has_copy_stream=st.booleans(),
)
one_forward = st.one_of(st.just(Single()), st.builds(Dynamic, st.integers(1, 8)))
many_forwards = st.builds(
    Continuous, max_running=st.integers(1, 6), max_prefill_tokens=st.integers(1, 60), chunked=st.booleans()
)
machines = st.builds(
    VirtualMachine,
    has_gil=st.booleans(),
    launch_tail_ns=st.integers(0, 3_000_000),
    gil_releases=st.builds(GilReleases, *[st.integers(0, 4)] * 5),
)


@st.composite
def lengths(draw: st.DrawFn, *, max_output_tokens: int) -> Lengths:
    """Draw the tokens of one request; its stop token may lie beyond its length limit."""
    stop_after = draw(st.none() | st.integers(1, max_output_tokens + 2))
    return Lengths(draw(st.integers(1, 50)), draw(st.integers(1, max_output_tokens)), stop_after)


@st.composite
def workloads(draw: st.DrawFn, *, max_output_tokens: int) -> Workload:
    """Draw arrivals of every kind."""
    each = draw(st.lists(lengths(max_output_tokens=max_output_tokens), min_size=1, max_size=MAX_REQUESTS))
    num = len(each)
    kind = draw(st.sampled_from(["burst", "constant", "poisson", "gamma", "gaps"]))
    if kind == "burst":
        return burst(num, each)
    if kind == "constant":
        return constant(num, qps=draw(RATES), lengths=each)
    if kind == "poisson":
        return poisson(num, qps=draw(RATES), seed=draw(SEEDS), lengths=each)
    if kind == "gamma":
        return gamma(num, qps=draw(RATES), cv=draw(st.floats(0.1, 5)), seed=draw(SEEDS), lengths=each)
    return from_gaps(draw(st.lists(TIMES_NS, min_size=num, max_size=num)), each)


@st.composite
def scenarios_in_real_time(draw: st.DrawFn) -> Scenario:
    """Draw what takes milliseconds on real threads; all requests arrive at the start, so none is late."""
    batching: Batching = draw(one_forward | many_forwards)
    outputs = 1 if isinstance(batching, Dynamic) else 4
    each = draw(st.lists(lengths(max_output_tokens=outputs), min_size=1, max_size=5))
    short = st.builds(Cost, st.sampled_from([0, 1, 100_000, 500_000]))
    costs_of_stages = st.builds(Costs, *[short] * 5, host_work=st.sampled_from(WorkKind))
    return Scenario("drawn", burst(len(each), each), batching, draw(costs_of_stages), draw(device_settings))


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Draw what is served and what it costs."""
    batching: Batching = draw(one_forward | many_forwards)
    workload = draw(workloads(max_output_tokens=1 if isinstance(batching, Dynamic) else 6))
    return Scenario("drawn", workload, batching, draw(costs), draw(device_settings))
