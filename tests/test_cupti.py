"""Reading what torch.profiler wrote, on traces made by hand; the real ones need a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from impl.schedulers import SCHEDULERS
from impl.timeline import FORWARD, LAUNCH
from reports.cupti import Recording, kernel_times, why_no_cupti
from tests.build import MS, attempt, scenario, stages

UNIX_OFFSET_NS = 1_790_000_000_000_000_000
BASE_NS = 1_789_000_000_000_000_000


def made(
    folder: Path, *, kernels_per_forward: int = 3, busy_share: float = 1.0, extra: tuple[dict[str, Any], ...] = ()
) -> Recording:
    """A virtual run, and the trace that CUPTI would have given of it: one kernel that makes the tokens, then kernels at
    equal distances inside each forward, each of which lasts for a share of its distance.
    """
    result = attempt(SCHEDULERS["overlap"], scenario(costs=stages(launch=1)))
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "args": {}}, *extra]

    def microseconds(time_ns: int) -> float:
        return (time_ns + UNIX_OFFSET_NS - BASE_NS) / 1e3

    launches = {span.batch_id: span for span in result.timeline.stage(LAUNCH)}
    for forward in reversed(result.timeline.stage(FORWARD)):
        length_ns = (forward.end_ns - forward.start_ns) / max(1, kernels_per_forward)
        for index in range(-1, kernels_per_forward):
            key = 100 * forward.batch_id + index + 1
            launch_us = microseconds(launches[forward.batch_id].start_ns) + 10 * (index + 1) + 1
            call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "ts": launch_us, "dur": 5}
            begin_us = microseconds(forward.start_ns) + index * length_ns / 1e3
            kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": begin_us, "dur": busy_share * length_ns / 1e3}
            if index < 0:
                kernel |= {"name": "tokens", "ts": launch_us + 2, "dur": 1}
            events += [{**call, "args": {"correlation": key}}, {**kernel, "args": {"correlation": key}}]
    path = folder / "run.torch.json"
    path.write_text(json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": events}))
    return Recording(result, path, UNIX_OFFSET_NS)


def test_kernels_are_counted_to_the_batch_that_was_being_launched(tmp_path: Path) -> None:
    recording = made(tmp_path)
    found = kernel_times(recording)
    assert sorted(found) == [0, 1, 2]
    for forward in recording.result.timeline.stage(FORWARD):
        seen = found[forward.batch_id]
        assert seen.num_kernels == 3
        assert seen.start_ns == pytest.approx(forward.start_ns, abs=1000), "microseconds with three decimals, as floats"
        assert seen.end_ns - seen.start_ns == pytest.approx(5 * MS, abs=1000)


def test_kernels_launched_outside_of_every_launch_belong_to_no_batch(tmp_path: Path) -> None:
    early = {"ph": "X", "cat": "kernel", "name": "warm-up", "ts": 0, "dur": 9, "args": {"correlation": 9999}}
    orphan_call = {"ph": "X", "cat": "cuda_runtime", "name": "x", "ts": 0, "dur": 1, "args": {"correlation": 9998}}
    orphan = {**early, "args": {"correlation": 9998}}
    assert kernel_times(made(tmp_path, extra=(early, orphan_call, orphan))) == kernel_times(made(tmp_path))


def test_the_order_in_which_kernels_are_listed_makes_no_difference(tmp_path: Path) -> None:
    recording = made(tmp_path)
    listed = kernel_times(recording)
    trace = json.loads(recording.path.read_text())
    trace["traceEvents"].reverse()
    recording.path.write_text(json.dumps(trace))
    assert kernel_times(recording) == listed


@pytest.mark.parametrize(("after_end_us", "num_kernels"), [(-1, 4), (1, 3)])
def test_a_kernel_enqueued_after_the_launch_has_ended_belongs_to_no_batch(
    after_end_us: int, num_kernels: int, tmp_path: Path
) -> None:
    """The last launch, which no other one follows."""
    recording = made(tmp_path)
    launch_end_ns = recording.result.timeline.stage(LAUNCH)[-1].end_ns
    call_us = (launch_end_ns + UNIX_OFFSET_NS - BASE_NS) / 1e3 + after_end_us
    trace = json.loads(recording.path.read_text())
    for category in ("cuda_runtime", "kernel"):
        late = {"ph": "X", "cat": category, "name": "x", "ts": call_us, "dur": 1, "args": {"correlation": 9997}}
        trace["traceEvents"].append(late)
    recording.path.write_text(json.dumps(trace))
    found = kernel_times(recording)
    assert [found[batch].num_kernels for batch in range(3)] == [3, 3, num_kernels]


def test_a_gap_between_kernels_is_part_of_the_forward(tmp_path: Path) -> None:
    seen = kernel_times(made(tmp_path, kernels_per_forward=2, busy_share=0.5))[1]
    assert seen.num_kernels == 2
    assert seen.end_ns - seen.start_ns == pytest.approx(5 * MS * 0.75, abs=1000), "kernel, gap, kernel"


def test_a_launch_of_which_only_the_tokens_were_seen_has_no_times(tmp_path: Path) -> None:
    assert kernel_times(made(tmp_path, kernels_per_forward=0)) == {}


def test_without_a_gpu_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reports.cupti.why_no_cuda", lambda: "no GPU here")
    assert why_no_cupti() == "no GPU here"
