"""The result table of the README."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.baselines import METRICS, Baselines
from reports.table import comparison, to_markdown


def written(path: Path, throughput: dict[str, float]) -> Path:
    cases = {case: dict.fromkeys(METRICS, 1.0) | {"throughput_rps": value} for case, value in throughput.items()}
    Baselines(path, cases, {}, {}).write()
    return path


def test_cases_of_either_baseline_have_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody without a GPU sees the experiments that he added."""
    monkeypatch.setattr("reports.table.FOLDER", tmp_path)
    written(tmp_path / "virtual.json", {"mine/normal": 2.0, "mine/overlap": 3.0})
    gpu = written(tmp_path / "gpu.json", {"theirs/normal": 4.0, "theirs/overlap": 5.0})
    lines = to_markdown(comparison(gpu), ["mine", "theirs"]).splitlines()[2:]
    assert [line.split(" | ")[:5] for line in lines] == [
        ["| mine", "overlap", "–", "+50.0 %", "–"],
        ["| theirs", "overlap", "–", "–", "+25.0 %"],
    ]
