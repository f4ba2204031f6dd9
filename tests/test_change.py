from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from reports.regression.change import (
    Change,
    Samples,
    Verdict,
    exact_change,
    is_constant,
    judge_constant,
    judge_exact,
    judge_measured,
    measured_change,
)
from reports.regression.rules import KINDS, Metric, Rule, Scale
from reports.regression.views import format_change

RULE = Rule(relative=0.01, absolute=0.0, visible=0.05)
TTFT, THROUGHPUT, LEAD, FORWARDS = (
    KINDS[name] for name in ("ttft_mean_ns", "throughput_rps", "launch_lead", "num_forwards")
)


def judge(base: Samples, head: Samples, metric: Metric, rule: Rule = RULE, **options: object) -> Verdict:
    settings = {"is_paired": True, "alpha": 0.001} | options
    change = measured_change(base, head, metric, rule, **settings)  # type: ignore[arg-type]
    return judge_measured(change, metric, rule).verdict


def draw(num: int, noise: float, *, by: float = 0.0, seed: int = 0) -> tuple[Samples, Samples]:
    random = np.random.default_rng(seed)
    base = 1e8 * np.exp(random.normal(0, noise, num))
    return base, 1e8 * (1 + by) * np.exp(random.normal(0, noise, num))


@pytest.mark.parametrize("is_paired", [True, False])
def test_interval_and_p_value_are_those_of_scipy(is_paired: bool) -> None:
    base, head = draw(8, 0.02, by=0.01)
    found = measured_change(base, head, TTFT, RULE, is_paired=is_paired, alpha=0.005)
    test = (
        stats.ttest_rel(np.log(head), np.log(base))
        if is_paired
        else stats.ttest_ind(np.log(head), np.log(base), equal_var=False)
    )
    interval = test.confidence_interval(0.99)
    assert found.low == pytest.approx(np.exp(interval.low))
    assert found.high == pytest.approx(np.exp(interval.high))
    assert found.p_value == pytest.approx(test.pvalue / 2 if test.statistic > 0 else 1 - test.pvalue / 2)


@pytest.mark.parametrize(
    ("metric", "by", "verdict"),
    [
        (TTFT, 0.03, Verdict.REGRESSION),
        (TTFT, -0.03, Verdict.IMPROVEMENT),
        (THROUGHPUT, 0.03, Verdict.IMPROVEMENT),
        (THROUGHPUT, -0.03, Verdict.REGRESSION),
        (TTFT, 0.005, Verdict.OK),
        (TTFT, 0.0, Verdict.OK),
    ],
)
def test_direction_decides_what_a_change_is_called(metric: Metric, by: float, verdict: Verdict) -> None:
    assert judge(*draw(12, 0.001, by=by), metric) is verdict


def test_a_change_needs_statistics_and_size() -> None:
    assert judge(*draw(12, 0.0001, by=0.009), TTFT) is Verdict.OK, "significant, and too small to count"
    assert judge(*draw(12, 0.1, by=0.05), TTFT) is Verdict.UNDECIDED, "large, and within the noise"
    absolute = Rule(relative=0.01, absolute=5e6, visible=0.5)
    assert judge(*draw(12, 0.001, by=0.03), TTFT, absolute) is Verdict.OK, "3 % are 3 ms, below the absolute threshold"
    assert judge(*draw(12, 0.001, by=0.06), TTFT, absolute) is Verdict.REGRESSION


def test_what_could_not_have_shown_5_percent_is_undecided_not_ok() -> None:
    base, head = draw(6, 0.03)
    change = measured_change(base, head, TTFT, RULE, is_paired=True, alpha=0.001)
    assert change.smallest is not None
    assert change.smallest > 0.05
    assert judge(base, base * np.exp(np.random.default_rng(1).normal(0, 0.03, 6)), TTFT) is Verdict.UNDECIDED


@pytest.mark.parametrize("num", [1])
def test_one_sample_decides_nothing(num: int) -> None:
    assert judge(*draw(num, 0.001), TTFT) is Verdict.UNDECIDED
    assert judge(*draw(num, 0.001, by=1), TTFT) is Verdict.UNDECIDED


@pytest.mark.slow
@pytest.mark.parametrize("is_paired", [True, False])
def test_the_smallest_visible_regression_is_found_as_often_as_promised(is_paired: bool) -> None:
    found, smallest = 0, []
    for seed in range(400):
        base, head = draw(9, 0.01, seed=seed)
        change = measured_change(base, head, TTFT, RULE, is_paired=is_paired, alpha=0.001)
        assert change.smallest is not None
        smallest.append(change.smallest)
    typical = float(np.median(smallest))
    for seed in range(400):
        found += judge(*draw(9, 0.01, by=typical, seed=1000 + seed), TTFT, is_paired=is_paired) is Verdict.REGRESSION
    assert found / 400 > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("is_paired", [True, False])
def test_false_alarms_are_no_more_often_than_alpha(is_paired: bool) -> None:
    none = Rule(relative=0.0, absolute=0.0, visible=1.0)  # statistics alone
    alarms = sum(
        judge(*draw(6, 0.02, seed=seed), TTFT, none, is_paired=is_paired, alpha=0.05) is Verdict.REGRESSION
        for seed in range(1000)
    )
    assert stats.binomtest(alarms, 1000, 0.05, alternative="greater").pvalue > 0.001
    assert alarms > 10, "and the test is not blind"


def test_zeros_are_compared_by_difference() -> None:
    zero = np.zeros(6)
    rule = Rule(relative=0.01, absolute=1000.0, visible=0.05)
    assert judge(zero, zero, TTFT, rule) is Verdict.OK, "0 to 0 is no infinite regression"
    assert judge(zero, zero + 900, TTFT, rule) is Verdict.OK, (
        "below the absolute limit, the only one that has a meaning"
    )
    assert judge(zero, zero + 2000, TTFT, rule) is Verdict.REGRESSION
    assert judge(zero + 2000, zero, TTFT, rule) is Verdict.IMPROVEMENT


def test_shares_change_by_difference() -> None:
    rule = Rule(relative=0.0, absolute=0.05, visible=0.2)
    base = np.array([0.9, 0.91, 0.9, 0.89, 0.9, 0.9])
    assert judge(base, base - 0.04, LEAD, rule) is Verdict.OK
    assert judge(base, base * 0, LEAD, rule) is Verdict.REGRESSION, "overlap is off"


@pytest.mark.parametrize(
    ("num", "head", "verdict"),
    [
        (2, 14, Verdict.OK),
        (7, 15, Verdict.UNDECIDED),
        (8, 15, Verdict.REGRESSION),
        (8, 13, Verdict.IMPROVEMENT),
    ],
)
def test_counts_that_never_vary_are_exact_where_samples_are_enough_to_tell(
    num: int, head: int, verdict: Verdict
) -> None:
    """2 · 4⁻⁷ is 1.2e-4, and 2 · 4⁻⁸ is 3.1e-5."""
    x, y = np.full(num, 14.0), np.full(num, float(head))
    assert is_constant(x, y)
    assert judge_constant(exact_change(x, y, FORWARDS), FORWARDS, RULE, 1e-4, num).verdict is verdict
    assert not is_constant(np.append(x, 15.0), y)
    assert not is_constant(x[:1], y[:1])


def test_a_constant_share_keeps_its_threshold() -> None:
    rule = Rule(relative=0.0, absolute=0.05, visible=0.2)
    for share, verdict in ((0.86, Verdict.OK), (0.8, Verdict.REGRESSION), (1.0, Verdict.IMPROVEMENT)):
        change = exact_change(np.full(9, 0.9), np.full(9, share), LEAD)
        assert judge_constant(change, LEAD, rule, 1e-4, 9).verdict is verdict


@pytest.mark.slow
@pytest.mark.parametrize("is_paired", [True, False])
def test_values_on_a_grid_do_not_alarm_by_agreeing_by_chance(is_paired: bool) -> None:
    """Launch leads of 0.25 or 0.125, each as likely: five pairs agree within each side in 1 of 512 cases."""
    rule = Rule(relative=0.0, absolute=0.05, visible=0.2)
    random = np.random.default_rng(3)
    for num in (5, 6):
        for values in random.choice([0.25, 0.125], size=(4000, 2, num)):
            change = measured_change(
                values[0], values[1], LEAD, rule, is_paired=is_paired, alpha=4e-5, resolution=0.125
            )
            assert judge_measured(change, LEAD, rule).verdict is not Verdict.REGRESSION


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_exact_values_show_any_change(before: int, after: int) -> None:
    change = exact_change(np.array([float(before)]), np.array([float(after)]), FORWARDS)
    assert change.is_exact
    verdict = judge_exact(change, FORWARDS).verdict
    assert verdict is (Verdict.OK if before == after else Verdict.REGRESSION if after > before else Verdict.IMPROVEMENT)


def test_a_metric_without_direction_is_changed() -> None:
    change = exact_change(np.array([1.0]), np.array([2.0]), KINDS["batch_size_mean"])
    assert judge_exact(change, KINDS["batch_size_mean"]).verdict is Verdict.CHANGED


@given(st.lists(st.floats(1e3, 1e12), min_size=2, max_size=10), st.floats(0.5, 2.0), st.booleans())
def test_every_number_is_finite_or_none(values: list[float], factor: float, is_paired: bool) -> None:
    base = np.array(values)
    found = measured_change(base, base[::-1] * factor, TTFT, RULE, is_paired=is_paired, alpha=1e-6)
    numbers = [getattr(found, name) for name in Change.__dataclass_fields__]
    assert all(np.isfinite(each) for each in numbers if isinstance(each, float))


def test_the_smallest_visible_regression_is_on_the_worse_side() -> None:
    """A throughput can fall by at most 100 %, a time can rise by more."""
    base, head = draw(4, 0.3)
    rise = measured_change(base, head, TTFT, RULE, is_paired=True, alpha=1e-5).smallest
    fall = measured_change(base, head, THROUGHPUT, RULE, is_paired=True, alpha=1e-5).smallest
    assert rise is not None
    assert fall is not None
    assert rise > 1
    assert fall < 1


def test_the_smallest_visible_regression_is_never_below_the_threshold() -> None:
    base, head = draw(12, 1e-6)
    for threshold in (0.01, 0.04):
        rule = Rule(relative=threshold, absolute=0.0, visible=0.05)
        found = measured_change(base, head, TTFT, rule, is_paired=True, alpha=1e-5)
        assert found.smallest == pytest.approx(threshold, rel=0.01)
    absolute = measured_change(base * 0, head * 0, TTFT, Rule(0.5, 7.0, 0.05), is_paired=True, alpha=1e-5)
    assert absolute.smallest == 7.0


def test_a_change_beyond_the_threshold_whose_interval_includes_none_is_undecided() -> None:
    base = np.full(6, 1e8)
    head = base * (1 + 0.012 * np.array([2.2, 0.1, 1.9, 0.3, 1.2, 0.5]))
    change = measured_change(base, head, TTFT, Rule(0.01, 0.0, 0.2), is_paired=True, alpha=0.001)
    assert change.low is not None
    assert change.low < 1
    assert judge_measured(change, TTFT, Rule(0.01, 0.0, 0.2)).verdict is Verdict.UNDECIDED


def test_relative_thresholds_of_differences_are_shares_of_the_base() -> None:
    rule = Rule(relative=0.1, absolute=0.0, visible=10.0)
    base = np.array([0.0, 100.0, 100.0, 100.0, 100.0, 100.0])
    assert judge(base, base + 5, TTFT, rule) is Verdict.OK
    assert judge(base, base + 20, TTFT, rule) is Verdict.REGRESSION


def test_luck_widens_the_interval_without_costing_degrees_of_freedom() -> None:
    base, head = draw(10, 1e-5)
    found = measured_change(base, head, TTFT, RULE, is_paired=False, alpha=0.025, luck=0.01)
    assert found.high == pytest.approx(np.exp(1.96 * 0.01), rel=1e-3)
    share = measured_change(np.full(5, 0.5), np.full(5, 0.5), LEAD, RULE, is_paired=False, alpha=0.025, luck=0.01)
    assert share.high == pytest.approx(0.0196, rel=1e-3)
    zero = measured_change(
        np.array([0.0, 10.0]), np.array([0.0, 10.0]), TTFT, RULE, is_paired=False, alpha=0.025, luck=1
    )
    assert zero.high is not None
    assert zero.high > 9.8


def test_extreme_values_are_cut_off_and_not_an_error() -> None:
    found = measured_change(np.full(3, 1e-300), np.full(3, 1e30), TTFT, RULE, is_paired=True, alpha=0.01)
    assert found.estimate is not None
    assert np.isfinite(found.estimate)


@pytest.mark.parametrize(
    ("value", "scale", "metric", "shown"),
    [
        (-0.0000526, Scale.DIFFERENCE, "launch_lead", "-5e-05"),
        (0.0, Scale.DIFFERENCE, "launch_lead", "+0.000"),
        (0.12, Scale.DIFFERENCE, "launch_lead", "+0.120"),
        (3.0, Scale.DIFFERENCE, "num_forwards", "+3"),
        (1.0000012, Scale.RATIO, "ttft_mean_ns", "+0.0001 %"),
        (1.0, Scale.RATIO, "ttft_mean_ns", "+0.00 %"),
        (0.95, Scale.RATIO, "ttft_mean_ns", "-5.00 %"),
        (12.0, Scale.RATIO, "ttft_mean_ns", "over +1000 %"),
    ],
)
def test_a_change_is_never_shown_as_none(value: float, scale: Scale, metric: str, shown: str) -> None:
    assert format_change(value, scale, metric) == shown
