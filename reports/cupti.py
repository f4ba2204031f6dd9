"""Records a run with torch.profiler, which hears of every kernel from CUPTI: a second, independent clock."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from impl.experiment import Result
from impl.lanes import Lane
from impl.machines import why_no_cuda
from impl.timeline import LAUNCH

KERNEL = "kernel"
NUM_TOKEN_KERNELS = 1
"""Kernels at the head of each launch that compute its tokens; `CudaDevice.launch` enqueues them ahead of the forward's.
"""
CALLS = ("cuda_runtime", "cuda_driver")
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

    A kernel belongs to the batch whose launch was under way on the host when it was enqueued. Batches of which no
    kernel but the token kernel was seen are left out.
    """
    trace = json.loads(recording.path.read_text(encoding="utf-8"))
    # Times of events are microseconds after this one, in nanoseconds of Unix time; older versions write them from zero.
    base_ns = int(trace.get("baseTimeNanoseconds", 0)) - recording.unix_offset_ns

    def time_ns(microseconds: float) -> int:
        return base_ns + round(microseconds * 1e3)

    slices = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    enqueued_ns = {
        event["args"]["correlation"]: time_ns(event["ts"])
        for event in slices
        if event.get("cat") in CALLS and "correlation" in event["args"]
    }
    launches = Lane(recording.result.timeline.stage(LAUNCH))
    kernels: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    """When each was enqueued, began and ended, by batch."""
    for event in slices:
        if event.get("cat") != KERNEL:
            continue
        call_ns = enqueued_ns.get(event["args"]["correlation"])
        if call_ns is None:
            continue
        launch = launches.at(call_ns)
        if launch is not None:
            kernels[launch.batch_id].append((call_ns, time_ns(event["ts"]), time_ns(event["ts"] + event["dur"])))
    return {batch_id: _forward_times(found) for batch_id, found in kernels.items() if len(found) > NUM_TOKEN_KERNELS}


def _forward_times(kernels: list[tuple[int, int, int]]) -> KernelTimes:
    forward = sorted(kernels)[NUM_TOKEN_KERNELS:]
    return KernelTimes(min(start for _, start, _ in forward), max(end for _, _, end in forward), len(forward))
