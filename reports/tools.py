"""Which tools beside the suite are missing, as sentences for the end of a session."""

from __future__ import annotations

from collections.abc import Collection

from impl.ranges import why_no_nvtx
from reports.cupti import why_no_cupti
from reports.gpu_state import why_no_nvml


def missing_tools(devices: Collection[str], *, wants_cupti: bool) -> list[str]:
    """Return what could not be recorded on the devices that were used, and why.

    Args:
        devices: that ran cases.
        wants_cupti: whether --torch-profiler was given.
    """
    found = []
    if devices and wants_cupti and "cuda" not in devices:
        found.append("--torch-profiler recorded nothing: no case ran on a GPU (-m gpu)")
    if set(devices) - {"virtual"} and (reason := why_no_nvtx()) is not None:
        found.append(f"no NVTX ranges: {reason}")
    if "cuda" in devices:
        if (reason := why_no_nvml()) is not None:
            found.append(f"no SM clock, power and throttling: {reason}")
        if wants_cupti and (reason := why_no_cupti()) is not None:
            found.append(f"--torch-profiler recorded nothing: {reason}")
    return found
