from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from reports.regression.change_points import find_steps, intervals
from reports.regression.results import Key
from reports.regression.rules import FALSE_ALARM_RATE, Scale, read_rules
from reports.regression.series import Finding, Point, Series

RULES = read_rules()
Generator = np.random.Generator


def series(values: Sequence[object], metric: str = "throughput_rps", device: str = "cuda") -> Series:
    """Return a series; a value is one process of one commit, or a list of its processes."""
    arrays = [np.atleast_1d(np.asarray(value, dtype=np.float64)) for value in values]
    points = tuple(Point(position, array, array) for position, array in enumerate(arrays))
    return Series(Key(device, "saturated/overlap"), 1.0, metric, points, 0)


def places(values: Sequence[object], num_tested: int = 1, metric: str = "throughput_rps") -> list[int]:
    return [step.index for step in find_steps(series(values, metric), RULES, num_tested).steps]


def noise(random: Generator, num: int, share: float = 0.01) -> np.ndarray:
    return 100 * np.exp(share * random.standard_normal(num))


def stepped(random: Generator, *at: int, num: int = 20, size: float = 0.95, share: float = 0.01) -> np.ndarray:
    """Return noisy values with a step down at the first, third, … place and back up at the others."""
    values = noise(random, num, share)
    for number, place in enumerate(at):
        values[place:] *= size if number % 2 == 0 else 1 / size
    return values


# Simulations. The noise is 5 % where it must get past the threshold of 1 %, which alone keeps smaller noise silent.
# Few trials, to be quick, but enough that ten times the stated rate of false alarms would fail in each.


@pytest.mark.parametrize(
    ("num", "trials"), [(4, 800), (8, 300), (20, 150), pytest.param(60, 60, marks=pytest.mark.slow)]
)
def test_flat_series_raise_no_more_false_alarms_than_stated(num: int, trials: int) -> None:
    random = np.random.default_rng(num)
    alarms = sum(bool(places(noise(random, num, 0.05))) for _ in range(trials))
    assert alarms <= FALSE_ALARM_RATE * trials


@pytest.mark.slow
def test_the_rate_holds_for_all_series_together() -> None:
    random, trials, num_series = np.random.default_rng(7), 100, 25
    families = ([places(noise(random, 4, 0.05), num_series) for _ in range(num_series)] for _ in range(trials))
    assert sum(any(family) for family in families) <= FALSE_ALARM_RATE * trials


@pytest.mark.parametrize("num_noisy", [2, 3, 5])
def test_a_noisier_end_raises_no_false_alarms(num_noisy: int) -> None:
    random, trials = np.random.default_rng(num_noisy), 120
    quiet, noisy = 20 - num_noisy, num_noisy
    made = (np.concatenate([noise(random, quiet), noise(random, noisy, 0.03)]) for _ in range(trials))
    assert sum(bool(places(values)) for values in made) <= 2 * FALSE_ALARM_RATE * trials  # the t-tests approximate here


@pytest.mark.parametrize("num_processes", [1, 3])
def test_a_step_is_found_at_the_right_commit(num_processes: int) -> None:
    random, trials = np.random.default_rng(1), 100
    found = []
    for _ in range(trials):
        levels = [1.0] * 10 + [0.95] * 10
        found.append(places([level * noise(random, num_processes) for level in levels]))
    assert sum(each == [10] for each in found) >= 0.95 * trials
    assert all(len(each) <= 2 for each in found)


def test_a_step_among_all_cases_is_still_found() -> None:
    random, trials = np.random.default_rng(2), 60
    assert sum(places(stepped(random, 10), num_tested=198) == [10] for _ in range(trials)) >= 0.85 * trials


@pytest.mark.parametrize(
    ("at", "num", "share"),
    [
        pytest.param((20, 40), 60, 0.9, marks=pytest.mark.slow),
        pytest.param((20, 30), 60, 0.9, marks=pytest.mark.slow),
        ((7, 14), 20, 0.5),
    ],
)
def test_a_step_that_is_taken_back_is_two(at: tuple[int, int], num: int, share: float) -> None:
    random, trials = np.random.default_rng(3), 30
    found = [places(stepped(random, *at, num=num)) for _ in range(trials)]
    assert sum(each == list(at) for each in found) >= share * trials
    assert sum(len(each) > 2 for each in found) <= 2 * FALSE_ALARM_RATE * trials


@pytest.mark.parametrize("num_processes", [1, 30])
def test_a_lone_outlier_is_no_change_point(num_processes: int) -> None:
    random = np.random.default_rng(4)
    for outlier in range(20):
        values = [noise(random, num_processes) for _ in range(20)]
        values[outlier] *= 1.3
        assert places(values) == []


@pytest.mark.parametrize("share", [0.0001, 0.001, 0.01])
def test_a_drift_is_a_few_steps(share: float) -> None:
    random = np.random.default_rng(5)
    values = noise(random, 200, share) * np.exp(0.001 * np.arange(200))  # 22 % in all
    found = find_steps(series(values), RULES, 1)
    assert 1 <= len(found.steps) <= 15
    assert found.longest_run >= 3


def test_luck_that_rounds_of_a_process_share_is_no_change() -> None:
    random, trials, alarms = np.random.default_rng(6), 150, 0
    for _ in range(trials):
        rounds = [luck * noise(random, 10, 0.002) / 100 for luck in noise(random, 10, 0.05)]
        points = tuple(Point(i, each, np.array([each.mean()])) for i, each in enumerate(rounds))
        found = find_steps(Series(Key("cuda", "a/b"), 1.0, "throughput_rps", points, 0), RULES, 1)
        alarms += bool(found.steps)
    assert alarms <= FALSE_ALARM_RATE * trials


def test_the_smallest_step_is_found_as_often_as_stated() -> None:
    random, trials = np.random.default_rng(8), 80
    smallest = find_steps(series(noise(random, 20)), RULES, 1).smallest
    assert smallest is not None
    assert 0.02 < smallest < 0.05
    sizes = [find_steps(series(stepped(random, 10, size=1 / (1 + smallest))), RULES, 1).steps for _ in range(trials)]
    assert sum(len(each) == 1 for each in sizes) >= 0.85 * trials  # its own noise is an estimate


# Rules.


def test_a_step_within_the_threshold_is_none() -> None:
    random = np.random.default_rng(9)
    assert places(stepped(random, 10, size=0.993, share=0.0005)) == []
    assert places(stepped(random, 10, size=0.985, share=0.0005)) == [10]


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("throughput_rps", ["regression", "improvement"]),
        ("ttft_mean_ns", ["improvement", "regression"]),
        ("batch_size_mean", ["change", "change"]),
    ],
)
def test_words_follow_the_metrics_direction(metric: str, words: list[str]) -> None:
    factor = 1e6 if metric.endswith("_ns") else 1.0  # the threshold of times is 20 µs
    values = factor * stepped(np.random.default_rng(10), 15, 30, num=45)
    found = find_steps(series(values, metric), RULES, 1)
    assert [step.word for step in found.steps] == words
    assert found.steps[0].estimate == pytest.approx(0.95, abs=0.01)
    assert found.segments == [(0, 15), (15, 30), (30, 45)]


def test_shares_change_by_differences() -> None:
    values = [0.0] * 10 + [0.3] * 10
    (step,) = find_steps(series(values, "gpu_idle_share"), RULES, 1).steps
    assert (step.scale, step.word) == (Scale.DIFFERENCE, "regression")
    assert step.estimate == pytest.approx(0.3)


def test_counts_that_agree_a_few_times_are_no_evidence() -> None:
    assert places([15, 15, 14, 14], metric="num_forwards") == []
    assert places([15] * 5 + [14] * 5, metric="num_forwards") == [5]
    assert places([15] * 10, metric="num_forwards") == []


@pytest.mark.parametrize("num", [1, 2, 3])
def test_less_than_four_commits_are_too_short_to_tell(num: int) -> None:
    found = find_steps(series([[100.0, 101.0]] * num), RULES, 1)
    assert (found.steps, found.smallest, found.is_telling) == ((), None, False)


def test_every_change_of_an_exact_value_is_one() -> None:
    found = find_steps(series([5.0, 5.0, 5.0 + 1e-12, 4.0, 4.0], device="virtual"), RULES, 1)
    assert [(step.index, step.word) for step in found.steps] == [(2, "improvement"), (3, "regression")]
    assert found.steps[1].estimate == pytest.approx(0.8)
    from_zero = find_steps(series([0.0, 2.0], "num_surplus_tokens", "virtual"), RULES, 1)
    assert [(step.estimate, step.scale) for step in from_zero.steps] == [(2.0, Scale.DIFFERENCE)]


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 20, 200])
def test_intervals_lie_within_and_hold_two_segments(length: int) -> None:
    found = intervals(length)
    assert all(start >= 0 and end <= length and end - start >= 4 for start, end in found)
    assert ((0, length) in found) == (length >= 4)
    assert len(set(found)) == len(found)


def test_a_finding_tells_its_segments() -> None:
    found = Finding(series([1.0, 1.0]), (), 0.0, is_telling=True)
    assert found.segments == [(0, 2)]
    assert found.longest_run == 0
