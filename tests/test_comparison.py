from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reports.files import FileError
from reports.regression.change import Verdict
from reports.regression.comparison import Comparison, Exit, compare, compare_pairs
from reports.regression.results import Key, ResultFile, read_result
from reports.regression.rules import read_rules
from tests.results import CASES, metrics, noisy, write_run

RULES = read_rules()
KEY = Key("cuda", "saturated/overlap")


class Folder:
    """Writes runs and reads them again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._num = 0

    def run(self, cases: Any = None, **options: Any) -> ResultFile:
        self._num += 1
        return read_result(write_run(self._path / f"{self._num}.json", cases, **options))

    def runs(self, num: int, *, by: float = 0.0, noise: float = 0.001, seed: int = 0) -> list[ResultFile]:
        """Return processes of one side in which one case is slower by a share."""
        return [
            self.run(
                {
                    case: noisy(2, noise=noise, slower=by if case == KEY.case else 0.0, seed=seed + 97 * i + j)
                    for j, case in enumerate(CASES)
                }
            )
            for i in range(num)
        ]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def verdicts(found: Comparison, verdict: Verdict) -> set[tuple[str, str]]:
    return {(row.key.case, row.metric) for row in found.rows if row.verdict is verdict}


def code(found: Comparison) -> Exit:
    return found.exit_code(allow_changed_cases=False)


def test_a_planted_regression_is_found_in_its_case_and_nowhere_else(folder: Folder) -> None:
    found = compare_pairs(folder.runs(8), folder.runs(8, by=0.03, seed=5000), RULES, num_looks=3)
    assert verdicts(found, Verdict.REGRESSION) == {(KEY.case, "throughput_rps"), (KEY.case, "ttft_mean_ns")}
    assert verdicts(found, Verdict.UNDECIDED) == set()
    assert code(found) is Exit.REGRESSION


def test_a_planted_improvement_is_no_failure(folder: Folder) -> None:
    found = compare_pairs(folder.runs(8), folder.runs(8, by=-0.03, seed=5000), RULES, num_looks=3)
    assert verdicts(found, Verdict.IMPROVEMENT) == {(KEY.case, "throughput_rps"), (KEY.case, "ttft_mean_ns")}
    assert code(found) is Exit.OK


def test_equal_sides_are_ok_and_noise_is_undecided(folder: Folder) -> None:
    assert code(compare_pairs(folder.runs(8), folder.runs(8, seed=5000), RULES, num_looks=1)) is Exit.OK
    loud = compare_pairs(folder.runs(8, noise=0.1), folder.runs(8, noise=0.1, seed=5000), RULES, num_looks=1)
    assert code(loud) is Exit.UNDECIDED


def test_the_rate_is_divided_among_measured_rows_and_looks(folder: Folder) -> None:
    found = compare_pairs(folder.runs(6), folder.runs(6, seed=5000), RULES, num_looks=3)
    judged = [row for row in found.rows if row.verdict is not Verdict.SHOWN]
    assert found.method.num_tests == len(judged) == len(CASES) * 6
    assert found.method.alpha == pytest.approx(0.01 / len(judged) / 3)


def test_drift_that_both_sides_share_is_taken_out_by_pairs_alone(folder: Folder) -> None:
    def side(by: float) -> list[ResultFile]:
        shares = [(1 + 0.02 * i) * (1 + by) - 1 + 0.0003 * (i % 2) for i in range(8)]
        return [folder.run({KEY.case: [metrics(slower=share)]}) for share in shares]

    paired = compare_pairs(side(0), side(0.03), RULES, num_looks=1)
    assert (KEY.case, "ttft_mean_ns") in verdicts(paired, Verdict.REGRESSION)
    apart = compare(side(0), side(0.03), RULES)
    assert (KEY.case, "ttft_mean_ns") in verdicts(apart, Verdict.UNDECIDED)


def test_several_files_a_side_are_compared_process_by_process(folder: Folder) -> None:
    def luck(values: Sequence[float]) -> list[ResultFile]:
        return [folder.run({KEY.case: noisy(10, noise=0.0005, slower=by, seed=i)}) for i, by in enumerate(values)]

    # Rounds of one process share its luck: ten of each would "prove" a change that three processes do not.
    found = compare(luck([0.0, 0.01, 0.03]), luck([0.04, 0.01, 0.03]), RULES)
    assert found.method.unit == "process"
    assert verdicts(found, Verdict.REGRESSION) == set()
    assert compare(luck([0.0, 0.0]), luck([0.04, 0.04]), RULES).method.unit == "round"
    assert compare(luck([0.0, 0.0, 0.0]), luck([0.04, 0.04]), RULES).method.unit == "round", "on both sides"


@pytest.mark.parametrize("name", ["total_ns", "num_forwards", "launch_lead", "num_surplus_tokens", "gpu_idle_share"])
def test_in_virtual_time_any_change_of_any_metric_counts(name: str, folder: Folder) -> None:
    before = metrics()
    by = {"num_forwards": 1, "num_surplus_tokens": 1}.get(name, before[name] * 0.001)
    up, same = (
        folder.run({KEY.case: [metrics(**{name: before[name] + by})]}, device="virtual"),
        folder.run({KEY.case: [before]}, device="virtual"),
    )
    worse = (same, up) if name != "launch_lead" else (up, same)
    assert verdicts(compare([worse[0]], [worse[1]], RULES), Verdict.REGRESSION) == {(KEY.case, name)}
    better = compare([worse[1]], [worse[0]], RULES)
    assert verdicts(better, Verdict.IMPROVEMENT) == {(KEY.case, name)}
    assert code(better) is Exit.OK


def test_a_hundred_equal_virtual_runs_raise_nothing(folder: Folder) -> None:
    base = folder.run({c: [metrics()] for c in CASES}, device="virtual")
    assert {code(compare([base], [base], RULES)) for _ in range(100)} == {Exit.OK}


def test_virtual_rounds_that_differ_are_no_longer_exact(folder: Folder) -> None:
    base = folder.run({KEY.case: [metrics()]}, device="virtual")
    head = folder.run({KEY.case: [metrics(), metrics(total_ns=400_000_001)]}, device="virtual")
    found = compare([base], [head], RULES)
    assert [row.judgement.reason for row in found.rows if row.metric == "total_ns"] == [
        "no longer exact: its rounds differ"
    ]
    assert code(found) is Exit.REGRESSION


@pytest.mark.parametrize(
    ("fact", "other", "told"),
    [
        ("gpu", "NVIDIA H100", "gpu: 'NVIDIA H200'"),
        ("driver", "570.1", "driver: '580'"),
        ("torch", "2.12.0", "torch: '2.11.0'"),
        ("power_limit_w", 500.0, "power_limit_w: 700.0"),
        ("gil", False, "gil: True"),
    ],
)
def test_unlike_machines_are_refused_with_the_facts_that_differ(
    fact: str, other: object, told: str, folder: Folder
) -> None:
    base, head = folder.run(), folder.run(facts={fact: other})
    with pytest.raises(FileError, match=rf"unlike machines \(cuda\): {told} in .*--across-machines"):
        compare([base], [head], RULES)


def test_a_clock_that_moved_and_a_minor_driver_are_no_other_machine(folder: Folder) -> None:
    head = folder.run(facts={"driver": "580.200", "sm_clock_mhz": 1345})
    assert compare([folder.run()], [head], RULES).judged


def test_across_machines_only_ratios_to_normal_are_compared(folder: Folder) -> None:
    def side(factor: float, overlap: float, gpu: str) -> list[ResultFile]:
        cases = {
            "saturated/normal": [metrics(slower=factor * (1 + i / 1000) - 1) for i in range(6)],
            "saturated/overlap": [metrics(slower=factor * overlap * (1 + i / 1000) - 1) for i in range(6)],
            "alone/overlap": [metrics(slower=factor - 1)] * 6,
        }
        return [folder.run(cases, facts={"gpu": gpu})]

    found = compare(side(1, 0.8, "NVIDIA H200"), side(2, 0.8, "NVIDIA H100"), RULES, across_machines=True)
    assert {row.key.case for row in found.rows} == {"saturated/overlap"}
    assert verdicts(found, Verdict.REGRESSION) == set(), "twice as slow, and the ratio is the same"
    worse = compare(side(1, 0.8, "NVIDIA H200"), side(2, 0.9, "NVIDIA H100"), RULES, across_machines=True)
    assert ("saturated/overlap", "ttft_mean_ns") in verdicts(worse, Verdict.REGRESSION)


def test_a_failing_run_is_no_base(folder: Folder) -> None:
    failed = folder.run(failed=["perf/test_cases.py::test_case[a]", "perf/test_x.py::test_y"])
    with pytest.raises(FileError, match=r"a failing run is no base: perf/test_cases\.py::test_case\[a\] and 1 more"):
        compare([failed], [folder.run()], RULES)
    assert compare([folder.run()], [failed], RULES).rows


def test_another_time_scale_makes_a_case_incomparable(folder: Folder) -> None:
    found = compare([folder.run(scale=0.1)], [folder.run(scale=0.2)], RULES)
    assert len(found.incomparable) == len(CASES)
    assert found.incomparable[0] == "saturated/normal on cuda: time scale [0.1] in base, [0.2] in head"
    assert code(found) is Exit.REGRESSION
    assert found.exit_code(allow_changed_cases=True) is Exit.UNDECIDED, "nothing was compared"


def test_a_metric_that_is_undefined_on_one_side_only_is_listed(folder: Folder) -> None:
    found = compare([folder.run()], [folder.run({c: [metrics(launch_lead=None)] * 3 for c in CASES})], RULES)
    assert "launch_lead of saturated/normal on cuda: undefined in head" in found.incomparable
    assert not any(row.metric == "itl_mean_ns" for row in found.rows), "undefined on both sides"
    assert code(found) is Exit.REGRESSION


def test_a_metric_that_one_case_lacks_takes_no_other_case_out_of_the_gate(folder: Folder) -> None:
    slow = [metrics(slower=1.0)] * 6
    bare = [{name: value for name, value in metrics().items() if name != "throughput_rps"}] * 6
    base = {"saturated/overlap": [metrics()] * 6, "starved/overlap": [metrics()] * 6}
    found = compare([folder.run(base)], [folder.run({"saturated/overlap": slow, "starved/overlap": bare})], RULES)
    assert ("saturated/overlap", "throughput_rps") in verdicts(found, Verdict.REGRESSION)
    assert "throughput_rps of starved/overlap on cuda: not in the file in head" in found.incomparable


def test_a_metric_that_is_undefined_in_some_rounds_is_listed(folder: Folder) -> None:
    partly = {KEY.case: [metrics(throughput_rps=None), *[metrics()] * 5]}
    found = compare([folder.run(partly)], [folder.run(partly | {})], RULES)
    assert found.incomparable == [f"throughput_rps of {KEY}: undefined in some rounds in head"]
    assert code(found) is Exit.REGRESSION


def test_a_test_of_head_that_failed_is_a_regression(folder: Folder) -> None:
    head = folder.run(failed=["perf/test_cases.py::test_case[saturated-overlap-cuda]"])
    found = compare([folder.run()], [head], RULES)
    assert found.failed == ["perf/test_cases.py::test_case[saturated-overlap-cuda]"]
    assert found.exit_code(allow_changed_cases=True) is Exit.REGRESSION
    assert "1 tests of head failed" in found.sentence(allow_changed_cases=True)


def test_runs_of_two_commits_are_not_one_side(folder: Folder) -> None:
    with pytest.raises(FileError, match="base: runs of 2 commits"):
        compare([folder.run(), folder.run(commit="b" * 40)], [folder.run()], RULES)


@pytest.mark.slow
@pytest.mark.parametrize("num_files", [1, 2])
def test_the_luck_of_a_process_gives_no_alarm_in_files_of_many_rounds(num_files: int, folder: Folder) -> None:
    """Processes that differ by 0.5 % with rounds that differ by 0.2 %: rounds alone would "prove" a change."""
    random = np.random.default_rng(5)

    def side() -> list[ResultFile]:
        seeds = random.integers(1 << 30, size=num_files)
        return [folder.run({KEY.case: noisy(10, noise=0.002, slower=random.normal(0, 0.005), seed=s)}) for s in seeds]

    alarms = sum(code(compare(side(), side(), RULES)) is Exit.REGRESSION for _ in range(100))
    assert alarms <= 2
    slow = [folder.run({KEY.case: noisy(10, noise=0.002, slower=0.06, seed=9)}) for _ in range(num_files)]
    assert code(compare(side(), slow, RULES)) is Exit.REGRESSION, "and a loss of 6 % shows"


def test_a_count_that_differs_between_single_processes_is_undecided(folder: Folder) -> None:
    """Ten rounds of one process agree because it is one process."""
    found = compare(
        [folder.run({KEY.case: noisy(10, noise=0.0005)})],
        [folder.run({KEY.case: [each | {"num_forwards": 11} for each in noisy(10, noise=0.0005, seed=1)]})],
        RULES,
    )
    assert (KEY.case, "num_forwards") in verdicts(found, Verdict.UNDECIDED)


def test_across_machines_counts_keep_their_grid_and_cases_that_lack_their_reference_are_listed(folder: Folder) -> None:
    rounds = [metrics(num_forwards=1000 + i % 2) for i in range(40)]
    cases = {"saturated/normal": rounds, "saturated/overlap": rounds[::-1], "alone/overlap": rounds}
    found = compare([folder.run(cases)], [folder.run(cases)], RULES, across_machines=True)
    assert ("saturated/overlap", "num_forwards") in verdicts(found, Verdict.OK)
    assert found.incomparable == [], "an experiment without normal is nothing new"
    assert {row.key.case for row in found.rows} == {"saturated/overlap"}
    lost = compare([folder.run({**cases, "alone/normal": rounds})], [folder.run(cases)], RULES, across_machines=True)
    assert "alone/overlap on cuda: no normal to relate it to" in lost.incomparable


def test_launch_leads_of_few_launches_give_no_alarm_by_agreeing(folder: Folder) -> None:
    def side(lead: float) -> list[ResultFile]:
        return [folder.run({KEY.case: [metrics(num_forwards=9, launch_lead=lead)]}) for _ in range(5)]

    found = compare_pairs(side(0.25), side(0.125), RULES, num_looks=2)
    assert (KEY.case, "launch_lead") in verdicts(found, Verdict.UNDECIDED)


def test_unknown_facts_of_a_gpu_are_not_equal_facts(folder: Folder) -> None:
    facts = {"driver": None}
    with pytest.raises(FileError, match=r"cuda\.driver' is unknown; record it again with nvidia-ml-py installed"):
        compare([folder.run(facts=facts)], [folder.run(facts=facts)], RULES)


def test_an_override_that_matches_nothing_is_noted(folder: Folder) -> None:
    rules = replace(RULES, overrides=(("saturatd/*", "ttft_mean_ns", {"relative": 0.5}),))
    assert (
        "gate.toml: the override for 'saturatd/*' matches no case"
        in compare([folder.run()], [folder.run(failed=[])], rules).notes
    )
