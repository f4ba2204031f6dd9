"""Section 7: forwards much longer than the CPU's work, requests in backlog."""

from __future__ import annotations

from perf.broken import overlap_that_posts_first, overlap_that_synchronizes
from perf.experiments import SATURATED
from perf.formulas import asked_times, stage_times
from reports.claims import Broken, Evidence, claim


@claim(
    SATURATED,
    section="7",
    broken=Broken("a synchronize behind the launch", {"overlap": overlap_that_synchronizes}),
)
def test_saturated_overlap_raises_throughput(evidence: Evidence) -> None:
    """`normal` takes n·(pre + forward + post), `overlap` pre + n·forward + post: the CPU's time is hidden."""
    rounds = evidence.of(SATURATED)
    wanted, s = asked_times(rounds), stage_times(evidence, rounds)
    normal = wanted.n * (wanted.pre + wanted.forward + wanted.post)
    evidence.equal("normal's total", rounds.metric("total_ns", "normal"), normal)
    evidence.equal("overlap's total", rounds.metric("total_ns", "overlap"), s.pre + s.n * s.forward + s.post)
    gain = rounds.gain("throughput_rps", "overlap")
    evidence.at_least("throughput gain", gain, 0.25)
    evidence.show("throughput", gain, "%")


@claim(
    SATURATED,
    section="7",
    broken=Broken("a synchronize behind the launch", {"overlap": overlap_that_synchronizes}),
)
def test_saturated_overlap_lowers_mean_ttft_because_the_queue_moves_faster(evidence: Evidence) -> None:
    """Request i (from 0) ends under `normal` at (i + 1)·(pre + forward + post), under `overlap` at
    pre + (i + 1)·forward + post; the mean subtracts the mean arrival, (n − 1)/2 · gap.
    """
    rounds = evidence.of(SATURATED)
    s = stage_times(evidence, rounds)
    arrival = (s.n - 1) / 2 * s.gap
    normal = (s.n + 1) / 2 * (s.pre + s.forward + s.post) - arrival
    overlap = s.pre + (s.n + 1) / 2 * s.forward + s.post - arrival
    evidence.equal("normal's mean TTFT", rounds.metric("ttft_mean_ns", "normal"), normal)
    evidence.equal("overlap's mean TTFT", rounds.metric("ttft_mean_ns", "overlap"), overlap)
    reduction = rounds.gain("ttft_mean_ns", "overlap")
    evidence.at_most("change of mean TTFT", reduction, -0.15)
    evidence.show("mean TTFT", reduction, "%")


@claim(
    SATURATED,
    section="7",
    broken=Broken("a synchronize behind the launch", {"overlap": overlap_that_synchronizes}),
)
def test_saturated_service_ttft_contains_the_previous_forward(evidence: Evidence) -> None:
    """From the third request on, service TTFT is two forwards: it is taken right after a post, one forward before
    its own starts. The first takes pre + forward + post, the second 2·forward + post. Queue wait falls by more.
    """
    rounds = evidence.of(SATURATED)
    s = stage_times(evidence, rounds)
    expected = (s.pre + s.forward + s.post + 2 * s.forward + s.post + (s.n - 2) * 2 * s.forward) / s.n
    found = rounds.metric("service_ttft_mean_ns", "overlap")
    evidence.equal("normal's service TTFT", rounds.metric("service_ttft_mean_ns", "normal"), s.pre + s.forward + s.post)
    evidence.equal("overlap's service TTFT", found, expected)
    evidence.at_most("change of queue wait", rounds.gain("queue_wait_mean_ns", "overlap"), -0.3)
    rise = rounds.gain("service_ttft_mean_ns", "overlap")
    evidence.at_least("rise of service TTFT", rise, 0.2)
    evidence.show("service TTFT", rise, "%")


@claim(
    SATURATED,
    section="5.2",
    broken=Broken("post before the next launch", {"overlap": overlap_that_posts_first}),
)
def test_saturated_launches_precede_the_previous_end_and_the_gpu_never_idles(evidence: Evidence) -> None:
    """`overlap`: every launch leads, idle share 0. `normal`: none leads, the GPU idles for pre + post a request,
    which is (n − 1)·(pre + post) of (n − 1)·(pre + post) + n·forward.
    """
    rounds = evidence.of(SATURATED)
    s = stage_times(evidence, rounds)
    gaps = (s.n - 1) * (s.pre + s.post)
    idle = rounds.metric("gpu_idle_share", "overlap")
    evidence.equal("overlap's launch lead", rounds.metric("launch_lead", "overlap"), 1)
    evidence.equal("normal's launch lead", rounds.metric("launch_lead", "normal"), 0)
    evidence.at_most("overlap's idle share", idle, evidence.near_zero(0.005))
    evidence.equal("normal's idle share", rounds.metric("gpu_idle_share", "normal"), gaps / (gaps + s.n * s.forward))
    evidence.show("GPU idle", idle, "share")
