"""Every scheduler on every experiment: correct before fast, one benchmark entry each, compared with its baseline."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from perf.experiments import EXPERIMENTS
from reports.cases import Case
from reports.lab import Lab
from reports.replay import CLOCK

__all__ = ["EXPERIMENTS"]


@pytest.mark.benchmark(timer=CLOCK)
def test_case(
    case: Case, device: str, lab: Lab, benchmark: BenchmarkFixture, check_case: Callable[[Case, BenchmarkFixture], None]
) -> None:
    """Every request ends once, with the tokens of `normal`; the metrics are those of the baseline."""
    rounds = lab.rounds(case.experiment, device)
    failure = rounds.failure(case.scheduler)
    if failure is not None:
        pytest.fail(failure, pytrace=False)
    reference = rounds.of(next(iter(case.experiment.schedulers)))[0].tokens
    assert all(result.tokens == reference for result in rounds.of(case.scheduler))
    check_case(case, benchmark)
