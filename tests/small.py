"""Runs the small suite: pytest in a process of its own, on a copy of the repository with a small perf/."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CASES = ["first-normal", "first-overlap", "first-overlap_post_thread", "second-normal", "second-overlap"]


def start(suite: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start `pytest perf` in a copy."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    environment |= {"COLUMNS": "120", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "perf", *arguments]
    return subprocess.Popen(
        command, cwd=suite, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def run(suite: Path, *arguments: str) -> tuple[int, str]:
    """Run `pytest perf` in a copy; return exit status and output."""
    process = start(suite, *arguments)
    output, _ = process.communicate(timeout=120)
    return process.returncode, output
