"""Section 10: the CPU stages in threads of their own, with and without the GIL in the way; 14.2: post in a thread."""

from __future__ import annotations

from dataclasses import replace

from impl.costs import WorkKind
from impl.experiment import Result, Scenario
from impl.schedulers import overlap
from impl.timeline import FORWARD
from perf.broken import three_threads_that_take_turns
from perf.experiments import GIL, STARVED
from perf.formulas import asked_times, stage_times
from reports.claims import Broken, Evidence, claim
from reports.measure import matched


def spinning(scenario: Scenario) -> Scenario:
    """Let pre and post hold the GIL."""
    return replace(scenario, costs=replace(scenario.costs, host_work=WorkKind.SPIN))


def sleeping(scenario: Scenario) -> Scenario:
    """Let pre and post wait without the GIL."""
    return replace(scenario, costs=replace(scenario.costs, host_work=WorkKind.SLEEP))


@claim(STARVED, section="10", broken=Broken("stages that hold the GIL", scenario=spinning))
def test_three_threads_close_the_bubbles_of_the_starved_case(evidence: Evidence) -> None:
    """Every stage runs as soon as its input is there, so the longest one sets the pace: with the forward the
    longest, pre + n·forward + post and no bubble.
    """
    rounds = evidence.of(STARVED)
    s = stage_times(evidence, rounds)
    expected = s.pre + s.n * s.forward + s.post
    evidence.equal("three threads' total", rounds.metric("total_ns", "overlap_three_thread"), expected)
    idle = rounds.metric("gpu_idle_share", "overlap_three_thread")
    evidence.at_most("idle share", idle, evidence.near_zero(0.01))
    gain = rounds.gain("throughput_rps", "overlap_three_thread")
    evidence.at_least("throughput gain", gain, 0.75)
    evidence.at_least(
        "throughput gain over overlap", rounds.gain("throughput_rps", "overlap_three_thread", "overlap"), 0.1
    )
    evidence.show("throughput", gain, "%")


@claim(
    STARVED,
    section="10",
    broken=Broken("pre waits for post", {"overlap_three_thread": three_threads_that_take_turns}),
)
def test_three_threads_lower_mean_ttft_in_the_starved_case(evidence: Evidence) -> None:
    """Request i (from 0) ends at pre + (i + 1)·forward + post."""
    rounds = evidence.of(STARVED)
    s = stage_times(evidence, rounds)
    expected = s.pre + (s.n + 1) / 2 * s.forward + s.post - (s.n - 1) / 2 * s.gap
    evidence.equal("mean TTFT", rounds.metric("ttft_mean_ns", "overlap_three_thread"), expected)
    change = rounds.gain("ttft_mean_ns", "overlap_three_thread")
    evidence.at_most("change of mean TTFT", change, -0.3)
    evidence.show("mean TTFT", change, "%")


@claim(STARVED, GIL, section="10", broken=Broken("stages that let go of the GIL", scenario=sleeping))
def test_the_threads_gain_disappears_when_the_stages_hold_the_gil(evidence: Evidence) -> None:
    """The CPU's work, n·(pre + post), can then not take less than its own sum, however many threads share it; the
    threads keep the CPU busy all the time and reach just that. Bubbles come back. A free-threaded Python has no
    GIL: there the claim is that the gain stays.
    """
    rounds, free = evidence.of(GIL), evidence.of(STARVED)
    s = asked_times(rounds)
    threads = rounds.metric("total_ns", "overlap_three_thread")
    gain = rounds.gain("throughput_rps", "overlap_three_thread", "overlap")
    held, let_go = matched(gain, free.gain("throughput_rps", "overlap_three_thread", "overlap"))
    if evidence.has_gil:
        evidence.at_least("three threads' total over the CPU's work", threads / (s.n * (s.pre + s.post)), 1)
        evidence.at_most("gain of the threads over overlap, beyond half of the one without GIL", held - let_go / 2, 0)
        if evidence.is_exact:
            evidence.equal("three threads' total", threads, s.n * (s.pre + s.post))
            evidence.at_least("idle share", rounds.metric("gpu_idle_share", "overlap_three_thread"), 0.1)
    else:
        evidence.at_least("gain of the threads over overlap", gain, 0.1)
    evidence.show(f"threads over overlap, {'with' if evidence.has_gil else 'without'} GIL", gain, "%")


def delivery_delay_ns(result: Result) -> float:
    """Return the mean time from a forward's end to the delivery of its tokens."""
    ends = {span.batch_id: span.end_ns for span in result.timeline.stage(FORWARD)}
    delays = [delivery.time_ns - ends[delivery.batch_id] for delivery in result.timeline.deliveries]
    return sum(delays) / len(delays)


@claim(
    STARVED,
    section="14.2",
    broken=Broken("plain overlap in its place", {"overlap_post_thread": overlap}),
)
def test_a_post_thread_shortens_the_way_from_forward_end_to_delivery(evidence: Evidence) -> None:
    """With a thread of its own, post starts when the forward ends: the delay is post alone. In the one thread of
    `overlap`, post of all but the first and the last request waits until the next launch is made.
    """
    rounds = evidence.of(STARVED)
    s = stage_times(evidence, rounds)
    delay = rounds.each("overlap_post_thread", delivery_delay_ns)
    evidence.equal("delay with a post thread", delay, s.post)
    change = delay / rounds.each("overlap", delivery_delay_ns) - 1
    evidence.at_most("change against overlap", change, -0.15)
    evidence.show("forward end to delivery", change, "%")
