"""Section 11: with dynamic batching, launching earlier makes more and smaller batches.

The load is open loop, 100 requests at 50 QPS: no scheduler can finish before the last arrival, so throughput is
capped at about 50 requests a second and differences of a few percent are where the last batch happens to fall.
Forwards and TTFT tell the schedulers apart; both are asserted.
"""

from __future__ import annotations

import math

from impl.schedulers import normal, overlap
from perf.broken import three_threads_that_take_turns
from perf.experiments import DYNAMIC_BATCHING
from perf.formulas import asked_times
from reports.claims import Broken, Evidence, claim


def num_cycles(time_ns: float, cycle_ns: float) -> int:
    """Return how many cycles it takes until `time_ns` has passed."""
    return math.ceil(time_ns / cycle_ns)


@claim(DYNAMIC_BATCHING, section="11", broken=Broken("overlap that does not overlap", {"overlap": normal}))
def test_overlap_makes_more_and_smaller_batches_than_normal(evidence: Evidence) -> None:
    """`normal` closes a batch every pre + forward + post: 1 + ⌈last arrival / that⌉ forwards, which is also its
    total in cycles. `overlap` closes the first at 0, the second at pre, the third at pre + forward + post and
    one every forward from then on, until the last arrival is in.
    """
    rounds = evidence.of(DYNAMIC_BATCHING)
    s = asked_times(rounds)
    cycle, last = s.pre + s.forward + s.post, (s.n - 1) * s.gap
    normal_forwards = 1 + num_cycles(last, cycle)
    overlap_forwards = 3 + num_cycles(last - cycle, s.forward)
    found = rounds.metric("num_forwards", "overlap")
    if evidence.is_exact:
        evidence.equal("normal's forwards", rounds.metric("num_forwards", "normal"), normal_forwards)
        evidence.equal("overlap's forwards", found, overlap_forwards)
        evidence.equal("normal's total", rounds.metric("total_ns", "normal"), normal_forwards * cycle)
        evidence.equal(
            "overlap's total", rounds.metric("total_ns", "overlap"), s.pre + overlap_forwards * s.forward + s.post
        )
    more = found / rounds.metric("num_forwards", "normal") - 1
    evidence.at_least("more forwards", more, 0.15)
    evidence.at_most("throughput gain, capped by arrivals", rounds.gain("throughput_rps", "overlap"), 0.01)
    evidence.show("forwards", more, "%")


@claim(DYNAMIC_BATCHING, section="11", broken=Broken("overlap that does not overlap", {"overlap": normal}))
def test_overlap_raises_ttft_under_dynamic_batching(evidence: Evidence) -> None:
    """Bubbles are gone and TTFT rises all the same: a batch waits for most of the forward before its own."""
    rounds = evidence.of(DYNAMIC_BATCHING)
    evidence.at_most("idle share", rounds.metric("gpu_idle_share", "overlap"), evidence.near_zero(0.01))
    rise = rounds.gain("ttft_mean_ns", "overlap")
    evidence.at_least("rise of mean TTFT", rise, 0.15)
    evidence.show("mean TTFT", rise, "%")


@claim(
    DYNAMIC_BATCHING,
    section="11",
    broken=Broken("threads that take turns", {"overlap_three_thread": three_threads_that_take_turns}),
)
def test_three_threads_break_dynamic_batching(evidence: Evidence) -> None:
    """Pre runs ahead and closes a batch every pre: 1 + ⌈last arrival / pre⌉ forwards, back to back, so the total is
    pre + forwards · forward + post. No bubbles, and a quarter of the throughput.
    """
    rounds = evidence.of(DYNAMIC_BATCHING)
    s = asked_times(rounds)
    forwards = 1 + num_cycles((s.n - 1) * s.gap, s.pre)
    if evidence.is_exact:
        evidence.equal("forwards", rounds.metric("num_forwards", "overlap_three_thread"), forwards)
        total = rounds.metric("total_ns", "overlap_three_thread")
        evidence.equal("total", total, s.pre + forwards * s.forward + s.post)
    evidence.at_most("idle share", rounds.metric("gpu_idle_share", "overlap_three_thread"), evidence.near_zero(0.01))
    loss = rounds.gain("throughput_rps", "overlap_three_thread")
    evidence.at_most("throughput", loss, -0.7)
    evidence.show("throughput", loss, "%")


@claim(
    DYNAMIC_BATCHING,
    section="11",
    broken=Broken("overlap in place of three threads", {"overlap_three_thread": overlap}),
)
def test_three_threads_multiply_ttft_under_dynamic_batching(evidence: Evidence) -> None:
    """Batches pile up on the GPU: each waits for all forwards before it."""
    rounds = evidence.of(DYNAMIC_BATCHING)
    rise = rounds.gain("ttft_mean_ns", "overlap_three_thread")
    evidence.at_least("rise of mean TTFT", rise, 8)
    evidence.show("mean TTFT", rise, "%")
