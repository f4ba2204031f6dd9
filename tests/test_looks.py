from __future__ import annotations

from pathlib import Path

import pytest

from reports.regression.change import Verdict
from reports.regression.looks import Looks, undecided
from reports.regression.results import Key, ResultFile, read_result
from reports.regression.rules import Plan, read_rules
from tests.results import metrics, noisy, write_run

RULES = read_rules()
PLAN = Plan((), 1, (6, 12))
KEY = Key("cuda", "saturated/overlap")


@pytest.fixture
def sides(tmp_path: Path) -> dict[str, list[ResultFile]]:
    """Twelve processes a side: equal ones, slower ones, loud ones, and ones that lack the metric."""
    kinds = {"base": 0.0, "equal": 0.0, "slower": 0.2}
    found: dict[str, list[ResultFile]] = {}
    for offset, (name, by) in enumerate(kinds.items()):
        rounds = [noisy(1, noise=0.001, slower=by, seed=100 * offset + i) for i in range(12)]
        found[name] = [
            read_result(write_run(tmp_path / f"{name}{i}.json", {KEY.case: each})) for i, each in enumerate(rounds)
        ]
    undefined = {KEY.case: [metrics(ttft_mean_ns=1.0, throughput_rps=None)]}
    found["undefined"] = [read_result(write_run(tmp_path / "undefined.json", undefined))] * 12
    return found


def verdict(looks: Looks, base: list[ResultFile], head: list[ResultFile]) -> Verdict | None:
    rows = {row.metric: row.verdict for row in looks.look(base, head).rows}
    return rows.get("throughput_rps")


def test_each_look_pays_its_part_of_the_rate(sides: dict[str, list[ResultFile]]) -> None:
    one = Looks(RULES, Plan((), 1, (6,))).look(sides["base"][:6], sides["equal"][:6])
    two = Looks(RULES, PLAN).look(sides["base"][:6], sides["equal"][:6])
    assert two.method.alpha == pytest.approx(one.method.alpha / 2)


def test_a_regression_that_one_look_has_found_stays(sides: dict[str, list[ResultFile]]) -> None:
    looks = Looks(RULES, PLAN)
    assert verdict(looks, sides["base"][:6], sides["slower"][:6]) is Verdict.REGRESSION
    later = sides["slower"][:6] + sides["undefined"][:6]
    assert verdict(looks, sides["base"], later) is Verdict.REGRESSION, "also if the metric is undefined later"
    assert verdict(Looks(RULES, PLAN), sides["base"], later) is None


def test_calm_gives_way_to_later_data(sides: dict[str, list[ResultFile]]) -> None:
    looks = Looks(RULES, PLAN)
    assert verdict(looks, sides["base"][:6], sides["equal"][:6]) is Verdict.OK
    assert verdict(looks, sides["base"], sides["equal"][:6] + sides["slower"][:6]) is not Verdict.OK


def test_only_undecided_cases_need_more_pairs(sides: dict[str, list[ResultFile]]) -> None:
    assert undecided(Looks(RULES, PLAN).look(sides["base"][:1], sides["equal"][:1])) == {KEY}
    assert undecided(Looks(RULES, PLAN).look(sides["base"][:6], sides["equal"][:6])) == set()
