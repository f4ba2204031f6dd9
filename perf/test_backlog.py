"""Section 5.2: saturated or starved, under backlog overlap is at least as fast as normal."""

from __future__ import annotations

from perf.broken import overlap_that_synchronizes
from perf.experiments import BACKLOG_SWEEP
from perf.formulas import overlap_total, stage_times
from reports.claims import Broken, Evidence, claim


@claim(
    *BACKLOG_SWEEP,
    section="5.2",
    broken=Broken("a synchronize behind the launch", {"overlap": overlap_that_synchronizes}),
)
def test_under_backlog_overlap_never_lowers_throughput(evidence: Evidence) -> None:
    """Forwards from a tenth to five times pre. With forward ≥ pre + post, `overlap` takes pre + n·forward + post;
    below, pre + max(pre, forward) + (n − 2)·(pre + post) + max(post, forward) + post. `normal` takes
    n·(pre + forward + post), which is never less.
    """
    gains = []
    for experiment in BACKLOG_SWEEP:
        rounds = evidence.of(experiment)
        s = stage_times(evidence, rounds)
        name = experiment.id.removeprefix("backlog_")
        evidence.equal(f"overlap's total, {name}", rounds.metric("total_ns", "overlap"), overlap_total(s))
        gains.append(rounds.gain("throughput_rps", "overlap"))
        evidence.at_least(f"throughput gain, {name}", gains[-1], 0)
    evidence.show("least throughput gain", min(gain.mean() for gain in gains), "%")
