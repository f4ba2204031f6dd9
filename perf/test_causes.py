"""Sections 7 to 10: not only how long a request takes under overlap, but what puts the time in."""

from __future__ import annotations

from dataclasses import replace

from impl.attribution import Cause
from impl.costs import WorkKind, cost_ms
from impl.experiment import Result, Scenario
from impl.gpu_time import GpuCause
from impl.schedulers import overlap, overlap_three_thread
from perf.broken import overlap_that_synchronizes
from perf.causes import INSERTED, foreign_share, gpu_time_ns, share_of_all, time_ns
from perf.experiments import BALANCED, GIL, MIXED, SATURATED, STARVED
from perf.formulas import stage_times
from reports.claims import Broken, Evidence, claim

STEADY = 2
"""A request in the middle of the pipeline: the first two meet an idle GPU or an idle CPU."""
MAX_UNNAMED_SHARE = 0.01
"""Share of a service TTFT that may be due to what a claim does not name: host overhead, where time is real."""
PART_TOLERANCE = 0.1
"""Relative tolerance, where time is real, of a difference of stages: it carries the hand-overs between them all."""


@claim(SATURATED, section="7", broken=Broken("a synchronize behind the launch", {"overlap": overlap_that_synchronizes}))
def test_saturated_what_is_inserted_is_the_previous_forward(evidence: Evidence) -> None:
    """A request prepared while forward N runs waits for its end: forward − pre − post, and for nothing else.
    Of all requests' TTFT at most 1 % is unexplained, in virtual time nothing.
    """
    rounds = evidence.of(SATURATED)
    s = stage_times(evidence, rounds)
    behind = rounds.each("overlap", lambda r: time_ns(r, STEADY, Cause.EARLIER_FORWARDS))
    stray = rounds.each("overlap", lambda r: foreign_share(r, STEADY, Cause.EARLIER_FORWARDS))
    evidence.equal("time behind the previous forward", behind, s.forward - s.pre - s.post)
    evidence.at_most("share due to anything else", stray, MAX_UNNAMED_SHARE)
    for name in ("normal", "overlap"):
        unexplained = rounds.each(name, lambda r: share_of_all(r, Cause.UNEXPLAINED))
        evidence.at_most(f"unexplained share of {name}", unexplained, evidence.near_zero(0.01))
    service = rounds.each("overlap", lambda r: r.metrics.requests[STEADY].service_ttft_ns)
    evidence.show("share of service TTFT behind the previous forward", behind / service, "share")


@claim(STARVED, section="8", broken=Broken("three threads in its place", {"overlap": overlap_three_thread}))
def test_starved_what_is_inserted_is_the_cpu_work_of_other_requests(evidence: Evidence) -> None:
    """Post of the previous request and pre of the next run before its own post. Its own forward hides most of
    them: pre + post − forward is left, and no time behind earlier forwards.
    """
    rounds = evidence.of(STARVED)
    s = stage_times(evidence, rounds)
    inserted = rounds.each("overlap", lambda r: time_ns(r, STEADY, *INSERTED))
    stray = rounds.each("overlap", lambda r: foreign_share(r, STEADY, *INSERTED))
    evidence.equal("inserted CPU time", inserted, s.pre + s.post - s.forward, within=PART_TOLERANCE)
    evidence.at_most("share due to anything else", stray, MAX_UNNAMED_SHARE)
    service = rounds.each("overlap", lambda r: r.metrics.requests[STEADY].service_ttft_ns)
    evidence.show("share of service TTFT for others' CPU work", inserted / service, "share")


def short_forward(scenario: Scenario) -> Scenario:
    """Make forwards shorter than the CPU work around them."""
    return replace(scenario, costs=replace(scenario.costs, forward=cost_ms(165)))


@claim(BALANCED, section="9.1", broken=Broken("forwards of 165 ms", scenario=short_forward))
def test_balanced_inserted_cpu_time_hides_inside_the_own_forward(evidence: Evidence) -> None:
    """With forward = pre + post all of a request's service TTFT is its own, and yet the GPU never idles."""
    stray = evidence.of(BALANCED).each("overlap", lambda r: foreign_share(r, STEADY))
    idle = evidence.of(BALANCED).metric("gpu_idle_share", "overlap")
    # Where time is real, the hand-overs of a step do not quite fit inside a forward of the same length.
    evidence.at_most("share that is not its own", stray, 0.0 if evidence.is_exact else 0.05)
    evidence.at_most("GPU idle share", idle, evidence.near_zero(0.05))
    evidence.show("share of service TTFT that is not its own", stray, "share")


def short_prefill(scenario: Scenario) -> Scenario:
    """Make the prefill as short as the CPU work that is put into it."""
    return replace(scenario, costs=replace(scenario.costs, forward=cost_ms(20, per_token=0.22)))


@claim(MIXED, section="9.2", broken=Broken("a prefill as short as the CPU work", scenario=short_prefill))
def test_a_decode_behind_a_prefill_waits_for_it(evidence: Evidence) -> None:
    """The decode is prepared while the prefill runs, and waits for what is left of it: prefill − pre − post."""
    rounds = evidence.of(MIXED)
    s = stage_times(evidence, rounds)
    prefill = (
        s.forward + rounds.scenario.costs.forward.per_token_ns * rounds.scenario.workload.requests[1].prompt_tokens
    )
    behind = rounds.each("overlap", lambda r: time_ns(r, 2, Cause.EARLIER_FORWARDS))
    evidence.equal("time behind the prefill", behind, prefill - s.pre - s.post)
    evidence.show("decode's time behind the prefill", behind / prefill, "share")


@claim(STARVED, section="10", broken=Broken("overlap in its place", {"overlap_three_thread": overlap}))
def test_threads_take_the_cpu_out_of_the_gpus_way(evidence: Evidence) -> None:
    """Under `overlap` the GPU waits pre + post − forward for the CPU in each step but the first and the last; with a
    thread for each stage it never does.
    """
    rounds = evidence.of(STARVED)
    s = stage_times(evidence, rounds)

    def waits(result: Result) -> int:
        return gpu_time_ns(result, GpuCause.CPU)

    busy = rounds.each("overlap_three_thread", lambda r: gpu_time_ns(r, GpuCause.BUSY))
    threads = rounds.each("overlap_three_thread", waits)
    single = rounds.each("overlap", waits)
    lost = (s.n - 2) * (s.pre + s.post - s.forward)
    evidence.equal("overlap's GPU time lost to the CPU", single, lost, within=PART_TOLERANCE)
    evidence.at_most("three threads' share lost to the CPU", threads / (busy + threads), 0.01)
    evidence.show("GPU time lost to the CPU, over a forward", single / s.forward, "forwards")


def without_gil(scenario: Scenario) -> Scenario:
    """Let the stages sleep."""
    return replace(scenario, costs=replace(scenario.costs, host_work=WorkKind.SLEEP))


@claim(GIL, section="10", broken=Broken("stages that hold nothing", scenario=without_gil))
def test_stages_that_hold_the_gil_wait_for_each_other(evidence: Evidence) -> None:
    """With three threads whose stages hold the GIL, requests wait for it; on a free-threaded Python they do not.

    A real thread that wakes up and waits for the GIL cannot tell so: that part of its waiting counts as a hand-off.
    """
    causes = (Cause.LOCK,) if evidence.is_exact else (Cause.LOCK, Cause.HAND_OFF)
    share = evidence.of(GIL).each("overlap_three_thread", lambda r: share_of_all(r, *causes))
    if evidence.has_gil:
        evidence.at_least("share of TTFT that waits for the GIL", share, 0.05 if evidence.is_exact else 0.02)
    else:
        evidence.at_most("share of TTFT that waits for a core", share, 0.05)
    evidence.show("share of TTFT that waits for the GIL", share, "share")
