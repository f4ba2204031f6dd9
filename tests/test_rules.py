from __future__ import annotations

from pathlib import Path

import pytest

from reports.files import FileError
from reports.regression.results import METRICS, Key
from reports.regression.rules import KINDS, PATH, read_rules

WHOLE = """
[gate.cuda]
experiments = ["saturated"]
rounds = 2
pairs = [6, 12]

[compare]
process_luck = 0.005

[metrics.ttft_mean_ns]
relative = 0.01
absolute = 20_000
visible = 0.05

[[override]]
case = "starved/*"
metric = "ttft_mean_ns"
relative = 0.03

[[override]]
case = "*/normal"
metric = "ttft_mean_ns"
absolute = 5
"""


def test_every_metric_has_a_direction_and_a_unit() -> None:
    assert set(KINDS) == set(METRICS)


def test_the_projects_own_rules_can_be_read_and_cover_every_device() -> None:
    rules = read_rules(PATH)
    assert set(rules.plans) == {"virtual", "cpu", "cuda"}
    assert {"throughput_rps", "ttft_mean_ns"} <= set(rules.metrics)


def test_overrides_change_single_numbers_and_the_last_match_wins(tmp_path: Path) -> None:
    path = tmp_path / "gate.toml"
    path.write_text(WHOLE)
    rules = read_rules(path)
    found = {
        case: (rule.relative, rule.absolute)
        for case in ("saturated/overlap", "starved/overlap", "starved/normal")
        if (rule := rules.rule(Key("cuda", case), "ttft_mean_ns"))
    }
    assert found == {
        "saturated/overlap": (0.01, 20_000),
        "starved/overlap": (0.03, 20_000),
        "starved/normal": (0.03, 5),
    }
    assert not rules.is_judged("total_ns")
    assert rules.unmatched(["starved/overlap"]) == ["*/normal"]
    with pytest.raises(FileError, match=r"has no table \[gate\.cpu\]; there are: cuda"):
        rules.plan("cpu")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("[gate.cuda]", "[gate.cuda", "not valid TOML"),
        ("rounds = 2", "rounds = 0", "field 'gate.cuda.rounds' is 0; expected a whole number of at least 1"),
        ("rounds = 2", "round = 2", "field 'gate.cuda.round' is unknown; allowed: experiments, rounds, pairs"),
        ("[6, 12]", "[12, 6]", "field 'gate.cuda.pairs' is [12, 6]; expected rising whole numbers"),
        ("[6, 12]", "[]", "field 'gate.cuda.pairs' is []"),
        ("[6, 12]", "[1]", "field 'gate.cuda.pairs' begins with 1; where time is real, at least 2"),
        ('["saturated"]', '"saturated"', "field 'gate.cuda.experiments' is 'saturated'; expected a list of ids"),
        ("metrics.ttft_mean_ns]", "metrics.ttft]", "field 'metrics.ttft' names no metric; there are: total_ns"),
        ("absolute = 20_000\n", "", "field 'metrics.ttft_mean_ns' lacks absolute"),
        ("relative = 0.01", "relative = -0.01", "field 'metrics.ttft_mean_ns.relative' is -0.01; expected a number of"),
        ("relative = 0.01", "relative = nan", "field 'metrics.ttft_mean_ns.relative' is nan; expected a number of at"),
        ("relative = 0.01", 'relative = "1%"', "field 'metrics.ttft_mean_ns.relative' is '1%'; expected a number"),
        ('"starved/*"', "3", "field 'override[0].case' is 3; expected a pattern"),
        ('metric = "ttft_mean_ns"', 'metric = "ttft"', "field 'override[0].metric' is 'ttft'; expected one of"),
        ("[[override]]", "[override]", "not valid TOML"),
        ("process_luck", "luck", "field 'compare.luck' is unknown; allowed: process_luck"),
        ("process_luck = 0.005", "", "field 'compare' lacks process_luck"),
        ("absolute = 20_000", f"absolute = {10**400}", "field 'metrics.ttft_mean_ns.absolute' is 1000"),
        ("absolute = 20_000", "absolute = " + "[" * 3000, "not valid TOML"),
    ],
)
def test_a_bad_file_is_named_with_the_field_and_what_is_allowed(old: str, new: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "gate.toml"
    assert old in WHOLE
    path.write_text(WHOLE.replace(old, new, 1))
    with pytest.raises(FileError) as caught:
        read_rules(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert told in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"none\.toml: cannot be read: .*No such file"):
        read_rules(tmp_path / "none.toml")
