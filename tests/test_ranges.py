"""NVTX ranges, seen by a tool that listens."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from impl.ranges import nvtx_ranges, range_name, why_no_nvtx
from impl.timeline import LAUNCH, POST, PRE, SYNCHRONIZE
from tests.build import batch

HERE = Path(__file__).parent
COMPILER = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
RUN = """
from impl.batching import Dynamic
from impl.machines import CpuMachine
from impl.schedulers import SCHEDULERS
from impl.workload import burst
from tests.build import attempt, scenario

for name in ("overlap", "overlap_three_thread"):
    attempt(SCHEDULERS[name], scenario(burst(6), Dynamic(2)), CpuMachine())
"""


def test_a_name_says_stage_batch_and_requests_and_stays_short() -> None:
    assert range_name(LAUNCH, batch(3)) == "launch batch 3 request 0"
    assert range_name(POST, batch(12, size=4)) == "post batch 12 request 0 1 2 3"
    assert range_name(POST, batch(12, size=5)) == "post batch 12 request 0 1 2 3 and 1 more"
    assert range_name(PRE, batch(7, size=1000)) == "pre batch 7 request 0 1 2 3 and 996 more"


def test_without_a_tool_or_without_nvtx_there_are_no_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_no_nvtx() is None
    assert nvtx_ranges() is None
    monkeypatch.setitem(sys.modules, "nvtx", None)
    assert "pip install nvtx" in (why_no_nvtx() or "")
    assert nvtx_ranges() is None


@pytest.mark.skipif(COMPILER is None, reason="no C compiler for a tool that listens")
def test_a_tool_sees_each_stage_once_in_our_domain_with_category_and_payload(tmp_path: Path) -> None:
    tool, log = tmp_path / "tool.so", tmp_path / "log"
    subprocess.run(
        [str(COMPILER), "-shared", "-fPIC", "-o", tool, HERE / "nvtx_tool.c"], check=True, capture_output=True
    )
    environment = {"NVTX_INJECTION64_PATH": str(tool), "NVTX_LOG": str(log), "PYTHONPATH": str(HERE.parent)}
    subprocess.run([sys.executable, "-c", RUN], check=True, env=environment, timeout=60)
    lines = [line.split("\t") for line in log.read_text().splitlines()]
    pushes = [line for line in lines if line[0] == "push"]
    assert len(pushes) == lines.count(["pop", "overlap"]) > 0
    stages: Counter[str] = Counter()
    for _, domain, name, category, payload in pushes:
        assert domain == "overlap"
        first = 2 * int(payload)
        assert name == f"{category} batch {payload} request {first} {first + 1}"
        stages[category] += 1
    assert stages == {PRE: 6, LAUNCH: 6, SYNCHRONIZE: 6, POST: 6}, "three batches of two requests, under two schedulers"
