from __future__ import annotations

import math
from itertools import pairwise
from statistics import fmean, pstdev

import pytest

from impl.core import Request
from impl.errors import SettingError
from impl.tokens import MAX_REQUESTS, POSITIONS
from impl.workload import Lengths, Workload, burst, constant, from_gaps, gamma, poisson

NOT_POSITIVE = [0, -1, math.nan, math.inf, -math.inf, True, "50", None]


def gaps_of(workload: Workload) -> list[int]:
    return [after.arrival_ns - before.arrival_ns for before, after in pairwise(workload.requests)]


def test_a_burst_arrives_at_the_start() -> None:
    assert [request.arrival_ns for request in burst(4).requests] == [0, 0, 0, 0]
    assert burst(4).mean_gap_ns == 0
    assert burst(1).mean_gap_ns == 0


def test_constant_arrivals_are_evenly_spaced() -> None:
    workload = constant(5, qps=50)
    assert gaps_of(workload) == [20_000_000] * 4
    assert workload.requests[0].arrival_ns == 0
    assert workload.mean_gap_ns == 20_000_000


def test_poisson_gaps_have_the_rate_and_spread_of_an_exponential() -> None:
    gaps = gaps_of(poisson(20_000, qps=100, seed=1))
    assert fmean(gaps) == pytest.approx(10_000_000, rel=0.03)
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("cv", [0.5, 1, 2])
def test_gamma_gaps_have_the_rate_and_spread_asked_for(cv: float) -> None:
    gaps = gaps_of(gamma(20_000, qps=100, cv=cv, seed=2))
    assert fmean(gaps) == pytest.approx(10_000_000, rel=0.05)
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(cv, rel=0.06)


def test_arrivals_follow_from_the_seed() -> None:
    assert poisson(50, qps=10, seed=3) == poisson(50, qps=10, seed=3)
    assert poisson(50, qps=10, seed=3) != poisson(50, qps=10, seed=4)
    assert poisson(50, qps=10, seed=3) == gamma(50, qps=10, cv=1, seed=3)


def test_lengths_are_for_all_requests_or_for_each() -> None:
    each = [Lengths(1, 2, 3), Lengths(4, 5)]
    first, second = burst(2, each).requests
    assert (first.prompt_tokens, first.max_output_tokens, first.stop_after) == (1, 2, 3)
    assert (second.prompt_tokens, second.max_output_tokens, second.stop_after) == (4, 5, None)
    assert {request.prompt_tokens for request in constant(3, qps=1, lengths=Lengths(6)).requests} == {6}
    with pytest.raises(SettingError, match="2 lengths for 3 requests; allowed: one for each request"):
        burst(3, each)


def test_scaling_moves_arrivals_and_nothing_else() -> None:
    workload = from_gaps([10, 20], Lengths(3, 4, 2))
    assert workload.scaled(0.5).requests == (Request(0, 5, 3, 4, 2), Request(1, 15, 3, 4, 2))


@pytest.mark.parametrize("qps", NOT_POSITIVE)
def test_a_rate_must_be_a_finite_number_above_0(qps: float) -> None:
    for make in (lambda: constant(3, qps=qps), lambda: poisson(3, qps=qps, seed=0)):
        with pytest.raises(SettingError) as caught:
            make()
        assert str(caught.value) == f"qps is {qps!r}; allowed: a finite number of requests per second above 0"


@pytest.mark.parametrize("cv", NOT_POSITIVE)
def test_a_spread_must_be_a_finite_number_above_0(cv: float) -> None:
    with pytest.raises(SettingError, match="coefficient of variation above 0") as caught:
        gamma(3, qps=1, cv=cv, seed=0)
    assert f"cv is {cv!r};" in str(caught.value)


@pytest.mark.parametrize("num", [0, -1, 2.0, True, None])
def test_a_workload_has_a_whole_number_of_requests(num: int) -> None:
    told = f"num_requests is {num!r}; allowed: a whole number of requests, at least 1"
    for make in (lambda: burst(num), lambda: constant(num, qps=1), lambda: poisson(num, qps=1, seed=0)):
        with pytest.raises(SettingError) as caught:
            make()
        assert str(caught.value) == told
    with pytest.raises(SettingError, match=r"number of requests is 0; allowed: .* at least 1"):
        Workload(())


def test_a_workload_is_not_larger_than_its_tokens_allow() -> None:
    too_many = (Request(0, 0),) * (MAX_REQUESTS + 1)
    with pytest.raises(SettingError, match=f"{MAX_REQUESTS + 1} requests; allowed: at most {MAX_REQUESTS}"):
        Workload(too_many)


@pytest.mark.parametrize(
    ("requests", "told"),
    [
        ([Request(0, 5), Request(1, 4)], "request 1 arrives at 4 ns, before its predecessor (5 ns); allowed: arrivals"),
        ([Request(0, -1)], "request 0: arrival_ns is -1; allowed: a whole number of nanoseconds, at least 0"),
        ([Request(0, 1.5)], "request 0: arrival_ns is 1.5; allowed: a whole number of nanoseconds"),  # type: ignore[arg-type]
        ([Request(0, math.nan)], "request 0: arrival_ns is nan; allowed: a whole number of nanoseconds"),  # type: ignore[arg-type]
        ([Request(0, True)], "request 0: arrival_ns is True; allowed: a whole number of nanoseconds"),
        ([Request(1, 0)], "request 1 stands at place 0; allowed: ids 0, 1, 2, …"),
        ([Request(0, 0, prompt_tokens=0)], "prompt_tokens is 0; allowed: a whole number of tokens, at least 1"),
        ([Request(0, 0, prompt_tokens=True)], "prompt_tokens is True; allowed: a whole number of tokens"),
        ([Request(0, 0, max_output_tokens=0)], "max_output_tokens is 0; allowed: a whole number of tokens, at least 1"),
        (
            [Request(0, 0, max_output_tokens=POSITIONS + 1)],
            f"max_output_tokens is {POSITIONS + 1} tokens; allowed: at most {POSITIONS}",
        ),
        ([Request(0, 0, stop_after=0)], "stop_after is 0; allowed: a whole number of tokens, at least 1"),
        ([Request(0, 0, stop_after=False)], "stop_after is False; allowed: a whole number of tokens"),
    ],
)
def test_a_bad_request_is_named_with_value_unit_and_what_is_allowed(requests: list[Request], told: str) -> None:
    with pytest.raises(SettingError) as caught:
        Workload(tuple(requests))
    assert told in str(caught.value)


@pytest.mark.parametrize("make", [lambda: constant(2, qps=1e-300), lambda: gamma(2, qps=1, cv=1e-200, seed=1)])
def test_rates_at_which_nanoseconds_overflow_are_refused(make: object) -> None:
    with pytest.raises(SettingError, match="allowed: from 1e-06 to 1e"):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("factor", [0, -1, float("nan")])
def test_a_workload_is_scaled_by_positive_numbers_only(factor: float) -> None:
    with pytest.raises(SettingError, match="scale is"):
        burst(2).scaled(factor)
