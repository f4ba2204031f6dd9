"""The result table, and that the README's tables show the recorded figures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from reports.baselines import FOLDER, METRICS, Baselines
from reports.table import comparison, to_markdown

README = FOLDER.parent / "README.md"


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


def table(header: str, path: Path = README) -> Iterator[list[str]]:
    """Yield the cells of each row of a table in a Markdown file."""
    lines = path.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(header))
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split("|")]


@pytest.fixture(scope="module")
def recorded() -> pd.DataFrame:
    return comparison(FOLDER / "nvidia-h200.json")


def test_the_readmes_results_are_those_of_the_baselines(recorded: pd.DataFrame) -> None:
    rows = list(table("| experiment: pre / forward"))
    assert len(rows) > 10
    for what, scheduler, *cells in rows:
        experiment = what.split(":")[0]
        lines = to_markdown(recorded, [experiment]).splitlines()
        (expected,) = [line for line in lines if line.startswith(f"| {experiment} | {scheduler} |")]
        rounded = re.sub(r"[+-]\d{4}\.\d", lambda found: f"{float(found[0]):+.0f}", expected)
        assert rounded == f"| {experiment} | {scheduler} | {' | '.join(cells)} |"


def test_the_readmes_advice_has_the_figures_of_the_baselines(recorded: pd.DataFrame) -> None:
    """Whole percents, virtual time / H200, of `overlap` or, where a batch is closed just in time, of that."""
    by_case = recorded.set_index(["experiment", "scheduler"])
    rows = list(table("| situation"))
    assert len(rows) > 10
    for situation, throughput, ttft, experiment in rows:
        scheduler = "overlap_just_in_time" if "just in time" in situation else "overlap"
        row = by_case.loc[(experiment.strip("`"), scheduler)]
        for metric, cell in (("throughput", throughput), ("TTFT", ttft)):
            shown = [int(number) for number in re.findall(r"[+-]?\d+", cell.replace("−", "-"))]
            assert shown == [round(100 * row[f"{metric} {source}"]) for source in ("virtual", "gpu")], situation


def test_the_readmes_predictions_are_those_recorded() -> None:
    header = "| experiment | scheduler | req/s predicted"
    everything = list(table(header, FOLDER / "nvidia-h200-predictions.md"))
    recorded = [[cell for i, cell in enumerate(row) if i not in (3, 7)] for row in everything]  # without the ±
    rows = list(table(header))
    assert len(rows) > 10
    assert all(row in recorded for row in rows)
