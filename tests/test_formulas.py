"""Stage times for formulas: asked for in virtual time, and under `normal` where time is real."""

from __future__ import annotations

from dataclasses import replace

import pytest

from impl.batching import Dynamic
from impl.costs import Costs, cost_ms
from impl.device.protocol import DeviceSettings
from impl.experiment import Scenario
from impl.machines import VirtualMachine
from impl.schedulers import SCHEDULERS
from impl.workload import burst
from perf.formulas import StageTimes, asked_times, stage_times
from reports.claims import Evidence
from reports.measure import Rounds, measure_rounds
from reports.verdict import Verdict
from tests.build import MS, scenario
from tests.jitter import JitteryMachine

COSTS = Costs(pre=cost_ms(2), launch=cost_ms(1), forward=cost_ms(7), copy=cost_ms(3), post=cost_ms(4))
OWN_COPIES = DeviceSettings(has_copy_stream=True)


def rounds_of(
    served: Scenario, *names: str, host_ns: int = 0, forward_ns: int = 0, num_rounds: int = 2
) -> tuple[Evidence, Rounds]:
    """Run schedulers on a machine that counts as a GPU, whose stages and forwards take longer."""
    machine = JitteryMachine(0, host=lambda draw: host_ns, forward=lambda draw: forward_ns)
    rounds = Rounds(served)
    measure_rounds(rounds, {name: SCHEDULERS[name] for name in names}, machine, num_rounds=num_rounds)
    return Evidence("cuda", {served.id: rounds}), rounds


def checks(evidence: Evidence) -> dict[str, Verdict]:
    return {check.name: check.verdict for check in evidence.checks}


def test_in_virtual_time_they_are_those_asked_for() -> None:
    _, rounds = rounds_of(scenario(costs=COSTS), "overlap")
    evidence = Evidence("virtual", {})
    assert (
        stage_times(evidence, rounds) == asked_times(rounds) == StageTimes(3, 0, 2 * MS, 1 * MS, 7 * MS, 3 * MS, 4 * MS)
    )
    assert not evidence.checks


@pytest.mark.parametrize("settings", [DeviceSettings(), OWN_COPIES], ids=["one stream", "copies on their own"])
def test_where_time_is_real_they_are_those_of_normal(settings: DeviceSettings) -> None:
    evidence, rounds = rounds_of(
        scenario(costs=COSTS, settings=settings), "normal", "overlap", host_ns=50_000, forward_ns=-20_000
    )
    assert stage_times(evidence, rounds) == replace(
        asked_times(rounds), pre=2_050_000, launch=1_050_000, forward=6_980_000, post=4_050_000
    )
    assert checks(evidence) == {"small: milliseconds added to a step": Verdict.HOLDS, "small: forward": Verdict.HOLDS}


def test_a_launch_and_a_copy_that_were_to_take_no_time_belong_to_their_neighbours() -> None:
    costs = replace(COSTS, launch=cost_ms(0), copy=cost_ms(0))
    evidence, rounds = rounds_of(scenario(costs=costs), "normal", host_ns=50_000)
    assert stage_times(evidence, rounds) == replace(asked_times(rounds), pre=2_100_000, post=4_050_000)


def test_a_launch_lasts_until_it_returns_though_its_forward_has_started() -> None:
    rounds = Rounds(scenario(costs=COSTS))
    measure_rounds(rounds, {"normal": SCHEDULERS["normal"]}, VirtualMachine(launch_tail_ns=300_000), num_rounds=2)
    assert stage_times(Evidence("cuda", {}), rounds) == replace(asked_times(rounds), launch=1_300_000)


def test_what_forwards_cost_per_request_is_taken_off() -> None:
    costs = replace(COSTS, forward=cost_ms(7, per_request=1, per_token=2))
    evidence, rounds = rounds_of(scenario(burst(5), Dynamic(2), costs), "normal", forward_ns=30_000)
    assert stage_times(evidence, rounds) == replace(asked_times(rounds), forward=7_030_000)


@pytest.mark.parametrize(
    ("host_ns", "forward_ns", "wrong"),
    [
        (400_000, 0, {"small: milliseconds added to a step"}),
        (0, 320_000, {"small: forward"}),
        (0, -320_000, {"small: forward"}),
        (300_000, 300_000, set()),
    ],
)
def test_stages_far_from_what_was_asked_for_fail_the_claim(host_ns: int, forward_ns: int, wrong: set[str]) -> None:
    evidence, rounds = rounds_of(scenario(costs=COSTS), "normal", host_ns=host_ns, forward_ns=forward_ns)
    stage_times(evidence, rounds)
    assert {name for name, verdict in checks(evidence).items() if verdict is Verdict.FAILS} == wrong


@pytest.mark.parametrize("stage", ["pre", "launch", "copy", "post"])
def test_a_stage_that_differs_between_batches_has_no_one_time(stage: str) -> None:
    costs = replace(COSTS, **{stage: cost_ms(1, per_token=0.5)})
    evidence, rounds = rounds_of(scenario(costs=costs), "normal")
    for ask in (lambda: asked_times(rounds), lambda: stage_times(evidence, rounds)):
        with pytest.raises(ValueError, match=f"^small: {stage} costs 0 ns a request and 500000 ns a token; formulas"):
            ask()


def test_without_normal_nothing_tells_how_long_stages_take() -> None:
    evidence, rounds = rounds_of(scenario(costs=COSTS), "overlap")
    with pytest.raises(ValueError, match=r"^small: no 'normal' takes part, whose steps tell formulas"):
        stage_times(evidence, rounds)
