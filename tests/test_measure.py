from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from impl.costs import cost_ms
from impl.device.protocol import DeviceSettings
from impl.engine import Engine
from impl.errors import RunFailed, SettingError
from impl.machines import CpuMachine, VirtualMachine
from impl.schedulers.normal import normal
from impl.schedulers.overlap import overlap
from impl.workload import burst, from_gaps
from reports.cases import Experiment, cases
from reports.claims import Broken, Claim, Evidence
from reports.lab import Lab
from reports.measure import Rounds, matched, measure_rounds
from reports.verdict import Verdict
from tests import faulty
from tests.build import scenario, stages

PAIR = {"normal": normal, "overlap": overlap}


def test_every_second_round_runs_in_reverse_order() -> None:
    order: list[str] = []

    def noting(name: str) -> Callable[[Engine], None]:
        def scheduler(engine: Engine) -> None:
            order.append(name)
            normal(engine)

        return scheduler

    schedulers = {name: noting(name) for name in "abc"}
    rounds = Rounds(scenario())
    measure_rounds(rounds, schedulers, VirtualMachine(), num_rounds=2)
    measure_rounds(rounds, schedulers, VirtualMachine(), num_rounds=1)
    assert "".join(order) == "abccbaabc"
    assert [len(rounds.of(name)) for name in "abc"] == [3, 3, 3]


def test_a_scheduler_that_fails_leaves_and_the_others_go_on() -> None:
    rounds = Rounds(scenario())
    measure_rounds(rounds, {**PAIR, "mine": faulty.posts_twice}, VirtualMachine(), num_rounds=2)
    assert len(rounds.of("normal")) == len(rounds.of("overlap")) == 2
    with pytest.raises(RunFailed, match="post of batch 0 a second time"):
        rounds.of("mine")
    assert (rounds.failure("mine") or "").startswith("ProtocolError: post of batch 0 a second time")
    assert rounds.failure("normal") is None


def test_a_failure_is_told_with_the_schedulers_own_frames_only() -> None:
    def raises(engine: Engine) -> None:
        raise ValueError("my bug")

    rounds = Rounds(scenario())
    measure_rounds(rounds, {"mine": raises}, VirtualMachine(), num_rounds=1)
    told = rounds.failure("mine") or ""
    assert told.startswith("RunFailed: thread 'scheduler' failed: ValueError: my bug\n")
    assert told.endswith("ValueError: my bug")
    assert "in raises" in told
    assert len(told.splitlines()) < 15


def test_metrics_come_one_for_each_round() -> None:
    rounds = Rounds(scenario(burst(3), costs=stages(1, 2, 1)))
    measure_rounds(rounds, PAIR, VirtualMachine(), num_rounds=2)
    assert rounds.metric("total_ns", "normal").tolist() == [12e6, 12e6]
    assert rounds.metric("total_ns", "overlap").tolist() == [8e6, 8e6]
    assert rounds.gain("throughput_rps", "overlap").tolist() == pytest.approx([0.5, 0.5])
    assert rounds.each("normal", lambda result: len(result.tokens)).tolist() == [3, 3]
    with pytest.raises(ValueError, match="itl_mean_ns of normal on small is undefined"):
        rounds.metric("itl_mean_ns", "normal")
    with pytest.raises(KeyError):
        rounds.metric("total_ns", "unknown")


def test_users_join_every_open_experiment_under_stable_ids() -> None:
    experiments = [
        Experiment(scenario(), PAIR, section="1"),
        Experiment(replace(scenario(), id="closed"), {"normal": normal}, section="1", is_open_to_users=False),
    ]
    found = cases(experiments, ["mine"])
    assert [(case.id, case.is_user) for case in found] == [
        ("small/normal", False),
        ("small/overlap", False),
        ("closed/normal", False),
        ("small/mine", True),
    ]


def test_times_are_scaled_where_time_is_real_and_only_there() -> None:
    experiment = Experiment(scenario(), PAIR, section="1", real_scale=0.5)
    assert experiment.on(VirtualMachine()) == scenario()
    assert experiment.on(CpuMachine()) == scenario(costs=stages(0.5, 2.5, 0.5))


def test_a_scheduler_paced_by_the_host_has_to_be_one_of_the_experiments() -> None:
    assert Experiment(scenario(), PAIR, paced_by_host=frozenset({"overlap"})).paced_by_host == {"overlap"}
    told = r"experiment 'small': paced_by_host names \['overlapp'\]; allowed: \['normal', 'overlap'\]"
    with pytest.raises(SettingError, match=told):
        Experiment(scenario(), PAIR, paced_by_host=frozenset({"overlapp", "normal"}))


def test_the_lab_measures_an_experiment_once() -> None:
    runs: list[str] = []

    def mine(engine: Engine) -> None:
        runs.append("mine")
        normal(engine)

    lab = Lab({"mine": mine}, lambda text: None)
    experiment = Experiment(scenario(), PAIR, section="1")
    assert lab.rounds(experiment, "virtual") is lab.rounds(experiment, "virtual")
    assert runs == ["mine"]
    closed = Experiment(scenario(burst(2)), PAIR, section="1", is_open_to_users=False)
    assert "mine" not in Lab({"mine": mine}, lambda text: None).rounds(closed, "virtual").results


class Inexact(VirtualMachine):
    """Virtual time that counts as real."""

    name = "cpu"
    is_exact = False


@pytest.mark.parametrize(
    ("last_s", "scale", "num_rounds", "told"),
    [
        (0.1, 1.0, None, "2 paired rounds"),
        (0.1, 0.25, None, "2 paired rounds, all times × 0.25"),
        (2, 1.0, None, "2 paired rounds, at least 8 s"),
        (20, 0.1, 3, "3 paired rounds, all times × 0.1, at least 12 s"),
    ],
)
def test_an_experiment_in_real_time_is_announced(
    last_s: float, scale: float, num_rounds: int | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two schedulers each wait for the last of two arrivals."""
    monkeypatch.setattr("reports.lab.MACHINES", {"cpu": Inexact})
    heard: list[str] = []
    served = scenario(from_gaps([0, round(last_s * 1e9)]), costs=stages(1, 1, 1))
    Lab({}, heard.append, num_rounds=num_rounds).rounds(
        Experiment(served, PAIR, real_scale=scale, real_rounds=2), "cpu"
    )
    assert heard == [f"small on cpu: {told}"]


class Another(CpuMachine):
    """A machine of another name."""

    name = "another"


def test_a_warm_up_that_failed_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reports.lab.MACHINES", {"cpu": CpuMachine})
    runs: list[str] = []

    def noting(name: str, error: Exception | None) -> Callable[[Engine], None]:
        def scheduler(engine: Engine) -> None:
            runs.append(name)
            if error is not None:
                raise error
            normal(engine)

        return scheduler

    lab = Lab({}, lambda text: None, num_rounds=2)
    for name, error, expected in (("fails", ValueError("mine"), 2), ("works", None, 3)):
        served = replace(scenario(costs=stages(0.1, 0.2, 0.1)), id=name)
        experiment = Experiment(served, {"normal": noting(name, error)}, real_scale=1.0, real_rounds=2)
        lab.rounds(experiment, "cpu")
        assert runs.count(name) == expected


def test_the_lab_warms_up_once_for_each_kind_of_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reports.lab.MACHINES", {"cpu": CpuMachine, "another": Another})
    runs: list[int] = []

    def noting(engine: Engine) -> None:
        runs.append(1)
        normal(engine)

    def experiment(name: str, settings: DeviceSettings, copy_ms: float) -> Experiment:
        costs = replace(stages(0.1, 0.2, 0.1), copy=cost_ms(copy_ms))
        served = replace(scenario(costs=costs, settings=settings), id=name)
        return Experiment(served, {"normal": noting}, real_scale=1.0, real_rounds=2)

    lab = Lab({}, lambda text: None, num_rounds=2)
    one_stream = DeviceSettings(has_copy_stream=False)
    for name, settings, copy_ms, num_runs in (
        ("first", DeviceSettings(), 0, 3),
        ("known", DeviceSettings(), 0, 2),
        ("new settings", one_stream, 0, 3),
        ("new copy", DeviceSettings(), 0.1, 3),
        ("known again", one_stream, 0, 2),
    ):
        runs.clear()
        lab.rounds(experiment(name, settings, copy_ms), "cpu")
        assert len(runs) == num_runs, name
    runs.clear()
    lab.rounds(experiment("another machine", one_stream, 0), "another")
    assert len(runs) == 3


MEASURED = {"total_ns": 100, "ttft_mean_ns": 50}
SLOWER = {name: {"total_ns": 130, "ttft_mean_ns": 65} for name in PAIR}
"""What `planned` measures of a scheduler in a usual round; and of both in one that is 30 % slower."""


@pytest.mark.parametrize(
    ("own", "asked_for", "second", "expected"),
    [
        (2, None, SLOWER, 3),
        (2, None, {"normal": SLOWER["normal"]}, 3),
        (2, None, {"overlap": SLOWER["overlap"]}, 3),
        (2, None, {"overlap": {"total_ns": 106}}, 3),
        (2, None, {"normal": {"ttft_mean_ns": 47}}, 3),
        (2, None, {"normal": {"total_ns": 104}, "overlap": {"ttft_mean_ns": 52}}, 2),
        (2, 2, SLOWER, 2),
        (3, None, SLOWER, 3),
    ],
)
def test_two_rounds_that_disagree_get_a_third(
    own: int,
    asked_for: int | None,
    second: dict[str, dict[str, int]],
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By more than 5 %, in any scheduler's total or mean TTFT; a number of rounds that is asked for is kept."""
    rounds, heard = planned([{}, second, {}], own, asked_for, monkeypatch)
    assert rounds.num_rounds == expected
    assert ("small on cpu: its two rounds disagree, a third decides" in heard) == (expected > own)
    totals_ns = [second.get("overlap", {}).get("total_ns", 100) if i == 1 else 100 for i in range(expected)]
    assert list(rounds.metric("total_ns", "overlap")) == totals_ns, "the first two count too"


@pytest.mark.parametrize("planned_third", [SLOWER, None])
def test_two_rounds_that_throttling_left_get_one_more(
    planned_third: dict[str, dict[str, int]] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third of three was left out; so may be the one that is to decide."""
    rounds, _ = planned([{}, SLOWER, None, planned_third, {}], 3, None, monkeypatch)
    assert rounds.num_rounds == (2 if planned_third is None else 3)


def planned(
    plan: list[dict[str, dict[str, int]] | None],
    own: int,
    asked_for: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Rounds, list[str]]:
    """Return the rounds of a lab, and what it tells; each is `MEASURED`, but for what the plan says of schedulers. None
    stands for a round in which the GPU throttles at every attempt.
    """

    def measure(
        rounds: Rounds, schedulers: dict[str, object], machine: object, *, num_rounds: int, **_: object
    ) -> None:
        is_warm_up = len(schedulers) == 1
        for _ in range(0 if is_warm_up else num_rounds):
            different = plan.pop(0)
            if different is None:
                return
            for name in schedulers:
                summary = SimpleNamespace(**MEASURED | different.get(name, {}))
                result = SimpleNamespace(metrics=SimpleNamespace(summary=summary))
                rounds.results.setdefault(name, []).append(result)  # type: ignore[arg-type] # all that is read of it

    monkeypatch.setattr("reports.lab.MACHINES", {"cpu": Inexact})
    monkeypatch.setattr("reports.lab.measure_rounds", measure)
    heard: list[str] = []
    lab = Lab({}, heard.append, num_rounds=asked_for)
    return lab.rounds(Experiment(scenario(), PAIR, real_rounds=own), "cpu"), heard


@pytest.mark.parametrize(("decided_at", "seen"), [(3, [3]), (4, [3, 4]), (5, [3, 4, 6]), (99, [3, 4, 6, 9])])
def test_an_undecided_claim_gets_rounds_step_by_step(
    decided_at: int, seen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reports.lab.MACHINES", {"cpu": CpuMachine})
    experiment = Experiment(scenario(costs=stages(0.1, 0.2, 0.1)), {"normal": normal}, real_scale=1.0)
    looks: list[int] = []

    def judge(evidence: Evidence) -> None:
        looks.append(evidence.of(experiment).num_rounds)
        spread = 0.0 if looks[-1] >= decided_at else 1.0
        evidence.at_least("made up", 1 + spread * np.linspace(-9, 9, looks[-1]), 0.5)

    claim = Claim("test_made_up", "1", (experiment,), Broken("nothing"), judge)
    verdict = Lab({}, lambda text: None).judge(claim, "cpu").verdict
    assert looks == seen
    assert verdict is (Verdict.UNDECIDED if decided_at == 99 else Verdict.HOLDS)


def test_two_experiments_of_one_id_are_refused() -> None:
    twins = [Experiment(scenario(), PAIR, section="1"), Experiment(scenario(), PAIR, section="2")]
    with pytest.raises(SettingError, match="two experiments have the id 'small'"):
        cases(twins, [])


def test_a_users_scheduler_cannot_take_the_place_of_an_experiments_own() -> None:
    with pytest.raises(SettingError, match="experiment 'small' has a scheduler 'overlap'; rename yours"):
        cases([Experiment(scenario(), PAIR, section="1")], ["overlap"])


def test_rounds_of_two_experiments_are_matched_one_against_one() -> None:
    first, second = matched(np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0]))
    assert (list(first), list(second)) == ([1.0, 2.0], [4.0, 5.0])
