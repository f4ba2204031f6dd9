from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from impl.machines import VirtualMachine
from impl.schedulers.normal import normal
from impl.schedulers.overlap import overlap
from reports.cases import Experiment
from reports.claims import TOLERANCES, Broken, ClaimFailed, Evidence
from reports.verdict import Verdict
from tests.build import scenario


def evidence(device: str = "virtual") -> Evidence:
    return Evidence(device, {})


@pytest.mark.parametrize("machine", TOLERANCES)
def test_a_formula_is_met_within_the_devices_tolerance(machine: str) -> None:
    margin = 200 * TOLERANCES[machine].equal
    found = evidence(machine)
    found.equal("inside", np.full(2, 200 + 0.9 * margin), 200)
    assert found.verdict is Verdict.HOLDS
    found.equal("outside", np.full(2, 200 - 1.1 * margin), 200)
    assert found.verdict is Verdict.FAILS


def test_bounds_include_their_ends() -> None:
    for value, verdict in ((1, Verdict.HOLDS), (2, Verdict.HOLDS), (0.9, Verdict.FAILS), (2.1, Verdict.FAILS)):
        found = evidence()
        found.between("value", np.array([value]), 1, 2)
        assert found.verdict is verdict
    found = evidence()
    found.at_least("least", np.array([1.0]), 1)
    found.at_most("most", np.array([1.0]), 1)
    assert found.verdict is Verdict.HOLDS
    found.at_least("least", np.array([math.nextafter(1, 0)]), 1)
    assert found.verdict is Verdict.FAILS


def test_an_undecided_claim_does_not_pass() -> None:
    found = evidence("cuda")
    found.at_least("gain", np.array([0.1, 0.3, 0.2]), 0.2)
    assert found.verdict is Verdict.UNDECIDED
    with pytest.raises(ClaimFailed, match=r"UNDECIDED on cuda:\n  UNDECIDED: gain = 0\.2 "):
        found.require_holds()


def test_a_failed_claim_shows_every_check() -> None:
    found = evidence()
    found.at_least("first", np.array([1.0]), 0)
    found.at_most("second", np.array([1.0]), 0)
    with pytest.raises(ClaimFailed) as caught:
        found.require_holds()
    assert str(caught.value).splitlines() == [
        "FAILS on virtual:",
        "  HOLDS: first = 1, wanted at least 0",
        "  FAILS: second = 1, wanted at most 0",
    ]


def test_slack_is_told_where_there_is_any() -> None:
    """Else 0.15 with an interval below 0.2, wanted at least 0.2, would look as if it should fail."""
    found = evidence("cpu")
    found.at_least("half at most", np.array([0.05, 0.06]), 0.08)
    found.at_most("second", np.array([1.0, 1.0]), 1)
    found.between("third", np.array([1.0, 1.0]), 0, 2)
    wanted = [check.wanted for check in found.checks]
    assert wanted == [
        "at least 0.08 (with 0.04 of slack)",
        "at most 1 (with 0.05 of slack)",
        "0 … 2 (with 0.1 of slack)",
    ]


def test_a_claim_that_checks_nothing_does_not_pass() -> None:
    with pytest.raises(ClaimFailed, match=r"NOT RUN on virtual:\n  the claim checked nothing"):
        evidence().require_holds()


def test_a_fault_replaces_schedulers_or_the_scenario_and_nothing_else() -> None:
    experiment = Experiment(scenario(), {"normal": normal, "overlap": normal}, section="1")
    assert Broken("other", {"overlap": overlap}).apply(experiment).schedulers == {"normal": normal, "overlap": overlap}
    changed = Broken("slow", scenario=lambda s: replace(s, id="slow")).apply(experiment)
    assert (changed.id, changed.schedulers) == ("slow", experiment.schedulers)
    assert experiment.on(VirtualMachine()) is experiment.scenario
