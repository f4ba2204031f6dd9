"""Every claim fails, and fails for a reason of its own, with its planted fault in place."""

from __future__ import annotations

import pytest

import perf
from reports.claims import Claim, every_claim
from reports.lab import judge_broken
from reports.verdict import Verdict

CLAIMS = every_claim(perf)


def test_claims_have_unique_names() -> None:
    names = [claim.name for claim in CLAIMS]
    assert len(names) == len(set(names)) > 30


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name.removeprefix("test_"))
def test_claim_catches_its_planted_fault(claim: Claim) -> None:
    evidence = judge_broken(claim)
    assert evidence.verdict is Verdict.FAILS, f"{claim.broken.what} went unnoticed"
