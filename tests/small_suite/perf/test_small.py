"""Two claims that hold."""

from __future__ import annotations

from perf.experiments import FIRST, SECOND
from reports.claims import Broken, Evidence, claim


@claim(FIRST, section="7", broken=Broken("nothing"))
def test_overlap_raises_throughput(evidence: Evidence) -> None:
    gain = evidence.of(FIRST).gain("throughput_rps", "overlap")
    evidence.at_least("throughput gain", gain, 0.1)
    evidence.show("throughput", gain, "%")


@claim(SECOND, section="11", broken=Broken("nothing"))
def test_overlap_runs_more_forwards(evidence: Evidence) -> None:
    forwards = evidence.of(SECOND).metric("num_forwards", "overlap")
    evidence.at_least("forwards", forwards, 3)
    evidence.show("forwards", forwards, "forwards")
