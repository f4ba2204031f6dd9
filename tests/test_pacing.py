"""The estimator of forward times, and that no estimate, however wrong, keeps a run from its end."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from impl.batching import Dynamic
from impl.core import Batch, Flight, ForwardTimes
from impl.costs import BatchTime, Cost, Costs, cost_ms
from impl.experiment import Scenario
from impl.machines import CpuMachine
from impl.pacing import WINDOW, ForwardTimeEstimator, Pacer
from impl.schedulers.overlap_just_in_time import overlap_just_in_time
from impl.workload import burst, poisson
from tests.build import MS, attempt, batch, scenario, stages
from tests.strategies import scenarios


def taught(cost: Cost, shapes: list[tuple[int, int]]) -> ForwardTimeEstimator:
    estimator = ForwardTimeEstimator()
    for size, num_tokens in shapes:
        seen = batch(size=size, num_tokens=num_tokens)
        estimator.observe(seen, cost(seen))
    return estimator


def test_nothing_is_known_before_the_first_forward() -> None:
    estimator = ForwardTimeEstimator()
    assert estimator(batch()) is None
    estimator.observe(batch(is_prefill=True), 5)
    assert estimator(batch(is_prefill=True)) is not None
    assert estimator(batch(is_prefill=False)) is None, "prefill says nothing of decode"


def test_a_constant_cost_is_known_after_one_forward() -> None:
    estimator = taught(cost_ms(150), [(3, 3)])
    for size in (1, 3, 32):
        assert estimator(batch(size=size)) == pytest.approx(150 * MS, rel=0.01)


def test_a_cost_that_grows_with_size_is_learned() -> None:
    cost = cost_ms(50, per_request=10)
    estimator = taught(cost, [(size, size) for size in (1, 5, 2, 8, 3, 20, 7, 1, 12)])
    for size in (1, 4, 16, 32):
        assert estimator(batch(size=size)) == pytest.approx(cost(batch(size=size)), rel=0.01)


def test_a_cost_that_grows_with_tokens_is_learned() -> None:
    cost = cost_ms(19, per_token=1)
    estimator = taught(cost, [(1, tokens) for tokens in (1, 381, 20, 150, 64, 5, 300)])
    for tokens in (1, 100, 400):
        assert estimator(batch(num_tokens=tokens)) == pytest.approx(cost(batch(num_tokens=tokens)), rel=0.01)


def test_what_was_learned_is_forgotten_when_costs_change() -> None:
    estimator = taught(cost_ms(100), [(2, 2)] * 200)
    for _ in range(100):
        estimator.observe(batch(size=2), 30 * MS)
    assert estimator(batch(size=2)) == pytest.approx(30 * MS, rel=0.01)


def test_only_the_last_forwards_count() -> None:
    shapes = [(size, 10 * size) for size in (1, 5, 2, 8, 3, 20, 7, 1, 12)] * 10
    estimator = taught(cost_ms(500, per_request=3), [(40, 7)] * 50)
    fresh = ForwardTimeEstimator()
    for size, num_tokens in shapes[:WINDOW]:
        seen = batch(size=size, num_tokens=num_tokens)
        for each in (estimator, fresh):
            each.observe(seen, cost_ms(50, per_request=10)(seen))
    for size in (1, 4, 32):
        assert estimator(batch(size=size, num_tokens=5)) == fresh(batch(size=size, num_tokens=5))


@given(
    seen=st.lists(
        st.tuples(st.integers(1, 500), st.integers(0, 10**9), st.integers(0, 10**12)), min_size=1, max_size=80
    )
)
def test_an_estimate_is_a_whole_number_of_nanoseconds_and_not_negative(seen: list[tuple[int, int, int]]) -> None:
    estimator = ForwardTimeEstimator()
    for size, num_tokens, forward_ns in seen:
        estimator.observe(batch(size=size, num_tokens=num_tokens), forward_ns)
        found = estimator(batch(size=size, num_tokens=num_tokens))
        assert isinstance(found, int)
        assert found >= 0


def flown(of: Batch, launched_ns: int, start_ns: int, end_ns: int) -> Flight:
    times = ForwardTimes(start_ns, end_ns, end_ns)
    return Flight(of, launched_ns, None, "engine", read_times=lambda: times)


def test_the_close_time_is_the_expected_end_less_the_hosts_time() -> None:
    pacer = Pacer()
    first, second = batch(0), batch(1)
    pacer.handed(first, asked_ns=0, closed_ns=0, now_ns=3 * MS)
    assert pacer.num_in_flight == 1
    assert pacer.close_ns() is None, "nothing is known yet"
    pacer.finished(flown(first, 4 * MS, 4 * MS, 54 * MS))
    assert pacer.num_in_flight == 0
    pacer.handed(second, asked_ns=54 * MS, closed_ns=54 * MS, now_ns=57 * MS)
    # Launched at 58, it ends at 108; closing and launching the next takes 4.
    assert pacer.close_ns() == pytest.approx(104 * MS - pacer.margin_ns, rel=0.001)


@dataclass(frozen=True)
class Flown:
    """A batch whose forward takes as long as all others; launching it takes the last millisecond of the host's time."""

    closed_ns: int
    launched_ns: int
    start_ns: int
    end_ns: int

    def hand_to(self, pacer: Pacer) -> None:
        pacer.handed(batch(), asked_ns=self.closed_ns, closed_ns=self.closed_ns, now_ns=self.launched_ns - MS)

    def finish(self, pacer: Pacer) -> None:
        pacer.finished(flown(batch(), self.launched_ns, self.start_ns, self.end_ns))


def paced(forward_ns: int, late_ns: list[int]) -> Pacer:
    """Return a pacer that has timed a batch for each time by which the host, which takes 4 ms, took longer.

    Each batch is closed when the pacer says, or at once if that is over, as the running forward starts.
    """
    pacer = Pacer()
    running = Flown(0, 4 * MS, 4 * MS, 4 * MS + forward_ns)
    running.hand_to(pacer)
    running.finish(pacer)
    running = Flown(
        running.end_ns, running.end_ns + 4 * MS, running.end_ns + 4 * MS, running.end_ns + 4 * MS + forward_ns
    )
    running.hand_to(pacer)
    for late in late_ns:
        close_ns = pacer.close_ns()
        assert close_ns is not None
        closed_ns = max(running.start_ns, close_ns)
        launched_ns = closed_ns + 4 * MS + late
        start_ns = max(running.end_ns, launched_ns)
        queued = Flown(closed_ns, launched_ns, start_ns, start_ns + forward_ns)
        queued.hand_to(pacer)
        running.finish(pacer)
        running = queued
    running.finish(pacer)
    return pacer


US = 1_000
UNSTEADY = [0, 50 * US, 100 * US] * 7
"""Against the usual 50 µs a batch needs -50, 0 or 50 µs: 0 in the middle, and 50 from there."""


@pytest.mark.parametrize(("late_ns", "expected_ns"), [([100 * US] * 21, 0), (UNSTEADY, 300 * US)])
def test_the_margin_is_what_batches_need_in_the_middle_and_six_deviations(late_ns: list[int], expected_ns: int) -> None:
    assert paced(50 * MS, late_ns).margin_ns == expected_ns


@pytest.mark.parametrize("hold_up_ns", [5 * MS, 10**12])
def test_one_hold_up_of_the_host_does_not_make_batches_smaller(hold_up_ns: int) -> None:
    assert paced(50 * MS, [*UNSTEADY, hold_up_ns]).margin_ns == 300 * US


@pytest.mark.parametrize("forward_ns", [MS, 3 * MS])
def test_bubbles_that_no_margin_could_avert_do_not_raise_it(forward_ns: int) -> None:
    """Where a forward is shorter than the host's time every launch is late, however early its batch was closed."""
    assert paced(forward_ns, UNSTEADY * 10).margin_ns <= 300 * US


def alternating() -> BatchTime:
    """Return estimates that are far too short and far too long, with a fixed seed."""
    draw = random.Random(5)
    return lambda of: draw.choice([0, 1, 10**6, 10**12, draw.randrange(10**10)])


WRONG = [lambda of: 0, lambda of: 1, lambda of: 10**12, lambda of: 10**15, lambda of: of.size * 10**9]


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [*WRONG, "alternating"], ids=["0", "1", "10**12", "10**15", "seconds", "alternating"])
@given(served=scenarios())
def test_a_wrong_estimate_never_stalls(wrong: BatchTime | str, served: Scenario) -> None:
    forward_time = alternating() if isinstance(wrong, str) else wrong
    attempt(partial(overlap_just_in_time, forward_time=forward_time), served)


@pytest.mark.parametrize(
    "forward_time", [lambda of: 0, lambda of: 10**12, alternating()], ids=["0", "10**12", "random"]
)
def test_a_wrong_estimate_never_stalls_in_real_time(forward_time: BatchTime) -> None:
    served = scenario(burst(12), Dynamic(2), stages(1, 4, 1))
    attempt(partial(overlap_just_in_time, forward_time=forward_time), served, CpuMachine())


def test_learned_times_close_batches_as_well_as_known_ones() -> None:
    costs = Costs(pre=cost_ms(3), forward=cost_ms(5, per_request=1), post=cost_ms(2))
    served = scenario(poisson(400, qps=400, seed=1), Dynamic(32), costs)
    learned = attempt(overlap_just_in_time, served).metrics.summary
    known = attempt(partial(overlap_just_in_time, forward_time=costs.forward), served).metrics.summary
    assert learned.ttft_mean_ns == pytest.approx(known.ttft_mean_ns, rel=0.05)
