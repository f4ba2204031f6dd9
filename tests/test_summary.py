from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reports.baselines import Baselines
from reports.records import ClaimRecord
from reports.summary import claim_table, format_figure, sentence

RECORD = ClaimRecord(
    claim="test_overlap_raises_throughput",
    device="virtual",
    section="9.1",
    verdict="HOLDS",
    reason="",
    figure="throughput",
    unit="%",
    value=0.1765,
    experiments=["x"],
)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "%", "–"),
        (0.1765, "%", "+17.65 %"),
        (-0.5, "%", "-50.00 %"),
        (0.0, "%", "+0.00 %"),
        (0.26666, "share", "0.267"),
        (21, "forwards", "21 forwards"),
        (12345.678, "tokens", "12,345.7 tokens"),
        (2.5, "", "2.5"),
    ],
)
def test_a_figure_is_shown_in_its_unit(value: float | None, unit: str, text: str) -> None:
    assert format_figure(value, unit) == text


def test_a_claim_reads_as_a_sentence() -> None:
    assert sentence("test_overlap_raises_throughput") == "overlap raises throughput"


def table(*records: ClaimRecord, width: int = 100) -> list[str]:
    baselines = Baselines(Path("virtual.json"), {}, {RECORD.claim: 0.17}, {})
    return claim_table("virtual", records, {RECORD.claim: 0.1844}, baselines, width).splitlines()


def test_a_row_holds_article_measured_baseline_and_verdict() -> None:
    lines = table(RECORD)
    assert lines[0].strip() == "claims on virtual"
    row = next(line for line in lines if "overlap raises throughput → throughput" in line)
    cells = ["9.1", "+18.44 %", "+17.65 %", "+17.00 %", "HOLDS"]
    places = [row.index(cell) for cell in cells]
    assert places == sorted(places)


def test_a_claim_that_did_not_run_shows_so() -> None:
    not_run = replace(RECORD, claim="test_other", verdict="NOT RUN", figure="", unit="", value=None)
    row = next(line for line in table(not_run) if "other → not measured" in line)
    assert row.split() == ["other", "→", "not", "measured", "9.1", "–", "–", "–", "NOT", "RUN"]


@pytest.mark.parametrize("width", [100, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    long = replace(RECORD, claim="test_" + "_".join(["word"] * 40))
    assert max(map(len, table(long, width=width))) <= width


def test_a_record_survives_the_way_through_pytests_properties() -> None:
    name, value = RECORD.as_property()
    assert name == ClaimRecord.KEY == "overlap_claim"
    assert ClaimRecord(**value) == RECORD
