"""Facts about the machine that a result belongs to."""

from __future__ import annotations

import platform
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from reports.gpu_state import why_no_nvml

ROOT = Path(__file__).resolve().parent.parent


def has_gil() -> bool:
    """Return whether this interpreter's GIL is in force (free-threaded builds can switch it off)."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)
    return True if is_enabled is None else bool(is_enabled())


def commit() -> str | None:
    """Return the commit of this checkout, with "-dirty" if it was changed; None outside git."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None


@cache
def describe(device: str) -> dict[str, Any]:
    """Return what identifies the machine behind a device; the virtual device is the same everywhere."""
    if device == "virtual":
        return {"device": "virtual"}
    facts: dict[str, Any] = {
        "device": device,
        "python": platform.python_version(),
        "gil": has_gil(),
        "system": f"{platform.system()} {platform.machine()}",
        "commit": commit(),
    }
    if device == "cuda":
        facts.update(describe_gpu())
    return facts


def describe_gpu() -> dict[str, Any]:
    """Return name, driver, torch, CUDA, clocks and power limit of the current GPU; call only where one is."""
    import torch

    facts: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }
    reason = why_no_nvml()
    if reason is not None:
        return facts | {"driver": None, "nvml": reason}
    import pynvml

    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(gpu_uuid())
        return facts | {
            "driver": str(pynvml.nvmlSystemGetDriverVersion()),
            "power_limit_w": pynvml.nvmlDeviceGetPowerManagementLimit(handle) / 1000,
            "sm_clock_max_mhz": pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "sm_clock_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "memory_clock_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
        }
    except pynvml.NVMLError as error:
        return facts | {"driver": None, "nvml": str(error)}


def gpu_uuid() -> str:
    """Return the current GPU's name in NVML; call only where one is."""
    import torch

    return f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
