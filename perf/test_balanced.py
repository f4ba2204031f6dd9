"""Section 9.1: CPU time equal to GPU time; and the way there by chunked prefill, which is none."""

from __future__ import annotations

from dataclasses import replace

from impl.costs import cost_ms
from impl.experiment import Scenario
from perf.broken import overlap_that_posts_late, overlap_that_synchronizes
from perf.experiments import BALANCED, CHUNKED_PROMPTS, WHOLE_PROMPTS
from perf.formulas import asked_times, overlap_total, stage_times
from reports.claims import Broken, Evidence, claim
from reports.measure import matched


@claim(
    BALANCED, section="9.1", broken=Broken("a synchronize behind the launch", {"overlap": overlap_that_synchronizes})
)
def test_balanced_overlap_raises_throughput_most(evidence: Evidence) -> None:
    """With forward = pre + post, `overlap` takes pre + n·forward + post and `normal` 2·n·forward. Where time is real,
    pre + post is a little longer than forward, and each step in the middle takes as long.
    """
    rounds = evidence.of(BALANCED)
    wanted, s = asked_times(rounds), stage_times(evidence, rounds)
    evidence.equal("normal's total", rounds.metric("total_ns", "normal"), 2 * wanted.n * wanted.forward)
    evidence.equal("overlap's total", rounds.metric("total_ns", "overlap"), overlap_total(s))
    gain = rounds.gain("throughput_rps", "overlap")
    evidence.at_least("throughput gain", gain, 0.55)
    evidence.show("throughput", gain, "%")


@claim(BALANCED, section="9.1", broken=Broken("results held back for a launch", {"overlap": overlap_that_posts_late}))
def test_ttft_does_not_grow_when_the_inserted_work_fits_inside_the_own_forward(evidence: Evidence) -> None:
    """From the third request on, post of the previous and pre of the next fill exactly the own forward, and service
    TTFT is pre + forward + post as under `normal`. The second request, taken before the pipeline is full, pays
    one pre more; so the mean is pre + forward + post + pre / n.
    """
    rounds = evidence.of(BALANCED)
    s = stage_times(evidence, rounds)
    own = s.pre + s.forward + s.post
    found = rounds.metric("service_ttft_mean_ns", "overlap")
    steady = rounds.each("overlap", lambda r: sum(q.service_ttft_ns for q in r.metrics.requests[2:]) / (s.n - 2))
    evidence.equal("mean service TTFT", found, own + s.pre / s.n)
    evidence.equal("service TTFT from the third request on", steady, own)
    change = rounds.gain("service_ttft_mean_ns", "overlap")
    evidence.at_most("change of service TTFT", change, 0.08)
    evidence.show("service TTFT", change, "%")


def without_fixed_cost(scenario: Scenario) -> Scenario:
    """Make a forward's time proportional to its tokens: then chunks would be free."""
    return replace(scenario, costs=replace(scenario.costs, forward=cost_ms(0, per_token=0.26)))


@claim(
    WHOLE_PROMPTS,
    CHUNKED_PROMPTS,
    section="9.1",
    broken=Broken("forwards without a fixed cost", scenario=without_fixed_cost),
)
def test_chunked_prefill_matches_forward_to_cpu_time_but_raises_ttft(evidence: Evidence) -> None:
    """A chunk takes fixed + chunk tokens · per_token = pre + post, the balanced case, and no bubble is left. But a
    prompt of k chunks pays the fixed cost k times: TTFT of the first request is pre + forward + post as a whole
    and pre + k·chunk + post in chunks, which is (k − 1)·fixed more. Where time is real, pre + post is a little longer
    than a chunk, and all chunks but the last take as long.
    """
    whole, chunks = evidence.of(WHOLE_PROMPTS), evidence.of(CHUNKED_PROMPTS)
    s, c, k = stage_times(evidence, whole), stage_times(evidence, chunks), 4
    tokens_ns = whole.scenario.workload.requests[0].prompt_tokens * whole.scenario.costs.forward.per_token_ns
    chunk = c.forward + tokens_ns / k
    first_whole = whole.each("overlap", lambda r: r.metrics.requests[0].ttft_ns)
    first_chunked = chunks.each("overlap", lambda r: r.metrics.requests[0].ttft_ns)
    evidence.equal("TTFT of a whole prompt", first_whole, s.pre + s.forward + tokens_ns + s.post)
    in_chunks = c.pre + (k - 1) * max(chunk, c.pre + c.post) + chunk + c.post
    evidence.equal("TTFT in chunks", first_chunked, in_chunks)
    evidence.at_most("idle share in chunks", chunks.metric("gpu_idle_share", "overlap"), evidence.near_zero(0.08))
    chunked, as_a_whole = matched(first_chunked, first_whole)
    rise = chunked / as_a_whole - 1
    evidence.at_least("rise of TTFT", rise, 0.1)
    evidence.show("TTFT", rise, "%")
