from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from reports.verdict import CONFIDENCE, Check, Interval, Verdict, decide, interval, worst

FINITE = st.floats(-1e9, 1e9)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0, 10, Verdict.HOLDS),
        (2, 4, Verdict.HOLDS),
        (5, 10, Verdict.FAILS),
        (-10, 1, Verdict.FAILS),
        (3, 10, Verdict.UNDECIDED),
        (0, 3, Verdict.UNDECIDED),
        (2.5, 3.5, Verdict.UNDECIDED),
        (4, 10, Verdict.UNDECIDED),
        (-math.inf, 4, Verdict.HOLDS),
        (4.1, math.inf, Verdict.FAILS),
    ],
)
def test_an_interval_holds_inside_the_bounds_and_fails_only_outside(low: float, high: float, verdict: Verdict) -> None:
    assert decide(Interval(3, 2, 4, 5), low, high) is verdict


@given(low=FINITE, high=FINITE, mean=FINITE, half=st.floats(0, 1e6))
def test_a_verdict_never_contradicts_the_mean(low: float, high: float, mean: float, half: float) -> None:
    verdict = decide(Interval(mean, mean - half, mean + half, 5), low, high)
    if verdict is Verdict.HOLDS:
        assert low <= mean <= high
    if verdict is Verdict.FAILS:
        assert not low <= mean <= high
    if half == 0 and low <= high:
        assert verdict is (Verdict.HOLDS if low <= mean <= high else Verdict.FAILS)


def test_what_is_not_a_number_does_not_hold() -> None:
    assert decide(Interval(math.nan, math.nan, math.nan, 3), -math.inf, math.inf) is not Verdict.HOLDS


def test_one_exact_round_has_no_spread() -> None:
    assert interval(np.array([1.5])) == Interval(1.5, 1.5, 1.5, 1)
    assert interval(np.float64(1.5)) == Interval(1.5, 1.5, 1.5, 1)


def test_several_rounds_give_the_t_interval_of_their_mean() -> None:
    samples = np.array([1.0, 2.0, 4.0, 4.0])
    found = interval(samples)
    low, high = stats.t.interval(CONFIDENCE, df=3, loc=samples.mean(), scale=stats.sem(samples))
    assert (found.mean, found.num_rounds) == (2.75, 4)
    assert (found.low, found.high) == pytest.approx((low, high))
    equal = interval(np.array([2.0, 2.0]))
    assert equal == Interval(2, 2, 2, 2)


def test_the_interval_covers_the_true_mean_as_often_as_stated() -> None:
    rounds = np.random.default_rng(0).normal(10, 1, size=(1000, 5))
    found = [interval(samples) for samples in rounds]
    share = np.mean([each.low <= 10 <= each.high for each in found])
    assert share == pytest.approx(CONFIDENCE, abs=0.02)


def test_the_worst_verdict_counts() -> None:
    order = [Verdict.FAILS, Verdict.UNDECIDED, Verdict.NOT_RUN, Verdict.HOLDS]
    for index, verdict in enumerate(order):
        for some in permutations(order[index:]):
            assert worst(some) is verdict
    assert worst([Verdict.HOLDS, Verdict.HOLDS]) is Verdict.HOLDS
    assert worst([]) is Verdict.NOT_RUN, "a claim that checked nothing has not run"


def test_a_check_shows_value_spread_rounds_and_what_was_wanted() -> None:
    check = Check("throughput gain", "at least 0.3", Interval(0.25, 0.2, 0.31, 5), Verdict.UNDECIDED)
    assert str(check) == "UNDECIDED: throughput gain = 0.25 [0.2, 0.31] in 5 rounds, wanted at least 0.3"
    exact = Check("gain", "0.5", Interval(0.5, 0.5, 0.5, 1), Verdict.HOLDS)
    assert str(exact) == "HOLDS: gain = 0.5, wanted 0.5"
    long = Check("total", "2,650.001000 ms", Interval(2.65e9, 2.65e9, 2.65e9, 1), Verdict.FAILS)
    assert str(long) == "FAILS: total = 2,650.000000 ms, wanted 2,650.001000 ms"
