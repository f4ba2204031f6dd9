"""Section 14.1: the device-to-host copy on a stream of its own."""

from __future__ import annotations

from dataclasses import replace

from impl.device.protocol import DeviceSettings
from impl.experiment import Scenario
from perf.experiments import COPY_ON_ENGINE_STREAM, COPY_STREAM
from perf.formulas import stage_times
from reports.claims import Broken, Evidence, claim
from reports.measure import matched


def on_engine_stream(scenario: Scenario) -> Scenario:
    """Put the copies back onto the engine stream."""
    return replace(scenario, settings=DeviceSettings(has_copy_stream=False))


@claim(
    COPY_STREAM,
    COPY_ON_ENGINE_STREAM,
    section="14.1",
    broken=Broken("copies on the engine stream", scenario=on_engine_stream),
)
def test_a_copy_stream_overlaps_the_copy_with_the_next_forward(evidence: Evidence) -> None:
    """On the engine stream every copy delays the next forward: pre + n·(forward + copy) + post. On a stream of its
    own only the last one shows: pre + n·forward + copy + post.
    """
    own, shared = evidence.of(COPY_STREAM), evidence.of(COPY_ON_ENGINE_STREAM)
    s = stage_times(evidence, own)
    alone, together = own.metric("total_ns", "overlap"), shared.metric("total_ns", "overlap")
    evidence.equal("total with a copy stream", alone, s.pre + s.n * s.forward + s.copy + s.post)
    evidence.equal("total on the engine stream", together, s.pre + s.n * (s.forward + s.copy) + s.post)
    together, alone = matched(together, alone)
    gain = together / alone - 1
    evidence.at_least("throughput gain", gain, 0.2)
    evidence.show("throughput", gain, "%")
