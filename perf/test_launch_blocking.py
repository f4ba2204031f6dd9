"""Beyond the article: most TTFT losses blamed on overlap are launches that block the host.

Source: public reports of serving engines, among them sgl-project/sglang issue 10514 and pull request 11856, where
results wait for the launch of the next prefill.
"""

from __future__ import annotations

from dataclasses import replace

from impl.device.protocol import QUEUE_CAPACITY, DeviceSettings, LaunchBlocks
from impl.experiment import Result, Scenario
from impl.timeline import LAUNCH
from perf.experiments import (
    LAUNCH_BLOCKED_BY_OWN,
    LAUNCH_BLOCKED_BY_PREVIOUS,
    LAUNCH_FREE,
    LAUNCH_QUEUE_FULL,
)
from perf.formulas import asked_times, stage_times
from reports.claims import Broken, Evidence, claim


def with_free_launch(scenario: Scenario) -> Scenario:
    """Take the blocking away."""
    return replace(scenario, settings=DeviceSettings())


def with_hidden_synchronization(scenario: Scenario) -> Scenario:
    """Let each launch wait for its own forward."""
    return replace(scenario, settings=DeviceSettings(launch_blocks=LaunchBlocks.OWN_FORWARD))


@claim(LAUNCH_FREE, section="beyond", broken=Broken("a hidden synchronization", scenario=with_hidden_synchronization))
def test_a_free_launch_costs_no_ttft(evidence: Evidence) -> None:
    """Prefills in a row: request i (from 0) ends at pre + (i + 1)·forward + post, before it would under `normal`."""
    rounds = evidence.of(LAUNCH_FREE)
    s = stage_times(evidence, rounds)
    expected = s.pre + (s.n + 1) / 2 * s.forward + s.post
    evidence.equal("mean TTFT", rounds.metric("ttft_mean_ns", "overlap"), expected)
    change = rounds.gain("ttft_mean_ns", "overlap")
    evidence.at_most("change of mean TTFT", change, 0)
    evidence.show("mean TTFT", change, "%")


@claim(
    LAUNCH_BLOCKED_BY_OWN, section="beyond", broken=Broken("a launch that does not block", scenario=with_free_launch)
)
def test_a_hidden_synchronization_costs_one_forward_of_ttft(evidence: Evidence) -> None:
    """Every result but the last is held until the next forward has run as well: request i (from 0) ends at
    (i + 2)·(pre + forward) + (i + 1)·post, the last at n·(pre + forward + post). Throughput is normal's. A worker
    thread that is not waited for takes the loss away.
    """
    rounds = evidence.of(LAUNCH_BLOCKED_BY_OWN)
    s = stage_times(evidence, rounds)
    ends = [(i + 2) * (s.pre + s.forward) + (i + 1) * s.post for i in range(s.n - 1)]
    ends.append(s.n * (s.pre + s.forward + s.post))
    evidence.equal("mean TTFT", rounds.metric("ttft_mean_ns", "overlap"), sum(ends) / s.n)
    evidence.equal("throughput over normal's", rounds.gain("throughput_rps", "overlap") + 1, 1)
    evidence.at_most("launch lead", rounds.metric("launch_lead", "overlap"), 0)
    cure = rounds.gain("ttft_mean_ns", "overlap_worker_thread_no_wait")
    evidence.at_most("change of mean TTFT without waiting for the launch", cure, 0)
    rise = rounds.gain("ttft_mean_ns", "overlap")
    evidence.at_least("rise of mean TTFT", rise, 0.2)
    evidence.show("mean TTFT", rise, "%")


def second_launch_ns(result: Result) -> float:
    """Return how long the launch of the second batch took."""
    span = next(span for span in result.timeline.stage(LAUNCH) if span.batch_id == 1)
    return span.end_ns - span.start_ns


@claim(
    LAUNCH_BLOCKED_BY_PREVIOUS,
    section="beyond",
    broken=Broken("a launch that does not block", scenario=with_free_launch),
)
def test_a_launch_that_waits_for_the_previous_forward_costs_no_ttft_by_itself(evidence: Evidence) -> None:
    """The second launch begins at 2·pre and returns as the first forward ends, after forward − pre, just when its
    result is due: TTFT is that of a free launch.
    """
    rounds = evidence.of(LAUNCH_BLOCKED_BY_PREVIOUS)
    s = stage_times(evidence, rounds)
    expected = s.pre + (s.n + 1) / 2 * s.forward + s.post
    evidence.equal("mean TTFT", rounds.metric("ttft_mean_ns", "overlap"), expected)
    blocked = rounds.each("overlap", second_launch_ns)
    evidence.equal("time of the second launch", blocked, s.forward - s.pre)
    change = rounds.gain("ttft_mean_ns", "overlap")
    evidence.at_most("change of mean TTFT", change, 0)
    evidence.show("mean TTFT", change, "%")


@claim(LAUNCH_QUEUE_FULL, section="beyond", broken=Broken("a launch that does not block", scenario=with_free_launch))
def test_thousands_of_small_kernels_fill_the_queue_and_raise_ttft(evidence: Evidence) -> None:
    """A launch of k kernels returns when all but the queue's capacity c have run, so a result with a successor waits
    for (k − c) / k of the next forward; only the last one does not.
    """
    rounds = evidence.of(LAUNCH_QUEUE_FULL)
    s = asked_times(rounds)
    kernels = rounds.scenario.settings.kernels_per_forward
    held = (s.n - 1) / s.n * s.forward * (kernels - QUEUE_CAPACITY) / kernels
    free = s.pre + (s.n + 1) / 2 * s.forward + s.post
    if evidence.is_exact:
        evidence.between("mean TTFT", rounds.metric("ttft_mean_ns", "overlap"), free + held - 1, free + held)
    evidence.at_most("launch lead", rounds.metric("launch_lead", "overlap"), 0)
    rise = rounds.gain("ttft_mean_ns", "overlap")
    evidence.at_least("rise of mean TTFT", rise, 0.1)
    evidence.show("mean TTFT", rise, "%")
