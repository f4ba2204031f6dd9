"""Causes of a run's times, for claims."""

from __future__ import annotations

from impl.attribution import Cause, attribute
from impl.experiment import Result
from impl.gpu_time import GpuCause, split_gpu_time

OWN = (Cause.OWN_PRE, Cause.OWN_LAUNCH, Cause.OWN_FORWARD, Cause.OWN_COPY, Cause.OWN_POST)
INSERTED = (Cause.INSERTED_PRE, Cause.INSERTED_LAUNCH, Cause.INSERTED_POST)


def time_ns(result: Result, request: int, *causes: Cause) -> int:
    """Return the part of a request's TTFT that is due to any of the causes, in nanoseconds."""
    parts = attribute(result.timeline, result.scenario.workload)[request].parts
    return sum(parts.get(cause, 0) for cause in causes)


def foreign_share(result: Result, request: int, *expected: Cause) -> float:
    """Return the share of a request's service TTFT that is neither its own nor due to an expected cause."""
    found = attribute(result.timeline, result.scenario.workload)[request]
    service_ns = found.ttft_ns - found.parts[Cause.QUEUE]
    known_ns = sum(found.parts.get(cause, 0) for cause in (*OWN, *expected))
    return 1 - known_ns / service_ns


def share_of_all(result: Result, *causes: Cause) -> float:
    """Return the share of all requests' TTFT that is due to any of the causes."""
    found = attribute(result.timeline, result.scenario.workload)
    return sum(each.parts.get(c, 0) for each in found for c in causes) / sum(each.ttft_ns for each in found)


def gpu_time_ns(result: Result, cause: GpuCause) -> int:
    """Return the GPU time that is due to a cause, in nanoseconds."""
    return split_gpu_time(result.timeline, result.scenario.workload).get(cause, 0)
