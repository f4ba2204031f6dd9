"""Section 9.2: a prefill between two decodes."""

from __future__ import annotations

from dataclasses import replace

from impl.costs import cost_ms
from impl.experiment import Scenario
from perf.experiments import MIXED, MIXED_LITERAL, SATURATED
from perf.formulas import asked_times
from reports.claims import Broken, Evidence, claim


def short_prefill(scenario: Scenario) -> Scenario:
    """Make the prefill shorter than the CPU work that is put into it."""
    return replace(scenario, costs=replace(scenario.costs, forward=cost_ms(19, per_token=0.2)))


@claim(MIXED, SATURATED, section="9.2", broken=Broken("a prefill of 95 ms", scenario=short_prefill))
def test_a_prefill_between_decodes_keeps_its_ttft_and_leaves_the_gpu_idle(evidence: Evidence) -> None:
    """The prefill starts at once, because the decode before it is over, and covers post of the previous and pre of
    the next: its service TTFT is pre + forward + post under both. The price is a bubble of pre − decode before
    it, of pre + prefill + decode in all, where the saturated pipeline has none.
    """
    rounds = evidence.of(MIXED)
    s = asked_times(rounds)
    prefill = (
        rounds.scenario.workload.requests[1].prompt_tokens * rounds.scenario.costs.forward.per_token_ns + s.forward
    )
    overlap = rounds.each("overlap", lambda r: r.metrics.requests[1].service_ttft_ns)
    normal = rounds.each("normal", lambda r: r.metrics.requests[1].service_ttft_ns)
    evidence.equal("normal's service TTFT of the prefill", normal, s.pre + prefill + s.post)
    evidence.equal("overlap's service TTFT of the prefill", overlap, s.pre + prefill + s.post)
    idle = rounds.metric("gpu_idle_share", "overlap")
    decode = s.forward + rounds.scenario.costs.forward.per_token_ns
    bubble = (s.pre - decode) / (s.pre + prefill + decode)
    evidence.between("idle share", idle, *evidence.around(bubble, 0.05))
    evidence.at_most("idle share when saturated", evidence.of(SATURATED).metric("gpu_idle_share", "overlap"), 0.005)
    evidence.show("TTFT of the prefill", overlap / normal - 1, "%")


@claim(MIXED_LITERAL, section="9.2", broken=Broken("a prefill of 95 ms", scenario=short_prefill))
def test_the_articles_own_prefill_keeps_its_ttft(evidence: Evidence) -> None:
    """On CUDA the prefill is three products of 15000 × 15000, as in the article; elsewhere it takes 400 ms."""
    rounds = evidence.of(MIXED_LITERAL)
    overlap = rounds.each("overlap", lambda r: r.metrics.requests[1].service_ttft_ns)
    normal = rounds.each("normal", lambda r: r.metrics.requests[1].service_ttft_ns)
    change = overlap / normal - 1
    evidence.between("change of the prefill's service TTFT", change, *evidence.around(0, evidence.tolerance.equal))
    evidence.show("TTFT of the prefill", change, "%")
