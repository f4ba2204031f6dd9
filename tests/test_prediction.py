"""Predictions of a machine whose host overhead is known: a virtual one on which every stage takes longer."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import cycle
from statistics import fmean, median

import numpy as np
import pytest

from impl.batching import Dynamic
from impl.core import Batch
from impl.costs import Costs, WorkKind, cost_ms
from impl.device.protocol import ArticleMatmuls, DeviceSettings, GilReleases, Matmuls
from impl.engine import Engine, Scheduler
from impl.experiment import Scenario, run
from impl.machines import Machine, VirtualMachine
from impl.schedulers import SCHEDULERS, overlap_just_in_time
from impl.workload import burst, poisson
from perf.test_prediction import NOISY, PREDICTED
from reports.measure import Rounds, measure_rounds
from reports.overheads import Overheads, measure_overheads, with_late_launches, with_measured_launches
from reports.prediction import OFFSETS_NS, Prediction, misses, predict
from reports.verdict import uncertainty
from tests.build import scenario, stages
from tests.jitter import Jitter, JitteryMachine

OVERHEAD_NS = 100_000
NAMES = ("normal", "overlap", "overlap_worker_thread", "overlap_three_thread")


SLOW = JitteryMachine(0, host=lambda draw: OVERHEAD_NS)
"""Every stage of the host takes 0.1 ms more than asked for."""


def measured(served: Scenario) -> Rounds:
    rounds = Rounds(served)
    measure_rounds(rounds, {name: SCHEDULERS[name] for name in NAMES}, SLOW, num_rounds=2)
    return rounds


def test_a_calibration_finds_the_overhead_of_a_step() -> None:
    found = measure_overheads(SLOW, SCHEDULERS["normal"], scenario(), 1)
    assert found.pre_ns + found.launch_ns + found.post_ns == 3 * OVERHEAD_NS
    assert found.forward_ns == 0


@pytest.mark.parametrize("costs", [stages(1, 5, 1), stages(2, 3, 2)], ids=["saturated", "starved"])
def test_told_the_overhead_the_virtual_device_meets_every_scheduler(costs: Costs) -> None:
    rounds = measured(scenario(burst(12), costs=costs))
    predicted, _ = predict(rounds, SCHEDULERS, SLOW)
    assert [each.scheduler for each in predicted] == list(NAMES)
    for each in predicted:
        assert each.throughput_error == pytest.approx(0, abs=1e-3)
        assert each.ttft_error == pytest.approx(0, abs=1e-3)


LITERAL = DeviceSettings(matmuls=ArticleMatmuls(prefill=Matmuls(1000, 1000), decode=Matmuls(1000, 1000)))
TAIL_NS = 4_000_000
"""What a launch goes on for in calibrations."""


def with_tail(*tails_ms: float) -> JitteryMachine:
    """Return a machine on which launches go on for so long, in turn, and the host takes 0.1 ms more a stage."""
    tails_ns = cycle([tail_ms * 1e6 for tail_ms in tails_ms])
    return JitteryMachine(0, host=lambda draw: OVERHEAD_NS, tail=lambda draw: next(tails_ns))


@pytest.mark.parametrize("settings", [LITERAL, DeviceSettings()], ids=["literal", "calibrated"])
@pytest.mark.parametrize(("name", "forward_ms"), [("normal", 10), ("overlap", 10), ("overlap_three_thread", 4)])
def test_launches_of_literal_forwards_go_on_for_as_long_as_in_the_rounds(
    name: str, forward_ms: float, settings: DeviceSettings
) -> None:
    """5, 5 and 9 ms in turn in two rounds, 20 ms in a third, and 4 ms in the calibration. `overlap` waits for the host,
    and three threads for the one that launches; `normal` waits for the GPU, and is told nothing that changes it.
    """
    costs = stages(4, forward_ms, 4, launch=0.5)
    rounds = Rounds(scenario(burst(24), costs=costs, settings=settings))
    both = {each: SCHEDULERS[each] for each in ("normal", name)}
    for machine in (with_tail(5, 5, 9), with_tail(20), with_tail(9, 5, 5)):
        measure_rounds(rounds, both, machine, num_rounds=1)
    predicted, _ = predict(rounds, both, with_tail(TAIL_NS / 1e6))
    error = predicted[-1].throughput_error
    if settings is LITERAL or name == "normal":
        assert error == pytest.approx(0, abs=0.01)
    else:
        assert error > 0.15


def test_a_launch_more_than_twice_as_long_as_in_the_calibration_is_not_told() -> None:
    rounds = Rounds(scenario(burst(12), costs=stages(4, 6, 4), settings=LITERAL))
    pair = {name: SCHEDULERS[name] for name in ("normal", "overlap")}
    measure_rounds(rounds, pair, with_tail(2.1 * TAIL_NS / 1e6), num_rounds=1)
    predicted, _ = predict(rounds, pair, with_tail(TAIL_NS / 1e6))
    assert predicted[-1].throughput_error > 0.2


def test_each_scheduler_is_told_its_own_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each starts from the calibration, not from what the one before was told."""
    found = []

    def spy(overheads: Overheads, rounds: Rounds, scheduler: str) -> Overheads:
        found.append((scheduler, overheads.launch_tail_ns))
        return replace(overheads, launch_tail_ns=overheads.launch_tail_ns + 1_000_000)

    monkeypatch.setattr("reports.prediction.with_measured_launches", spy)
    pair = {name: SCHEDULERS[name] for name in ("normal", "overlap")}
    rounds = Rounds(scenario(settings=LITERAL))
    measure_rounds(rounds, pair, with_tail(TAIL_NS / 1e6), num_rounds=1)
    predict(rounds, pair, with_tail(TAIL_NS / 1e6))
    assert found == [("normal", TAIL_NS), ("overlap", TAIL_NS)]


def test_launches_that_wait_for_the_gil_are_not_told() -> None:
    rounds = Rounds(scenario(costs=stages(4, 6, 4, host_work=WorkKind.SPIN), settings=LITERAL))
    measure_rounds(rounds, {"normal": SCHEDULERS["normal"]}, with_tail(5), num_rounds=1)
    told = replace(TOLD, launch_tail_ns=TAIL_NS)
    assert with_measured_launches(told, rounds, "normal") == told


def test_launches_behind_a_running_forward_or_under_another_scheduler_do_not_count() -> None:
    """Behind a forward the own one starts late: what is left of the launch by then is no measure of it."""
    rounds = Rounds(scenario(burst(12), costs=stages(1, 9, 1), settings=LITERAL))
    told = replace(TOLD, launch_tail_ns=TAIL_NS)
    for name, tail_ms in (("normal", 7), ("overlap", 5)):
        measure_rounds(rounds, {name: SCHEDULERS[name]}, with_tail(tail_ms), num_rounds=1)
    for name, tail_ms in (("normal", 7), ("overlap", 5)):
        assert with_measured_launches(told, rounds, name) == replace(told, launch_tail_ns=tail_ms * 1_000_000)


TOLD = Overheads(0, 0, 50_000, 0, 0, GilReleases())
"""Forwards take 50 µs more."""


def fitted(forward: Jitter, costs: Costs, name: str = "overlap_just_in_time") -> Overheads:
    """Return `TOLD` with the late launches of a machine on which forwards take as much more as drawn."""
    machine = JitteryMachine(0, forward=forward)
    return with_late_launches(TOLD, machine, SCHEDULERS[name], scenario(costs=costs), 2)


def test_what_the_gpu_waits_is_told_as_a_mean_of_full_batches() -> None:
    longer = cycle([30_000, 30_000, 30_000, 150_000])
    costs = Costs(pre=cost_ms(1), forward=cost_ms(1, per_request=2), post=cost_ms(1))
    found = fitted(lambda draw: next(longer), costs, "overlap_three_thread")
    assert found == replace(TOLD, forward_ns=60_000)


def test_the_forward_is_fitted_either_way() -> None:
    assert fitted(lambda draw: 150_000, stages(1, 5, 1)) == replace(TOLD, forward_ns=150_000)
    assert fitted(lambda draw: -50_000, stages(1, 5, 1)) == replace(TOLD, forward_ns=-50_000)


def test_what_is_no_late_launch_is_not_told() -> None:
    assert fitted(lambda draw: 350_000, stages(1, 5, 1)) == TOLD, "6 % of a step is another order"
    assert fitted(lambda draw: -150_000, stages(1, 5, 1)) == TOLD
    assert fitted(lambda draw: 150_000, stages(3, 5, 3), "overlap") == TOLD, "the host sets the pace"


def test_only_schedulers_that_launch_in_a_thread_and_calibrate_nothing_run_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []

    def spy(told: Overheads, machine: Machine, scheduler: Scheduler, *rest: object) -> Overheads:
        found.append(next(name for name, each in SCHEDULERS.items() if each is scheduler))
        return told

    monkeypatch.setattr("reports.prediction.with_late_launches", spy)
    rounds = Rounds(scenario())
    measure_rounds(rounds, SCHEDULERS, VirtualMachine(), num_rounds=1)
    predict(rounds, SCHEDULERS, VirtualMachine())
    assert sorted(found) == ["overlap_just_in_time", "overlap_worker_thread_no_wait"]


def test_late_launches_of_one_scheduler_are_not_told_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []

    def spy(overheads: Overheads, *others: object) -> Overheads:
        told.append(overheads)
        return replace(overheads, forward_ns=overheads.forward_ns + 1_000)

    monkeypatch.setattr("reports.prediction.with_late_launches", spy)
    mine: dict[str, Scheduler] = dict.fromkeys(("first", "second"), overlap_just_in_time)
    rounds = Rounds(scenario())
    measure_rounds(rounds, mine, VirtualMachine(), num_rounds=1)
    predict(rounds, mine, VirtualMachine())
    assert len(told) == 2
    assert told[0] == told[1]


def late_now_and_then(draw: random.Random) -> float:
    """The host takes 0.3 ms more in one stage of ten."""
    return 300_000 if draw.random() < 0.1 else 0


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "untold"])
def test_told_of_late_launches_the_virtual_device_meets_just_in_time(
    is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three threads, which calibrate it, launch ahead: a delay of the host costs them nothing."""
    if not is_told:
        monkeypatch.setattr("reports.prediction.with_late_launches", lambda overheads, *others: overheads)
    mine: dict[str, Scheduler] = {"mine": overlap_just_in_time}
    errors = []
    for seed in range(20):
        rounds = Rounds(scenario(burst(400), Dynamic(8), stages(1, 6, 1)))
        measure_rounds(rounds, mine, JitteryMachine(seed, host=late_now_and_then), num_rounds=1)
        predicted, _ = predict(rounds, mine, JitteryMachine(1000 + seed, host=late_now_and_then))
        errors += [each.throughput_error for each in predicted]
    if is_told:
        assert abs(fmean(errors)) < 0.003
    else:
        assert fmean(errors) > 0.004


def test_a_scheduler_that_fails_in_a_calibration_leaves_the_others_their_predictions() -> None:
    def twelve_buffers(engine: Engine) -> None:
        take = engine.next_batch

        def take_one_of_twelve(*, wait: bool = True) -> Batch | None:
            batch = take(wait=wait)
            if batch is not None and batch.id == 12:
                raise IndexError("no buffer is free")
            return batch

        engine.next_batch = take_one_of_twelve  # type: ignore[method-assign]
        overlap_just_in_time(engine)

    mine = {"twelve_buffers": twelve_buffers, "normal": SCHEDULERS["normal"]}
    rounds = Rounds(scenario())
    measure_rounds(rounds, mine, VirtualMachine(), num_rounds=1)
    predicted, failed = predict(rounds, mine, VirtualMachine())
    assert [each.scheduler for each in predicted] == ["normal"]
    assert failed.keys() == {"twelve_buffers"}
    assert "no buffer is free" in str(failed["twelve_buffers"])


def test_what_was_measured_is_the_median_over_rounds() -> None:
    """One of three rounds stalled: the prediction of the others is right."""
    rounds = Rounds(scenario())
    for stall_ns in (0, 7_000_000, 0):
        jitter = cycle([0, 0, 0, stall_ns])
        machine = JitteryMachine(0, host=lambda draw, jitter=jitter: next(jitter))
        measure_rounds(rounds, {"normal": SCHEDULERS["normal"]}, machine, num_rounds=1)
    assert np.ptp(rounds.metric("total_ns", "normal")) > 6e6
    (found,), _ = predict(rounds, SCHEDULERS, VirtualMachine())
    assert found.throughput_error == pytest.approx(0, abs=1e-6)
    assert found.ttft_error == pytest.approx(0, abs=1e-6)


def test_untold_it_misses() -> None:
    rounds = measured(scenario(burst(12), costs=stages(2, 3, 2)))
    for each in predict(rounds, SCHEDULERS, VirtualMachine())[0]:
        assert each.throughput_error > 0.005


def test_what_is_predicted_is_the_median_over_shifted_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """With random arrivals each shift decides anew which batch a request makes."""
    rounds = measured(scenario(poisson(60, qps=200, seed=2), Dynamic(8), stages(1, 12, 1)))
    served, found = rounds.scenario, measure_overheads(SLOW, SCHEDULERS["normal"], rounds.scenario, 3)
    alone = []
    for offset_ns in OFFSETS_NS:
        costs = found.apply(served).costs
        pre, forward, post = (
            replace(cost, fixed_ns=cost.fixed_ns + offset_ns) for cost in (costs.pre, costs.forward, costs.post)
        )
        shifted = replace(found.apply(served), costs=replace(costs, pre=pre, forward=forward, post=post))
        alone.append(run(SCHEDULERS["normal"], shifted, found.machine()).metrics.summary)
    monkeypatch.setattr("reports.prediction.measure_overheads", lambda *arguments: found)
    [predicted] = [each for each in predict(rounds, SCHEDULERS, SLOW)[0] if each.scheduler == "normal"]
    assert min(OFFSETS_NS) == -max(OFFSETS_NS) < 0
    for told, spread, each in (
        (predicted.ttft_ns, predicted.ttft_spread, [summary.ttft_mean_ns for summary in alone]),
        (predicted.throughput_rps, predicted.throughput_spread, [summary.throughput_rps or 0.0 for summary in alone]),
    ):
        assert len(set(each)) == len(OFFSETS_NS) == 9
        assert told == median(each) != pytest.approx(fmean(each), rel=1e-6)
        assert spread == pytest.approx((max(each) - min(each)) / 2 / told)
    for each in predict(rounds, SCHEDULERS, SLOW)[0]:
        assert each.throughput_error == pytest.approx(0, abs=0.01)


def test_every_case_with_wider_bounds_is_one() -> None:
    assert NOISY.keys() <= {(experiment.id, name) for experiment in PREDICTED for name in experiment.schedulers}


def prediction(throughput_error: float, ttft_error: float) -> tuple[Prediction, Rounds]:
    """Two rounds of `normal`, alike, and a prediction that is off by so much."""
    rounds = measured(scenario())
    throughput, ttft = rounds.metric("throughput_rps", "normal")[0], rounds.metric("ttft_mean_ns", "normal")[0]
    off = Prediction("normal", throughput * (1 + throughput_error), throughput, 0, ttft * (1 + ttft_error), ttft, 0)
    return off, rounds


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_prediction_that_is_further_off_than_allowed_is_told(sign: int) -> None:
    assert misses(*prediction(sign * 0.0099, sign * 0.0199), (0.01, 0.02)) == []
    assert misses(*prediction(sign * 0.0101, 0), (0.01, 0.02)) == [
        f"throughput_rps of normal: {sign * 1.01:+.2f}%, allowed ±1.00%"
    ]
    assert misses(*prediction(0, sign * 0.0201), (0.01, 0.02)) == [
        f"ttft_mean_ns of normal: {sign * 2.01:+.2f}%, allowed ±2.00%"
    ]


def test_an_uncertain_mean_allows_more_but_not_more_than_twice_the_bound() -> None:
    off, rounds = prediction(0, 0.025)
    first, second = rounds.of("normal")

    def spread(share: float) -> Rounds:
        summary = second.metrics.summary
        moved = replace(summary, ttft_mean_ns=summary.ttft_mean_ns * (1 + share))
        other = replace(second, metrics=replace(second.metrics, summary=moved))
        return replace(rounds, results={"normal": [first, other]})

    assert misses(off, spread(0), (0.01, 0.02))
    assert misses(off, spread(0.001), (0.01, 0.02)) == [], "±0.6 % on top"
    assert misses(prediction(0, 0.041)[0], spread(0.1), (0.01, 0.02)), "not ±64 %"


def test_an_uncertain_prediction_may_be_further_off_but_not_by_more_than_twice_the_bound() -> None:
    off, rounds = prediction(0.019, 0.039)
    assert len(misses(off, rounds, (0.01, 0.02))) == 2
    assert len(misses(replace(off, throughput_spread=0.0089), rounds, (0.01, 0.02))) == 2
    assert len(misses(replace(off, throughput_spread=0.0091), rounds, (0.01, 0.02))) == 1
    assert misses(replace(off, throughput_spread=0.0091, ttft_spread=0.0191), rounds, (0.01, 0.02)) == []
    far, rounds = prediction(0.021, 0.041)
    assert len(misses(replace(far, throughput_spread=0.5, ttft_spread=0.5), rounds, (0.01, 0.02))) == 2


def test_a_mean_is_as_uncertain_as_its_interval_is_wide() -> None:
    assert uncertainty(np.array([5.0, 5.0, 5.0])) == 0
    assert uncertainty(np.array([99.0, 101.0])) == pytest.approx(12.706 * 1 / 100, rel=1e-3)
