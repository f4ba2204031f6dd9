"""One side's processes: what their ends mean, and what of the surroundings reaches them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from impl.errors import RunInvalid
from reports.files import FileError
from reports.regression import suite as suites
from reports.regression.suite import CASES, CasesFailed, Suite
from tests.results import metrics, write_run

NODES = [f"{CASES}::test_case[saturated-normal-virtual]", f"{CASES}::test_case[saturated-overlap-virtual]"]
WRITE = """
import os, shutil, subprocess, sys, time
from pathlib import Path
HERE = Path(__file__).parent
OUTPUT = next((Path(word.partition("=")[2]) for word in sys.argv if word.startswith("--benchmark-json=")), None)
"""


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """A commit whose pytest is whatever `pytest_does` makes of it."""
    root = tmp_path.resolve() / "head"
    root.mkdir()
    return Suite("head", "c" * 40, root, "virtual")


def pytest_does(suite: Suite, text: str) -> None:
    (suite.root / "pytest.py").write_text(WRITE + text)


def leaves(suite: Suite, *cases: str) -> str:
    """Return code that leaves results of some cases."""
    write_run(suite.root / "result.json", {case: [metrics()] for case in cases}, device="virtual")
    return 'shutil.copy(HERE / "result.json", OUTPUT)\n'


def measure(suite: Suite) -> set[str]:
    return {key.case for key in suite.measure(NODES, 1, suite.root.parent / "out.json").cases}


def test_what_a_process_writes_is_read(suite: Suite) -> None:
    pytest_does(suite, leaves(suite, "saturated/normal", "saturated/overlap"))
    assert measure(suite) == {"saturated/normal", "saturated/overlap"}


@pytest.mark.parametrize(
    "text",
    [
        'sys.exit("OSError: [Errno 28] No space left on device")',
        'print("ERROR: something of somebody else"); sys.exit("OSError: [Errno 28] No space left on device")',
        'OUTPUT.write_text("{"); sys.exit("OSError: [Errno 28] No space left on device")',
    ],
)
def test_a_process_that_fails_without_naming_a_case_says_nothing_about_the_commit(text: str, suite: Suite) -> None:
    pytest_does(suite, text)
    with pytest.raises(FileError, match=r"head cccccccccccc: pytest ended with 1: OSError: \[Errno 28\] No space left"):
        measure(suite)


def test_damaged_results_say_nothing_about_the_commit(suite: Suite) -> None:
    pytest_does(suite, 'OUTPUT.write_text("{")')
    with pytest.raises(FileError, match=r"out\.json: not valid JSON"):
        measure(suite)


def test_a_failed_case_is_named_also_if_nothing_could_be_written(suite: Suite) -> None:
    pytest_does(suite, f'print("FAILED {NODES[1]} - AssertionError: tokens"); sys.exit(1)')
    with pytest.raises(CasesFailed, match=r"1 cases fail, the first: FAILED .*overlap.*tokens") as caught:
        measure(suite)
    assert caught.value.side == "head"


def test_only_runs_that_are_all_invalid_are_invalid(suite: Suite) -> None:
    invalid = f'print("FAILED {NODES[0]} - impl.errors.RunInvalid: late arrivals")\n'
    pytest_does(suite, invalid + "sys.exit(1)")
    with pytest.raises(RunInvalid, match="late arrivals"):
        measure(suite)
    pytest_does(suite, invalid + f'print("FAILED {NODES[1]} - AssertionError: tokens"); sys.exit(1)')
    with pytest.raises(CasesFailed, match="2 cases fail"):
        measure(suite)


def test_a_case_without_a_result_does_not_pass(suite: Suite) -> None:
    pytest_does(suite, leaves(suite, "saturated/normal"))
    told = r"head cccccccccccc: 1 cases left no result, the first: .*\[saturated-overlap-virtual\]: skipped"
    with pytest.raises(CasesFailed, match=told):
        measure(suite)
    pytest_does(suite, "")
    with pytest.raises(
        CasesFailed, match=r"2 cases left no result, the first: .*\[saturated-normal-virtual\]: skipped"
    ):
        measure(suite)


def test_results_of_an_earlier_attempt_are_not_read_again(suite: Suite) -> None:
    write_run(suite.root.parent / "out.json", device="virtual")
    pytest_does(suite, "")
    with pytest.raises(CasesFailed, match="2 cases left no result"):
        measure(suite)


def test_a_killed_process_is_invalid_and_not_slow(suite: Suite) -> None:
    pytest_does(suite, "os.kill(os.getpid(), 9)")
    with pytest.raises(FileError, match="its process was killed by SIGKILL: that run is invalid, not slow; run again"):
        measure(suite)


@pytest.mark.slow
def test_a_process_that_hangs_is_ended_with_all_that_it_started(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suites, "TIMEOUT_S", 0.5)
    pytest_does(suite, '(HERE / "child").write_text(str(subprocess.Popen(["sleep", "60"]).pid)); time.sleep(60)')
    told = r"did not end within 0\.5 s; .* find it with: pytest -v perf/test_cases\.py"
    with pytest.raises(FileError, match=told):
        measure(suite)
    assert_ended(suite)


def test_what_a_case_leaves_running_neither_delays_the_gate_nor_survives(suite: Suite) -> None:
    """It holds the output open, as a server started in the background does."""
    results = leaves(suite, "saturated/normal", "saturated/overlap")
    pytest_does(suite, results + '(HERE / "child").write_text(str(subprocess.Popen(["sleep", "60"]).pid))')
    started = time.monotonic()
    measure(suite)
    assert time.monotonic() - started < 30
    assert_ended(suite)


def assert_ended(suite: Suite) -> None:
    pid = int((suite.root / "child").read_text())
    deadline = time.monotonic() + 10
    while is_running(pid):
        assert time.monotonic() < deadline, "still running"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Return whether a process, by now of nobody here, still does something."""
    try:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat")
        return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_the_users_options_and_gits_variables_do_not_reach_a_process(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYTEST_ADDOPTS", "GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.setenv(name, "mine")
    monkeypatch.setenv("OTHER", "kept")
    results = leaves(suite, "saturated/normal", "saturated/overlap")
    pytest_does(
        suite, results + 'import json; (HERE / "seen").write_text(json.dumps([dict(os.environ), sys.argv[1:]]))'
    )
    suite.measure(NODES, 7, suite.root.parent / "out.json")
    variables, arguments = json.loads((suite.root / "seen").read_text())
    assert not [name for name in variables if name.startswith("GIT_") or name == "PYTEST_ADDOPTS"]
    assert variables["OTHER"] == "kept"
    assert {"--rounds=7", *NODES} <= set(arguments)


@pytest.mark.slow
def test_code_from_elsewhere_is_refused(suite: Suite) -> None:
    for name in ("impl", "reports", "perf"):
        (suite.root / name).mkdir()
        (suite.root / name / "__init__.py").touch()
    (suite.root / "perf" / "experiments.py").touch()
    pytest_does(suite, f'def main(arguments): print("{NODES[0]}")')
    assert suite.collect() == NODES[:1]
    (suite.root / "impl" / "__init__.py").write_text('__path__ = ["/somewhere/impl"]')
    told = "head cccccccccccc: imports /somewhere/impl in place of its own code; uninstall that copy"
    with pytest.raises(FileError, match=told):
        suite.collect()
