"""Lets the CPU device pose as a GPU, with a profiler that only runs, and fails as the variable FAULT says."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import impl.machines
from impl.experiment import Result
from impl.machines import CpuMachine
from reports import cupti, lab, machine, plugin, profiling, recorder, tools
from reports.cupti import Recording
from reports.files import FileError
from reports.trace import write_trace

FAULT = os.environ["FAULT"]
ERRORS: dict[str, type[Exception]] = {
    "disk": OSError,
    "CUPTI": RuntimeError,
    "file": FileError,
    "Ctrl-C": RuntimeError,
}


class FakeGpu(CpuMachine):
    """Real threads, under the GPU's name."""

    name = "cuda"


def write(result: Result, path: Path) -> str | None:
    """Write a trace, and leave something out of one if told to."""
    write_trace(result, path)
    return "left out of first/overlap" if FAULT == "left out" and path.name.startswith("first-overlap-") else None


def record(run: Callable[[], Result], path: Path) -> Recording:
    """Run, and leave a file where the profiler's trace would be."""
    result = run()
    if FAULT in ERRORS and path.name.startswith("first-overlap-"):
        if FAULT == "Ctrl-C":
            os.kill(os.getpid(), signal.SIGINT)
        raise ERRORS[FAULT]("made up")
    path.write_text(json.dumps(result.timeline.started_ns))
    return Recording(result, path, 0)


def replace(name: str, value: object, *modules: Any) -> None:
    """Give a name another meaning in every module that has it."""
    for module in modules:
        if hasattr(module, name):
            setattr(module, name, value)


lab.MACHINES["cuda"] = FakeGpu
replace("record", record, profiling)
replace("write_trace", write, profiling)
replace("why_no_nvml", lambda: "made up", lab)
replace("describe_gpu", lambda: {"gpu": "Made up"}, plugin, machine)
replace("why_no_cuda", lambda: None, impl.machines, lab, plugin, recorder, tools, cupti)
replace("why_no_cupti", lambda: "no CUPTI" if FAULT == "none" else None, plugin, tools)
