"""The order of the gate: which process runs when, on which cases, and when it stops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from impl.errors import RunInvalid
from reports.files import FileError
from reports.regression.change import Verdict
from reports.regression.comparison import Comparison
from reports.regression.gate import run_gate
from reports.regression.results import ResultFile, read_result
from reports.regression.rules import Plan, Rule, read_rules
from reports.regression.suite import CasesFailed
from tests.results import metrics, write_run

CASES = ("calm-normal", "calm-overlap", "loud-normal", "loud-overlap")
NODES = tuple(f"perf/test_cases.py::test_case[{case}-cuda]" for case in CASES)
RULES = replace(
    read_rules(),
    plans={"cuda": Plan((), 2, (3, 5, 8))},
    metrics={"throughput_rps": Rule(relative=0.01, absolute=0.0, visible=0.05)},
    overrides=(),
)
NOISE = (0.05, -0.04, 0.02, -0.06, 0.03, 0.01, -0.05, 0.04)


@dataclass
class Process:
    """One call of a side."""

    side: str
    nodes: tuple[str, ...]
    rounds: int
    name: str


@dataclass
class FakeSuite:
    """A side whose processes take no time and leave chosen values."""

    side: str
    processes: list[Process]
    by: Callable[[str, int], float]
    """How much slower a case is in the side's process of this number."""
    errors: list[Exception] = field(default_factory=list)
    """What the next processes end with."""
    device: str = "cuda"
    num_measured: int = 0

    def collect(self) -> list[str]:
        return list(NODES)

    def measure(self, nodes: Sequence[str], rounds: int, output: Path) -> ResultFile:
        self.processes.append(Process(self.side, tuple(nodes), rounds, output.name))
        if self.errors:
            raise self.errors.pop(0)
        cases: Mapping[str, Any] = {
            f"{experiment}/{scheduler}": [metrics(slower=self.by(experiment, self.num_measured))] * rounds
            for experiment, scheduler in (node.partition("[")[2].split("-")[:2] for node in nodes)
        }
        self.num_measured += 1
        return read_result(write_run(output, cases, commit=self.side[0] * 40))


def gate(
    folder: Path, by: Callable[[str, int], float], **errors: list[Exception]
) -> tuple[Comparison, list[Process], list[str]]:
    processes: list[Process] = []
    told: list[str] = []
    sides = [
        FakeSuite("base", processes, lambda experiment, number: 0.0001 * (number % 3), errors.get("base", [])),
        FakeSuite("head", processes, by, errors.get("head", [])),
    ]
    found = run_gate(sides[0], sides[1], RULES, folder, told.append)  # type: ignore[arg-type]
    return found, processes, told


def quiet(experiment: str, number: int) -> float:
    return 0.0001 * ((number + 1) % 3)


def loud(experiment: str, number: int) -> float:
    """One experiment is too noisy for any verdict."""
    return NOISE[number] if experiment == "loud" else quiet(experiment, number)


def loud_at_first(experiment: str, number: int) -> float:
    """The noise is seen at the first look; five pairs would be enough if the other two were not there."""
    return NOISE[number] / 10 if experiment == "loud" else quiet(experiment, number)


def test_every_second_pair_begins_with_head(tmp_path: Path) -> None:
    _, processes, _ = gate(tmp_path, loud)
    order = [process.side for process in processes]
    assert order == ["base", "head", "head", "base"] * 4
    assert [process.name for process in processes[:4]] == [
        "pair-01-base.json",
        "pair-01-head.json",
        "pair-02-head.json",
        "pair-02-base.json",
    ]


def test_it_stops_at_the_first_look_that_decides_everything(tmp_path: Path) -> None:
    found, processes, told = gate(tmp_path, quiet)
    assert len(processes) == 6
    assert [len(found.base), len(found.head)] == [3, 3]
    assert set(found.counts) <= {Verdict.OK, Verdict.SHOWN}
    assert sum("after" in line for line in told) == 1


def test_later_looks_add_pairs_of_the_undecided_experiment_alone(tmp_path: Path) -> None:
    found, processes, told = gate(tmp_path, loud)
    assert [process.nodes for process in processes[:6]] == [NODES] * 6
    assert [process.nodes for process in processes[6:]] == [NODES[2:]] * 10, "normal too, as its partner"
    assert [len(found.base), len(found.head)] == [8, 8]
    assert [line.partition(":")[0] for line in told if line.startswith("after")] == [
        "after 3 pairs",
        "after 5 pairs",
        "after 8 pairs",
    ]
    numbers = {row.key.case: row.change.num_base for row in found.judged}
    assert numbers == {"calm/normal": 3, "calm/overlap": 3, "loud/normal": 8, "loud/overlap": 8}
    assert {row.key.case for row in found.judged if row.verdict is Verdict.UNDECIDED} == {"loud/normal", "loud/overlap"}


def test_it_stops_in_the_middle_of_the_plan_too(tmp_path: Path) -> None:
    found, processes, _ = gate(tmp_path, loud_at_first)
    assert len(processes) == 10
    assert set(found.counts) <= {Verdict.OK, Verdict.SHOWN}


def test_a_regression_ends_the_gate_at_its_look_whatever_else_is_undecided(tmp_path: Path) -> None:
    def slow(experiment: str, number: int) -> float:
        return loud(experiment, number) if experiment == "loud" else 0.05 + quiet(experiment, number)

    found, processes, _ = gate(tmp_path, slow)
    assert len(processes) == 6
    assert found.counts[Verdict.REGRESSION] == 2
    assert found.counts[Verdict.UNDECIDED] == 2


def test_every_process_has_the_plans_rounds(tmp_path: Path) -> None:
    found, processes, _ = gate(tmp_path, loud)
    assert {process.rounds for process in processes} == {2}
    assert {len(case.rounds) for file in found.base for case in file.cases.values()} == {2}


def test_an_invalid_process_is_repeated_and_the_order_kept(tmp_path: Path) -> None:
    _, processes, told = gate(tmp_path, quiet, head=[RunInvalid("late"), RunInvalid("late")])
    assert [process.side for process in processes] == ["base", "head", "head", "head", "head", "base", "base", "head"]
    assert told.count("invalid, not slow; once more: late") == 2


@pytest.mark.parametrize("side", ["base", "head"])
def test_three_invalid_attempts_say_nothing_about_the_commit(side: str, tmp_path: Path) -> None:
    errors: list[Exception] = [RunInvalid("late") for _ in range(3)]
    with pytest.raises(FileError, match="late; 3 attempts were invalid; free the machine of other work"):
        gate(tmp_path, quiet, **{side: errors})
    assert errors == [], "after all three"


def test_a_failure_is_not_repeated(tmp_path: Path) -> None:
    errors: list[Exception] = [RunInvalid("late"), CasesFailed("head", "wrong tokens"), RunInvalid("late")]
    with pytest.raises(CasesFailed, match="wrong tokens"):
        gate(tmp_path, quiet, head=errors)
    assert len(errors) == 1
