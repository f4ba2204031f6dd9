"""Every claim fails, and fails for a reason of its own, with its planted fault in place."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import perf
from reports.claims import CLAIMS, Claim
from reports.lab import judge_broken
from reports.verdict import Verdict

for module in pkgutil.iter_modules(perf.__path__):
    importlib.import_module(f"perf.{module.name}")


def test_claims_have_unique_names() -> None:
    names = [claim.name for claim in CLAIMS]
    assert len(names) == len(set(names)) > 30


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name.removeprefix("test_"))
def test_claim_catches_its_planted_fault(claim: Claim) -> None:
    evidence = judge_broken(claim)
    assert evidence.verdict is Verdict.FAILS, f"{claim.broken.what} went unnoticed"
    loosest = [c for c in evidence.checks if c.verdict is Verdict.FAILS and not c.wanted.replace(".", "").isdigit()]
    print(claim.name, "|", claim.broken.what, "|", [str(c) for c in loosest][:2])
