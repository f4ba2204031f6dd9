"""Section 13: the worker thread of early SGLang."""

from __future__ import annotations

from impl.schedulers import overlap_three_thread, overlap_worker_thread
from perf.experiments import LAUNCH_BOUND, SATURATED, STARVED
from perf.formulas import stage_times
from reports.claims import Broken, Evidence, claim

WORKER, NO_WAIT = "overlap_worker_thread", "overlap_worker_thread_no_wait"


@claim(SATURATED, STARVED, section="13", broken=Broken("three threads in its place", {WORKER: overlap_three_thread}))
def test_a_worker_thread_that_is_waited_for_brings_nothing(evidence: Evidence) -> None:
    """Launching in a worker while the scheduler waits is still one thing after the other: the times are overlap's."""
    for experiment in (SATURATED, STARVED):
        rounds = evidence.of(experiment)
        change = rounds.gain("throughput_rps", WORKER, "overlap")
        evidence.between(f"throughput over overlap's, {experiment.id}", change, *evidence.around(0, 0.05))
        evidence.at_most(f"gain over overlap, {experiment.id}", change, evidence.near_zero(0.02))
    evidence.show("throughput over overlap's", evidence.of(STARVED).gain("throughput_rps", WORKER, "overlap"), "%")


@claim(LAUNCH_BOUND, section="13", broken=Broken("the worker is waited for", {NO_WAIT: overlap_worker_thread}))
def test_a_worker_thread_that_is_not_waited_for_hides_long_launches(evidence: Evidence) -> None:
    """Where the launch takes longest, the scheduler's pre and post run beside it: a batch every launch instead of
    every pre + launch + post. n batches take pre + n·launch + forward + post.
    """
    rounds = evidence.of(LAUNCH_BOUND)
    s = stage_times(evidence, rounds)
    expected = s.pre + s.n * s.launch + s.forward + s.post
    total = rounds.metric("total_ns", NO_WAIT)
    evidence.equal("total without waiting", total, expected, within=0.05)  # 20 hand-overs between threads
    gain = rounds.gain("throughput_rps", NO_WAIT, "overlap")
    evidence.at_least("throughput over overlap's", gain, 0.3)
    evidence.show("throughput over overlap's", gain, "%")
