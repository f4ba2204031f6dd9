"""Section 14.3: one forward too many after a stop token, none at a length limit."""

from __future__ import annotations

from dataclasses import replace

from impl.experiment import Scenario
from impl.schedulers import normal
from impl.workload import Workload
from perf.experiments import LENGTH_LIMIT, STOP_TOKEN
from reports.claims import Broken, Evidence, claim


def without_length_limit(scenario: Scenario) -> Scenario:
    """End the requests by a stop token where they ended by length."""
    requests = tuple(replace(r, max_output_tokens=16, stop_after=1) for r in scenario.workload.requests)
    return replace(scenario, workload=Workload(requests))


@claim(STOP_TOKEN, section="14.3", broken=Broken("overlap that does not overlap", {"overlap": normal}))
def test_a_stop_token_costs_one_forward_too_many(evidence: Evidence) -> None:
    """Each of the n requests ends with its first token, a stop token, seen only when the next forward is launched:
    n surplus forwards beside n real ones, half of all, and n tokens dropped. `normal` has none. That resources
    are given back exactly once is checked in every run.
    """
    rounds = evidence.of(STOP_TOKEN)
    n = len(rounds.scenario.workload.requests)
    forwards = rounds.metric("num_forwards", "overlap")
    evidence.equal("normal's forwards", rounds.metric("num_forwards", "normal"), n)
    evidence.equal("overlap's forwards", forwards, 2 * n)
    evidence.equal("tokens dropped", rounds.metric("num_surplus_tokens", "overlap"), n)
    evidence.equal("tokens dropped by normal", rounds.metric("num_surplus_tokens", "normal"), 0)
    evidence.show("surplus share of forwards", rounds.metric("num_surplus_tokens", "overlap") / forwards, "share")


@claim(LENGTH_LIMIT, section="14.3", broken=Broken("stop tokens", scenario=without_length_limit))
def test_a_length_limit_costs_no_surplus_forward(evidence: Evidence) -> None:
    """A length limit is known when scheduling: as many forwards as tokens, nothing dropped."""
    rounds = evidence.of(LENGTH_LIMIT)
    n = len(rounds.scenario.workload.requests)
    evidence.equal("overlap's forwards", rounds.metric("num_forwards", "overlap"), n)
    evidence.equal("tokens dropped", rounds.metric("num_surplus_tokens", "overlap"), 0)
    evidence.show("surplus forwards", rounds.metric("num_surplus_tokens", "overlap"), "")
