from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from scipy import stats

from reports.__main__ import main
from reports.files import FileError
from reports.regression.error_rates import Outcomes, Pair, Rate, of_plan, read_pairs, resample, slowed
from reports.regression.results import Key
from reports.regression.rules import Plan, read_rules
from tests.results import CASES, noisy, write_run

RULES = read_rules()
PLAN = RULES.plan("cuda")


def record(folder: Path, num_pairs: int, *, noise: float, luck: float = 0.0, seed: int = 0) -> Sequence[Pair]:
    """Write what a gate of one commit against itself leaves, and read it."""
    folder.mkdir(exist_ok=True)
    for index in range(num_pairs):
        for offset, side in enumerate(("base", "head")):
            start = seed + 1000 * index + 100 * offset
            cases = {case: noisy(2, noise=noise, seed=start + i) for i, case in enumerate(CASES)}
            write_run(folder / f"pair-{index + 1:02}-{side}.json", cases)
    return of_plan(read_pairs([folder]), PLAN)


def rates(pairs: Sequence[Pair], *, worse_by: float, num_gates: int = 60) -> Outcomes:
    return resample(pairs, RULES, PLAN, range(num_gates), seed=1, worse_by=worse_by, limit=0.02)


@pytest.mark.parametrize(("count", "total"), [(0, 1000), (3, 1000), (1000, 1000), (0, 299)])
def test_the_interval_is_the_exact_binomial_one(count: int, total: int) -> None:
    found = stats.binomtest(count, total).proportion_ci(0.95, method="exact")
    rate = Rate(count, total)
    assert (rate.low, rate.high) == (pytest.approx(found.low), pytest.approx(found.high))


@pytest.mark.slow
def test_a_quiet_machine_gives_no_alarm_and_finds_2_percent(tmp_path: Path) -> None:
    pairs = record(tmp_path / "aa", 8, noise=0.002)
    assert rates(pairs, worse_by=0.0).regression.count == 0
    found = rates(pairs, worse_by=0.02)
    assert found.regression.share >= 0.95


@pytest.mark.slow
def test_a_loud_machine_is_undecided_and_not_wrong_while_a_limit_on_the_mean_is(tmp_path: Path) -> None:
    pairs = record(tmp_path / "aa", 8, noise=0.03)
    found = rates(pairs, worse_by=0.0)
    assert found.regression.count == 0
    assert found.undecided.share > 0.9
    assert found.limit.share > 0.5, "one pair and a limit of 2 %, as pytest-benchmark has it"


def test_slowing_a_case_down_changes_its_times_and_throughput_alone(tmp_path: Path) -> None:
    file = record(tmp_path / "aa", 6, noise=0.001)[0][0]
    key = Key("cuda", "saturated/overlap")
    found = slowed(file, key, 0.02)
    before, after = file.cases[key].rounds[0], found.cases[key].rounds[0]
    assert after["ttft_mean_ns"] == pytest.approx(1.02 * (before["ttft_mean_ns"] or 0))
    assert after["throughput_rps"] == pytest.approx((before["throughput_rps"] or 0) / 1.02)
    assert after["gpu_idle_share"] == before["gpu_idle_share"]
    assert after["num_forwards"] == before["num_forwards"]
    assert all(found.cases[other] == file.cases[other] for other in file.cases if other != key)


def test_folders_without_enough_pairs_of_one_commit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="0 pairs with every case; at least 5 are needed: gate --base HEAD -o FOLDER"):
        read_pairs([tmp_path])
    record(tmp_path / "aa", 6, noise=0.001)
    write_run(tmp_path / "aa" / "pair-01-head.json", commit="b" * 40)
    with pytest.raises(FileError, match="pairs of 2 commits"):
        read_pairs([tmp_path / "aa"])


def test_only_the_plans_experiments_count(tmp_path: Path) -> None:
    pairs = record(tmp_path / "aa", 6, noise=0.001)
    found = of_plan(pairs, Plan(("starved",), 1, (5,)))
    assert {key.case for pair in found for file in pair for key in file.cases} == {"starved/normal", "starved/overlap"}
    with pytest.raises(FileError, match=r"none of the plan's experiments \(other\) is among the recorded cases"):
        of_plan(pairs, Plan(("other",), 1, (5,)))


def test_the_command_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path / "aa", 6, noise=0.001)
    assert main(["error-rates", str(tmp_path / "aa"), "--gates", "3"]) == 0
    output = capsys.readouterr().out
    assert "6 pairs of 4 cases on cuda; looks after [5, 9] pairs" in output
    assert "| no change | 0 of 3 (0.0%) [0.00%, 70.76%] |" in output
    assert "| one case's times 5% longer | 3 of 3" in output
    with pytest.raises(SystemExit):
        main(["error-rates", str(tmp_path / "aa"), "--gates", "0"])
