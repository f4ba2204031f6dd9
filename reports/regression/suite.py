"""Runs a commit's suite in processes of their own."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from impl.errors import RunInvalid
from reports.cases import split_case_id
from reports.files import FileError
from reports.lab import MARKS
from reports.regression import processes
from reports.regression.results import ResultFile, read_result

CASES = "perf/test_cases.py"
TIMEOUT_S = 300
"""Twenty times what a process takes on a GPU: one that hangs is named before the time of a CI job is over."""
COLLECT = """
import sys, pytest
import impl, reports, perf.experiments
print(*impl.__path__, *reports.__path__, perf.experiments.__file__, sep="\\n", end="\\n\\n")
sys.exit(pytest.main(sys.argv[1:]))
"""
"""One process that says where it imports the suite from, and then lists the cases."""


class CasesFailed(Exception):
    """A case of a commit fails: wrong tokens, a lost request, a stall, no result. The message says which."""

    def __init__(self, side: str, message: str) -> None:
        super().__init__(message)
        self.side = side


@dataclass(frozen=True, slots=True)
class Suite:
    """One side's commit, checked out."""

    side: str
    """ "base" or "head"."""
    commit: str
    root: Path
    device: str

    def __str__(self) -> str:
        return f"{self.side} {self.commit[:12]}"

    @property
    def _selection(self) -> tuple[str, ...]:
        """Pytest's options that choose the device."""
        return ("-m", MARKS[self.device]) if self.device in MARKS else ()

    def collect(self) -> list[str]:
        """Return the node ids of the cases on the device.

        Raises:
            FileError: if the suite does not import, cannot run here, or does not know what the gate asks for.
        """
        done = self._python("-c", COLLECT, CASES, "--collect-only", "-q", "--no-baseline", *self._selection)
        sources, _, listed = done.stdout.partition("\n\n")
        if not sources:
            raise FileError(f"{self}: its suite does not import: {_last_line(done)}; choose a commit that does")
        foreign = [path for path in sources.splitlines() if not Path(path).is_relative_to(self.root)]
        if foreign:
            raise FileError(f"{self}: imports {foreign[0]} in place of its own code; uninstall that copy")
        if done.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            raise FileError(f"{self}: its cases cannot be collected: {_last_line(done)}")
        nodes = [line for line in listed.splitlines() if line.startswith(f"{CASES}::test_case[")]
        if not nodes:
            raise FileError(f"{self}: has no case on {self.device}; choose another --base or --device")
        return nodes

    def measure(self, nodes: Sequence[str], rounds: int, output: Path) -> ResultFile:
        """Run cases once, in a process of their own, and return what it wrote.

        Raises:
            CasesFailed: if a case fails or leaves no result.
            RunInvalid: if the machine was too busy to measure.
            FileError: if the process was killed, or could not run.
        """
        arguments = ["--no-baseline", f"--rounds={rounds}", f"--benchmark-json={output}", *self._selection]
        output.unlink(missing_ok=True)  # of an attempt before this one
        done = self._python("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments, *nodes)
        if done.returncode < 0:
            name = signal.Signals(-done.returncode).name
            raise FileError(f"{self}: its process was killed by {name}: that run is invalid, not slow; run again")
        if done.returncode == pytest.ExitCode.TESTS_FAILED:
            # Python too ends with this status, as after an error while the results are written: then no case is named.
            named = (f"FAILED {CASES}::", f"ERROR {CASES}::")
            failed = [line for line in done.stdout.splitlines() if line.startswith(named)]
            if failed and all(RunInvalid.__name__ in line for line in failed):
                raise RunInvalid(f"{self}: {failed[0]}")
            if failed:
                raise CasesFailed(self.side, f"{self}: {len(failed)} cases fail, the first: {failed[0]}")
        if done.returncode != pytest.ExitCode.OK:
            raise FileError(f"{self}: pytest ended with {done.returncode}: {_last_line(done)}")
        found = read_result(output) if output.exists() else None  # none is written if every case is skipped
        missing = [node for node in nodes if found is None or node not in _nodes(found)]
        if found is None or missing:
            told = f"{len(missing)} cases left no result, the first: {missing[0]}: skipped"
            raise CasesFailed(self.side, f"{self}: {told}")
        return found

    def _python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        variables = {name: value for name, value in processes.environment().items() if name != "PYTEST_ADDOPTS"}
        variables["COLUMNS"] = "500"  # so that pytest's summary names the error behind each failure
        variables["PYTHONPATH"] = os.pathsep.join([str(self.root), *filter(None, [variables.get("PYTHONPATH")])])
        try:
            return processes.run([sys.executable, *arguments], variables, folder=self.root, timeout_s=TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            command = shlex.join(["pytest", "-v", CASES, *self._selection])
            raise FileError(
                f"{self}: its process did not end within {TIMEOUT_S} s; if the machine has no other work, a case "
                f"hangs: check that commit out and find it with: {command}"
            ) from error


def _nodes(found: ResultFile) -> set[str]:
    """Return the node ids of the cases that left a result."""
    return {f"{CASES}::test_case[{'-'.join(split_case_id(key.case))}-{key.device}]" for key in found.cases}


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return the line that most likely says what went wrong."""
    lines = [line.strip() for line in (done.stdout + "\n" + done.stderr).splitlines() if line.strip()]
    told = [line for line in lines if "Error" in line or " error: " in line or line.startswith("ERROR: no usable")]
    return (told or lines or ["no output"])[-1][:300]
