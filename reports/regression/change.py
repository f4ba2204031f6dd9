"""How a metric changed between two commits: estimate, interval, the smallest regression it could have shown, verdict.

A change is a ratio head / base or a difference head − base. Inside this module both are one number that is positive
where the head is worse: the logarithm of the ratio or the difference, times −1 for metrics that are better high.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit

from reports.regression.rules import POWER, Better, Metric, Rule, Scale

Samples = NDArray[np.float64]
"""One value for each process, or for each round where there are too few processes."""
MANY_FREEDOM = 1e6
"""Degrees of freedom with which t is normal to the last digit shown."""
LARGEST_LOG = 50.0
"""Of a ratio: the interval of two samples can be wider than floating point."""


class Verdict(Enum):
    """What a comparison says of one metric of one case."""

    OK = "OK"
    """Nothing beyond the threshold, and a regression of the size that matters would have shown."""
    REGRESSION = "REGRESSION"
    IMPROVEMENT = "IMPROVEMENT"
    CHANGED = "CHANGED"
    """An exact metric that is neither better high nor low has another value."""
    UNDECIDED = "UNDECIDED"
    SHOWN = "shown"
    """Not judged."""


@dataclass(frozen=True, slots=True)
class Change:
    """A metric's change, on its own scale: a ratio, or a difference in the metric's unit."""

    scale: Scale
    base: float
    """Mean of the base side."""
    head: float
    estimate: float
    low: float | None
    """Ends of the interval; None from too few samples."""
    high: float | None
    smallest: float | None
    """The smallest regression that would have been found with 95 % probability: a share, or in the metric's unit."""
    p_value: float | None
    """Of no regression, one-sided and before any correction."""
    num_base: int
    num_head: int
    is_exact: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with its reason in words."""

    verdict: Verdict
    reason: str


def exact_change(base: Samples, head: Samples, metric: Metric) -> Change:
    """Return the change of a value that is the same in every run."""
    before, after = float(base[0]), float(head[0])
    scale = metric.scale if before > 0 and after > 0 else Scale.DIFFERENCE
    estimate = after / before if scale is Scale.RATIO else after - before
    return Change(scale, before, after, estimate, estimate, estimate, 0.0, None, len(base), len(head), is_exact=True)


def measured_change(
    base: Samples,
    head: Samples,
    metric: Metric,
    rule: Rule,
    *,
    is_paired: bool,
    alpha: float,
    resolution: float = 0.0,
    luck: float = 0.0,
) -> Change:
    """Return the change of a measured value, with the two-sided interval of confidence 1 − 2·alpha.

    Paired samples (one of each side measured together) are compared by the t-interval of their differences, others by
    Welch's. Values with a zero among them are compared by difference.

    Args:
        base, head: a sample each for every process or round.
        metric: what it is.
        rule: thresholds.
        is_paired: whether base[i] and head[i] were measured together.
        alpha: probability, at most, with which equal sides give an interval on the worse side.
        resolution: smallest step between two values of the metric, in its unit; 0 where it is continuous. A few values
            on a grid agree by chance, so they count as no less noisy than rounding to the grid would make them.
        luck: standard deviation, as a share (of shares: in points), of what all samples of a side have in common. It is
            known, not measured, so it adds to the variance and not to what the interval pays for few samples.

    Source: Welch, Biometrika 34 (1947), 28–35; Sheppard, Proc. London Math. Soc. 29 (1898), 353–380 (the variance of
    rounding, a twelfth of the step squared).
    """
    scale = metric.scale if (base > 0).all() and (head > 0).all() else Scale.DIFFERENCE
    sign = -1.0 if metric.better is Better.HIGHER else 1.0
    x, y = (np.log(base), np.log(head)) if scale is Scale.RATIO else (base, head)
    mean = float(y.mean() - x.mean())
    low = high = smallest = p_value = None
    if min(len(x), len(y)) >= 2:
        step = resolution / min(base.mean(), head.mean()) if scale is Scale.RATIO else resolution
        is_relative = scale is Scale.RATIO or metric.unit == "share"
        shared = luck if is_relative else luck * float(max(base.mean(), head.mean()))
        test = _paired_error if is_paired else _welch_error
        error, freedom = test(x, y, step**2 / 12, shared**2)
        quantile = float(stdtrit(freedom, 1 - alpha))
        half = quantile * error
        low, high = mean - half, mean + half
        p_value = _p_value(sign * mean, error, freedom)
        least = least_change(rule, scale, float(base.mean())) + float(stdtrit(freedom, POWER)) * error
        needed = max(_noncentrality(quantile, freedom) * error, least)
        smallest = _size(needed, sign) if scale is Scale.RATIO else needed
    if scale is Scale.RATIO:
        mean, low, high = _exp(mean), *(None if end is None else _exp(end) for end in (low, high))
    return Change(
        scale, float(base.mean()), float(head.mean()), mean, low, high, smallest, p_value, len(base), len(head)
    )


def _size(needed: float, sign: float) -> float:
    """Return a regression on the logarithmic scale as a share of the base."""
    return abs(math.expm1(sign * min(needed, LARGEST_LOG)))


def _exp(end: float) -> float:
    return math.exp(max(-LARGEST_LOG, min(end, LARGEST_LOG)))


def _noncentrality(quantile: float, freedom: float) -> float:
    """Return the true change, in standard errors, with which a t-test passes its quantile with `POWER`.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.10 (the noncentral t as a normal).
    """
    return quantile * (1 - 1 / (4 * freedom)) + float(ndtri(POWER)) * math.sqrt(1 + quantile**2 / (2 * freedom))


def _paired_error(x: Samples, y: Samples, least: float, shared: float) -> tuple[float, float]:
    variance = max(float((y - x).var(ddof=1)), 2 * least)
    return math.sqrt(variance / len(x) + shared), len(x) - 1.0


def _welch_error(x: Samples, y: Samples, least: float, shared: float) -> tuple[float, float]:
    a, b = max(float(x.var(ddof=1)), least) / len(x), max(float(y.var(ddof=1)), least) / len(y)
    total = a + b + shared
    estimated = a**2 / (len(x) - 1) + b**2 / (len(y) - 1)
    # Satterthwaite's formula: a known part has no degrees of freedom to lose.
    return math.sqrt(total), MANY_FREEDOM if estimated == 0 else min(total**2 / estimated, MANY_FREEDOM)


def _p_value(worsening: float, error: float, freedom: float) -> float:
    if error == 0:
        return 1.0 if worsening <= 0 else 0.0
    return float(stdtr(freedom, -worsening / error))


def least_change(rule: Rule, scale: Scale, base: float) -> float:
    """Return the least change that counts, on the scale of comparison."""
    if scale is Scale.DIFFERENCE:
        return max(rule.absolute, rule.relative * abs(base))
    return math.log1p(max(rule.relative, rule.absolute / base))


def _visible(rule: Rule, metric: Metric, change: Change) -> float:
    """Return the regression that must be visible, on the scale of `Change.smallest`."""
    if change.scale is metric.scale:
        return rule.visible
    return max(rule.visible * abs(change.base), rule.absolute)  # a ratio has no meaning here: there is a zero


def judge_exact(change: Change, metric: Metric) -> Judgement:
    """Judge an exact value: any change counts."""
    if change.base == change.head:
        return Judgement(Verdict.OK, "equal")
    if metric.better is Better.NEITHER:
        return Judgement(Verdict.CHANGED, "exact, and another value")
    is_worse = (change.head > change.base) == (metric.better is Better.LOWER)
    return Judgement(Verdict.REGRESSION if is_worse else Verdict.IMPROVEMENT, "exact: any change counts")


def judge_measured(change: Change, metric: Metric, rule: Rule) -> Judgement:
    """Judge a measured value: a change needs statistics and size, and calm needs eyes that could have seen."""
    if change.low is None or change.high is None or change.smallest is None:
        return Judgement(Verdict.UNDECIDED, f"{change.num_base} + {change.num_head} samples: 2 + 2 are the least")
    neutral = 1.0 if change.scale is Scale.RATIO else 0.0
    threshold = least_change(rule, change.scale, change.base)
    size = abs(math.log(change.estimate)) if change.scale is Scale.RATIO else abs(change.estimate)
    is_large = size > threshold
    is_significant = not change.low <= neutral <= change.high
    if is_significant and is_large:
        is_worse = (change.estimate > neutral) == (metric.better is Better.LOWER)
        return Judgement(Verdict.REGRESSION if is_worse else Verdict.IMPROVEMENT, "interval and threshold exceeded")
    if change.smallest > _visible(rule, metric, change):
        return Judgement(Verdict.UNDECIDED, "too noisy: could not have shown a regression of the size that matters")
    if is_large:
        return Judgement(Verdict.UNDECIDED, "beyond the threshold, but the interval includes no change")
    return Judgement(Verdict.OK, "significant, but within the threshold" if is_significant else "no change shown")


def is_constant(base: Samples, head: Samples) -> bool:
    """Return whether neither side ever varied, in two samples or more."""
    return min(len(base), len(head)) >= 2 and bool((base == base[0]).all() and (head == head[0]).all())


def judge_constant(change: Change, metric: Metric, rule: Rule, alpha: float, num_independent: int) -> Judgement:
    """Judge a value on a grid that never varied within a side.

    Two values that are equally likely would give this picture in 2 of 4**n cases: only if that is less than `alpha` is
    a difference taken to be exact. n is the number of samples a side that are independent of each other.
    """
    if change.base == change.head:
        return Judgement(Verdict.OK, "the same in every sample")
    size = abs(change.head - change.base)
    if not metric.is_count and size <= least_change(rule, Scale.DIFFERENCE, change.base):
        return Judgement(Verdict.OK, "constant, and within the threshold")
    if 2 * 4.0**-num_independent > alpha:
        return Judgement(Verdict.UNDECIDED, "differs, but so few equal values may be chance")
    return judge_exact(change, metric)
