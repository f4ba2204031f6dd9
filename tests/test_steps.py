from __future__ import annotations

import pytest
from hypothesis import given

from impl.experiment import Scenario
from impl.schedulers import SCHEDULERS
from impl.steps import Step, six_steps
from perf.experiments import SATURATED, STARVED
from tests.build import MS, attempt
from tests.strategies import scenarios


def in_ms(scenario: Scenario, scheduler: str, request: int) -> dict[Step, float]:
    found = six_steps(attempt(SCHEDULERS[scheduler], scenario).timeline, request)
    return {step: ns / MS for step, ns in found.items() if ns}


@pytest.mark.parametrize("request_id", [2, 3])
def test_starved_only_the_first_second_and_last_step_are_its_own(request_id: int) -> None:
    """Chapter 8: post of the previous and pre of the next stand between launch and post, and nothing waits."""
    assert in_ms(STARVED.scenario, "overlap", request_id) == {
        Step.OWN_PRE: 120,
        Step.PREVIOUS_POST: 120,
        Step.NEXT_PRE: 120,
        Step.OWN_POST: 120,
    }


@pytest.mark.parametrize("request_id", [2, 3])
def test_saturated_the_thread_mostly_waits_for_the_previous_and_its_own_forward(request_id: int) -> None:
    """Chapter 7: of 980 ms, 400 are the six steps and 580 waiting: 290 for the previous forward, 290 for its own."""
    assert in_ms(SATURATED.scenario, "overlap", request_id) == {
        Step.OWN_PRE: 100,
        Step.PREVIOUS_POST: 100,
        Step.NEXT_PRE: 100,
        Step.OWN_POST: 100,
        Step.WAIT: 580,
    }


def test_normal_puts_nothing_in_between() -> None:
    assert in_ms(STARVED.scenario, "normal", 2) == {Step.OWN_PRE: 120, Step.WAIT: 165, Step.OWN_POST: 120}


@pytest.mark.parametrize("name", SCHEDULERS)
@given(served=scenarios())
def test_the_steps_add_up_to_the_service_ttft(name: str, served: Scenario) -> None:
    result = attempt(SCHEDULERS[name], served)
    first = {d.request_id: d.batch_id for d in result.timeline.deliveries if d.position == 0}
    taken_ns = {taken.batch_id: taken.time_ns for taken in result.timeline.taken}
    for metrics in result.metrics.requests:
        found = six_steps(result.timeline, metrics.id)
        ended_ns = result.timeline.started_ns + metrics.arrival_ns + metrics.ttft_ns
        assert sum(found.values()) == ended_ns - taken_ns[first[metrics.id]]
        assert min(found.values(), default=0) >= 0
