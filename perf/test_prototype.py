"""Section 4: the article's first demonstration, ten requests back to back."""

from __future__ import annotations

from perf.broken import overlap_that_synchronizes
from perf.experiments import PROTOTYPE
from perf.formulas import asked_times
from reports.claims import Broken, Evidence, claim


@claim(PROTOTYPE, section="4", broken=Broken("a synchronize behind the launch", {"overlap": overlap_that_synchronizes}))
def test_prototype_overlap_raises_throughput(evidence: Evidence) -> None:
    """`normal` takes n·(pre + forward + post), `overlap` pre + n·forward + post.

    On CUDA the forward is the article's own, 1,000 products of 1000 × 1000. It takes what it takes there, so only the
    gain is asserted.
    """
    rounds = evidence.of(PROTOTYPE)
    s = asked_times(rounds)
    normal, overlap = rounds.metric("total_ns", "normal"), rounds.metric("total_ns", "overlap")
    if evidence.is_exact:
        evidence.equal("normal's total", normal, s.n * (s.pre + s.forward + s.post))
        evidence.equal("overlap's total", overlap, s.pre + s.n * s.forward + s.post)
    gain = rounds.gain("throughput_rps", "overlap")
    evidence.at_least("throughput gain", gain, 0.35)
    evidence.show("throughput", gain, "%")
