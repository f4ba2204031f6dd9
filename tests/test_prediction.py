"""Predictions of a machine whose host overhead is known: a virtual one on which every stage takes longer."""

from __future__ import annotations

import numpy as np
import pytest

from impl.batching import Dynamic
from impl.costs import Costs, WorkKind
from impl.device.protocol import DeviceSettings
from impl.device.virtual import VirtualDevice
from impl.experiment import Scenario
from impl.machines import VirtualMachine
from impl.runtime.virtual import VirtualRuntime
from impl.schedulers import SCHEDULERS
from impl.workload import burst, poisson
from reports.measure import Rounds, measure_rounds
from reports.prediction import measure_overheads, predict
from reports.verdict import uncertainty
from tests.build import scenario, stages

OVERHEAD_NS = 100_000
NAMES = ("normal", "overlap", "overlap_worker_thread", "overlap_three_thread")


class SlowRuntime(VirtualRuntime):
    """Every stage of the host takes 0.1 ms more than asked for."""

    def work(self, kind: WorkKind, duration_ns: int) -> None:
        super().work(kind, duration_ns + OVERHEAD_NS)


class SlowMachine(VirtualMachine):
    """A virtual device under a slow host."""

    def open(self, settings: DeviceSettings, *, num_forwards: int) -> tuple[VirtualRuntime, VirtualDevice]:
        runtime = SlowRuntime(has_gil=True)
        return runtime, VirtualDevice(runtime, settings)


def measured(served: Scenario) -> Rounds:
    rounds = Rounds(served)
    measure_rounds(rounds, {name: SCHEDULERS[name] for name in NAMES}, SlowMachine(), num_rounds=2)
    return rounds


def test_a_calibration_finds_the_overhead_of_a_step() -> None:
    found = measure_overheads(SlowMachine(), SCHEDULERS["normal"], scenario(), 1)
    assert found.pre_ns + found.launch_ns + found.post_ns == 3 * OVERHEAD_NS
    assert found.forward_ns == 0


@pytest.mark.parametrize("costs", [stages(1, 5, 1), stages(2, 3, 2)], ids=["saturated", "starved"])
def test_told_the_overhead_the_virtual_device_meets_every_scheduler(costs: Costs) -> None:
    rounds = measured(scenario(burst(12), costs=costs))
    predicted = predict(rounds, SCHEDULERS, SlowMachine())
    assert [each.scheduler for each in predicted] == list(NAMES)
    for each in predicted:
        assert each.throughput_error == pytest.approx(0, abs=1e-3)
        assert each.ttft_error == pytest.approx(0, abs=1e-3)


def test_untold_it_misses() -> None:
    rounds = measured(scenario(burst(12), costs=stages(2, 3, 2)))
    for each in predict(rounds, SCHEDULERS, VirtualMachine()):
        assert each.throughput_error > 0.005


def test_random_arrivals_are_met_in_the_mean_of_steps_a_little_shorter_and_longer() -> None:
    rounds = measured(scenario(poisson(60, qps=200, seed=2), Dynamic(8), stages(1, 12, 1)))
    for each in predict(rounds, SCHEDULERS, SlowMachine()):
        assert each.throughput_error == pytest.approx(0, abs=0.01)
        assert each.ttft_error == pytest.approx(0, abs=0.02)


def test_a_mean_is_as_uncertain_as_its_interval_is_wide() -> None:
    assert uncertainty(np.array([5.0, 5.0, 5.0])) == 0
    assert uncertainty(np.array([99.0, 101.0])) == pytest.approx(12.706 * 1 / 100, rel=1e-3)
