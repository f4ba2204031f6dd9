"""Every claim fails with its planted fault in place: in virtual time, and by the bounds of real devices. By those it
holds without the fault, also on a slow host.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import perf
from impl.machines import Machine, VirtualMachine
from reports.claims import Claim, every_claim
from reports.lab import Lab, judge_broken
from reports.verdict import Verdict
from tests.jitter import JitteryMachine

CLAIMS = every_claim(perf)
TOO_SHORT_FOR_A_SLOW_HOST = {"test_low_qps_overlap_raises_ttft_and_not_throughput_in_continuous_batching"}
"""Its host stages take 0.16 ms, so that 0.2 ms more make another experiment of it."""


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


class SlowMachine(JitteryMachine):
    """The same with a host that takes 0.2 ms more for each of pre, launch and post, twice what an H200's did, and
    forwards of 0.02 ms more.
    """

    name = "cuda"
    is_exact = False

    def __init__(self) -> None:
        super().__init__(0, host=lambda draw: 200_000, forward=lambda draw: 20_000)


def lab_on(machine: Callable[[], Machine], monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setattr("reports.lab.MACHINES", {"cuda": machine})
    monkeypatch.setattr("reports.lab.why_no_nvml", lambda: "there is no GPU to sample")
    return Lab({}, lambda text: None)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name.removeprefix("test_"))
def test_the_bounds_of_real_devices_tell_the_fault_too(claim: Claim, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lab_on(ScaledMachine, monkeypatch).judge(claim, "cuda").verdict is Verdict.HOLDS
    assert judge_broken(claim, "cuda").verdict is Verdict.FAILS, f"{claim.broken.what} went unnoticed"


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name.removeprefix("test_"))
def test_a_slow_host_lets_claims_hold(claim: Claim, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = lab_on(SlowMachine, monkeypatch).judge(claim, "cuda")
    expected = Verdict.FAILS if claim.name in TOO_SHORT_FOR_A_SLOW_HOST else Verdict.HOLDS
    assert evidence.verdict is expected, "\n".join(map(str, evidence.checks))
