"""Profiling at the end of a session, with a profiler that only runs; the real one needs a GPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from impl.engine import Engine
from impl.errors import RunFailed
from impl.experiment import Result
from impl.machines import CpuMachine
from impl.schedulers import normal, overlap
from reports.cases import Case, Experiment
from reports.cupti import Recording
from reports.lab import Lab
from reports.profiling import profile_cases
from tests.build import scenario


def fails(engine: Engine) -> None:
    raise ValueError("my bug")


EXPERIMENT = Experiment(scenario(), {"normal": normal, "fails": fails, "overlap": overlap}, real_scale=0.1)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    def recorded(run: Callable[[], Result], path: Path) -> Recording:
        result = run()
        path.write_text(json.dumps(result.timeline.started_ns))
        return Recording(result, path, 0)

    monkeypatch.setattr("reports.profiling.record", recorded)
    monkeypatch.setattr("reports.lab.MACHINES", {"cuda": CpuMachine})
    return Lab({}, lambda text: None)


def waiting(folder: Path, *schedulers: str) -> list[tuple[Case, Path]]:
    return [(Case(EXPERIMENT, name), folder / f"{name}.json") for name in schedulers]


def test_each_case_leaves_two_traces_and_its_progress(lab: Lab, tmp_path: Path) -> None:
    told: list[str] = []
    profile_cases(waiting(tmp_path, "normal", "overlap"), lab, told.append)
    assert told == ["torch.profiler: small/normal, 1 of 2", "torch.profiler: small/overlap, 2 of 2"]
    for name in ("normal", "overlap"):
        assert json.loads((tmp_path / f"{name}.torch.json").read_text()) > 0
        events = json.loads((tmp_path / f"{name}.json").read_text())["traceEvents"]
        assert len([event for event in events if event.get("cat") == "forward" and event["ph"] == "X"]) == 3


def test_a_case_that_fails_is_named_after_the_others_have_run(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"small/fails: thread 'scheduler' failed: ValueError: my bug"):
        profile_cases(waiting(tmp_path, "normal", "fails", "overlap"), lab, lambda text: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "normal.json",
        "normal.torch.json",
        "overlap.json",
        "overlap.torch.json",
    ]
