"""Cases and baselines match in both directions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import perf
from perf.experiments import EXPERIMENTS
from reports.baselines import Baselines
from reports.cases import cases
from reports.claims import every_claim


def test_every_case_has_a_baseline_and_every_baseline_a_case(
    device: str, baselines_of: Callable[[str], Baselines], pytestconfig: pytest.Config
) -> None:
    """A renamed, new or removed case shows here, whichever cases are selected."""
    baselines = baselines_of(device)
    if device == "cpu":
        pytest.skip("times of a CPU device belong to one machine at one hour; no baseline is kept")
    if pytestconfig.getoption("--update-baselines") or pytestconfig.getoption("--no-baseline"):
        pytest.skip("baselines are being rewritten, or not asked for")
    if baselines.is_empty and device != "virtual":
        pytest.skip(f"{baselines.path.name} does not exist; --require-baseline stops without it")
    assert sorted(unlisted_experiments()) == [], "experiments of claims that are not in EXPERIMENTS: they have no cases"
    if device == "virtual":
        named = {claim.name for claim in every_claim(perf)}
        assert sorted(set(baselines.claims) - named) == [], f"figures in {baselines.path.name} without a claim"
    known, recorded = {case.id for case in cases(EXPERIMENTS, [])}, set(baselines.cases)
    if known - recorded:
        missing = ", ".join(sorted(known - recorded))
        pytest.fail(f"cases without a baseline: {missing}; record them with --update-baselines REASON", pytrace=False)
    if recorded - known:
        left = ", ".join(sorted(recorded - known))
        pytest.fail(f"entries of {baselines.path.name} without a case: {left}; delete or rename them", pytrace=False)


def unlisted_experiments() -> set[str]:
    """Return experiments that claims use and EXPERIMENTS lacks."""
    return {e.id for claim in every_claim(perf) for e in claim.experiments} - {e.id for e in EXPERIMENTS}
