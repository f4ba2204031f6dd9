"""Records a run with torch.profiler, which hears of every kernel from CUPTI: a second, independent clock."""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from impl.experiment import Result
from impl.machines import why_no_cuda
from impl.timeline import LAUNCH, Timeline

KERNEL, CALLS = "kernel", ("cuda_runtime", "cuda_driver")
"""Categories in a trace of torch.profiler. Source: PyTorch, Kineto's chrome trace output."""


class KernelTimes(NamedTuple):
    """The kernels of one forward; nanoseconds on the run's clock, as far as two clocks can be laid over each other."""

    start_ns: int
    end_ns: int
    num_kernels: int


@dataclass(frozen=True, slots=True)
class Recording:
    """A run and what CUPTI saw of it."""

    result: Result
    path: Path
    """A Chrome trace, for ui.perfetto.dev."""
    unix_offset_ns: int
    """Unix time minus the run's clock."""


def why_no_cupti() -> str | None:
    """Return the reason why torch.profiler cannot record a GPU here; None if it can."""
    reason = why_no_cuda()
    if reason is not None:
        return reason
    from torch.profiler import ProfilerActivity, supported_activities

    if ProfilerActivity.CUDA not in supported_activities():
        return "this build of PyTorch has no CUPTI; install a CUDA build of torch"
    return None


def record(run: Callable[[], Result], path: Path) -> Recording:
    """Run once under torch.profiler and write its trace to a file."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:  # without it, torch warns
        result = run()
        unix_offset_ns = time.time_ns() - time.perf_counter_ns()
    path.parent.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(path))
    return Recording(result, path, unix_offset_ns)


def kernel_times(recording: Recording) -> Mapping[int, KernelTimes]:
    """Return for each batch when its forward's kernels ran, by CUPTI.

    A kernel belongs to the batch whose launch was under way on the host when it was enqueued.
    """
    trace = json.loads(recording.path.read_text(encoding="utf-8"))
    base_ns = int(trace.get("baseTimeNanoseconds", 0)) - recording.unix_offset_ns

    def time_ns(microseconds: float) -> int:
        return base_ns + round(microseconds * 1e3)

    slices = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    enqueued_ns = {
        event["args"]["correlation"]: time_ns(event["ts"])
        for event in slices
        if event.get("cat") in CALLS and "correlation" in event["args"]
    }
    launches = _Launches(recording.result.timeline)
    found: dict[int, KernelTimes] = {}
    for event in slices:
        if event.get("cat") != KERNEL:
            continue
        batch_id = launches.at(enqueued_ns.get(event["args"]["correlation"], -1))
        if batch_id is None:
            continue
        start_ns, end_ns = time_ns(event["ts"]), time_ns(event["ts"] + event["dur"])
        known = found.get(batch_id, KernelTimes(start_ns, end_ns, 0))
        found[batch_id] = KernelTimes(min(known.start_ns, start_ns), max(known.end_ns, end_ns), known.num_kernels + 1)
    return found


class _Launches:
    """The launches of a run, for looking up which one was under way."""

    def __init__(self, timeline: Timeline) -> None:
        self._spans = timeline.stage(LAUNCH)
        self._starts = [span.start_ns for span in self._spans]

    def at(self, time_ns: int) -> int | None:
        """Return the batch that was being launched at a time."""
        index = bisect_right(self._starts, time_ns) - 1
        if index < 0 or self._spans[index].end_ns <= time_ns:
            return None
        return self._spans[index].batch_id
