from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from impl.machines import VirtualMachine
from impl.schedulers.normal import normal
from impl.schedulers.overlap import overlap
from reports.cases import Case, Experiment
from reports.gpu_state import GpuState
from reports.measure import Rounds, measure_rounds
from reports.replay import CLOCK, ReplayClock, enter
from tests.build import scenario


def test_the_clock_moves_by_the_measured_times_and_only_when_told_to() -> None:
    clock = ReplayClock()
    clock.load([0.1, 0.2, 0.7])
    took = []
    for _ in range(3):
        clock.reset()
        begin = clock()
        assert clock() == begin
        clock.advance()
        took.append(clock() - begin)
    assert took == [0.1, 0.2, 0.7], "to the last bit"


def test_more_calls_than_measured_times_are_an_error() -> None:
    clock = ReplayClock()
    with pytest.raises(StopIteration):
        clock.advance()
    clock.load([1.0])
    clock.advance()
    with pytest.raises(StopIteration):
        clock.advance()


@pytest.mark.benchmark(timer=CLOCK)
def test_an_entry_keeps_what_the_gpu_did_in_each_round_what_was_left_out_and_what_was_found(
    benchmark: BenchmarkFixture,
) -> None:
    compared = Experiment(scenario(), {"normal": normal, "overlap": overlap}, section="7", real_scale=0.25)
    rounds = Rounds(compared.scenario)
    measure_rounds(rounds, compared.schedulers, VirtualMachine(), num_rounds=2)
    rounds.states["overlap"] = [GpuState(20, 1980.0, 1900, 500.0, 0.0, {}), None]
    rounds.left_out.append("GPU throttled during normal")
    enter(benchmark, Case(compared, "overlap"), "cuda", rounds)
    info = benchmark.extra_info
    assert info["gpu"] == [
        {
            "num_samples": 20,
            "sm_clock_mhz": 1980.0,
            "sm_clock_min_mhz": 1900,
            "power_w": 500.0,
            "throttled_share": 0.0,
            "throttled": {},
        },
        None,
    ]
    assert info["left_out"] == ["GPU throttled during normal"]
    assert info["overlap"] == ["ON", "ON"]
    assert [info[name] for name in ("schema", "experiment", "scheduler", "device", "section", "scale")] == [
        1,
        "small",
        "overlap",
        "cuda",
        "7",
        0.25,
    ]
    assert [metrics["num_forwards"] for metrics in info["rounds"]] == [3, 3]
