"""Every claim fails with its planted fault in place: in virtual time, and by the bounds of real devices."""

from __future__ import annotations

import pytest

import perf
from impl.machines import VirtualMachine
from reports.claims import Claim, every_claim
from reports.lab import Lab, judge_broken
from reports.verdict import Verdict

CLAIMS = every_claim(perf)


def test_claims_have_unique_names() -> None:
    names = [claim.name for claim in CLAIMS]
    assert len(names) == len(set(names)) > 30


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name.removeprefix("test_"))
def test_claim_catches_its_planted_fault(claim: Claim) -> None:
    evidence = judge_broken(claim, "virtual")
    assert evidence.verdict is Verdict.FAILS, f"{claim.broken.what} went unnoticed"


class ScaledMachine(VirtualMachine):
    """Virtual time that counts as a GPU's: experiments run scaled down, in paired rounds, against its bounds."""

    name = "cuda"
    is_exact = False


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name.removeprefix("test_"))
def test_the_bounds_of_real_devices_tell_the_fault_too(claim: Claim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reports.lab.MACHINES", {"cuda": ScaledMachine})
    monkeypatch.setattr("reports.lab.why_no_nvml", lambda: "there is no GPU to sample")
    assert Lab({}, lambda text: None).judge(claim, "cuda").verdict is Verdict.HOLDS
    assert judge_broken(claim, "cuda").verdict is Verdict.FAILS, f"{claim.broken.what} went unnoticed"
