"""Section 8: forwards shorter than the CPU's work, requests in backlog."""

from __future__ import annotations

from impl.experiment import Result
from impl.timeline import LAUNCH, POST, PRE, SYNCHRONIZE
from perf.broken import overlap_that_posts_first, overlap_that_synchronizes
from perf.experiments import STARVED
from perf.formulas import asked_times, overlap_total, stage_times
from reports.claims import Broken, Evidence, claim


@claim(STARVED, section="8", broken=Broken("a synchronize behind the launch", {"overlap": overlap_that_synchronizes}))
def test_starved_overlap_raises_throughput(evidence: Evidence) -> None:
    """`normal` takes n·(pre + forward + post). `overlap` is bound by the CPU: the first two batches fill the
    pipeline in pre + forward, each of the next n − 2 takes pre + post, and the last one ends with
    max(forward, post) + post. Holds for pre ≤ forward ≤ pre + post.
    """
    rounds = evidence.of(STARVED)
    wanted, s = asked_times(rounds), stage_times(evidence, rounds)
    normal = wanted.n * (wanted.pre + wanted.forward + wanted.post)
    evidence.equal("normal's total", rounds.metric("total_ns", "normal"), normal)
    evidence.equal("overlap's total", rounds.metric("total_ns", "overlap"), overlap_total(s))
    gain = rounds.gain("throughput_rps", "overlap")
    evidence.at_least("throughput gain", gain, 0.5)
    evidence.show("throughput", gain, "%")


@claim(STARVED, section="8", broken=Broken("a synchronize behind the launch", {"overlap": overlap_that_synchronizes}))
def test_starved_overlap_lowers_mean_ttft_because_the_queue_moves_faster(evidence: Evidence) -> None:
    """Request i (from 0) ends under `overlap` at pre + forward + post + i·(pre + post), the last one with the run."""
    rounds = evidence.of(STARVED)
    s = stage_times(evidence, rounds)
    step = s.pre + s.post
    ends = [s.pre + s.forward + s.post + i * step for i in range(s.n - 1)]
    ends.append(overlap_total(s))
    expected = sum(ends) / s.n - (s.n - 1) / 2 * s.gap
    evidence.equal("overlap's mean TTFT", rounds.metric("ttft_mean_ns", "overlap"), expected)
    change = rounds.gain("ttft_mean_ns", "overlap")
    evidence.at_most("change of mean TTFT", change, -0.2)
    evidence.show("mean TTFT", change, "%")


@claim(STARVED, section="5.2", broken=Broken("post before the next launch", {"overlap": overlap_that_posts_first}))
def test_starved_bubbles_remain_and_are_smaller_than_normals(evidence: Evidence) -> None:
    """`normal` idles (n − 1)·(pre + post). Under `overlap` n − 2 bubbles of pre + post − forward remain, in a window
    of (n − 2)·(pre + post) + 2·forward.
    """
    rounds = evidence.of(STARVED)
    s = stage_times(evidence, rounds)
    step = s.pre + s.post
    normal = (s.n - 1) * step / ((s.n - 1) * step + s.n * s.forward)
    expected = (s.n - 2) * (step - s.forward) / ((s.n - 2) * step + 2 * s.forward)
    idle = rounds.metric("gpu_idle_share", "overlap")
    evidence.equal("normal's idle share", rounds.metric("gpu_idle_share", "normal"), normal)
    evidence.between("overlap's idle share", idle, *evidence.around(expected, 0.03))
    evidence.at_most("overlap's idle share over normal's", idle / rounds.metric("gpu_idle_share", "normal"), 0.6)
    evidence.show("GPU idle", idle, "share")


def steps_of(result: Result, batch_id: int) -> list[tuple[str, int]]:
    """Return the host stages from a batch's pre to its post: (stage, batch minus this batch); waits left out."""
    spans = sorted((s for s in result.timeline.spans if s.lane == "scheduler"), key=lambda s: s.start_ns)
    stages = [(s.stage, s.batch_id - batch_id) for s in spans if s.stage != SYNCHRONIZE]
    return stages[stages.index((PRE, 0)) : stages.index((POST, 0)) + 1]


@claim(STARVED, section="8", broken=Broken("post before the next launch", {"overlap": overlap_that_posts_first}))
def test_starved_only_three_of_six_steps_are_the_requests_own(evidence: Evidence) -> None:
    """Under `overlap` the host's steps between taking a request and delivering it are, in this order: own pre, own
    launch, post of the previous one, pre and launch of the next, own post. So from the third request on, service TTFT
    is 2·(pre + post), the last one's pre + post + max(forward, post); the first takes pre + forward + post, the second
    pre + forward + 2·post. `normal`'s is own work alone.
    """
    rounds = evidence.of(STARVED)
    s = stage_times(evidence, rounds)
    six = [(PRE, 0), (LAUNCH, 0), (POST, -1), (PRE, 1), (LAUNCH, 1), (POST, 0)]
    inner = range(1, s.n - 1)
    as_described = rounds.each("overlap", lambda r: sum(steps_of(r, b) == six for b in inner) / len(inner))
    evidence.at_least("share of requests with these six steps", as_described, 1)
    own = rounds.metric("service_ttft_mean_ns", "normal")
    evidence.equal("normal's service TTFT", own, s.pre + s.forward + s.post)
    step = s.pre + s.post
    ends = s.pre + s.forward + s.post, s.pre + s.forward + 2 * s.post, step + max(s.forward, s.post)
    inserted = (sum(ends) + (s.n - 3) * 2 * step) / s.n
    evidence.equal("overlap's service TTFT", rounds.metric("service_ttft_mean_ns", "overlap"), inserted)
    rise = rounds.gain("service_ttft_mean_ns", "overlap")
    evidence.at_least("rise of service TTFT", rise, 0.08)
    evidence.show("service TTFT", rise, "%")
