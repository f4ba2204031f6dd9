"""Profiling when all tests have run, on the small suite with a made-up GPU; the real profiler needs a real one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.small import CASES, ROOT, run

pytestmark = pytest.mark.slow
OWN = sorted(f"{case}-cuda.json" for case in CASES)
BOTH = sorted([*OWN, *(f"{case}-cuda.torch.json" for case in CASES)])


@pytest.mark.parametrize("order", [(), ("--ff",), ("--nf",)], ids=["as collected", "--ff", "--nf"])
def test_tests_marked_profiler_come_last(suite: Path, order: tuple[str, ...]) -> None:
    test = "import pytest\n\n@pytest.mark.profiler\ndef test_early(): assert {}\n\ndef test_late(): pass\n"
    (suite / "perf" / "test_a_first_file.py").write_text(test.format("False"))
    run(suite)
    (suite / "perf" / "test_a_first_file.py").write_text(test.format("True"))
    status, output = run(suite, "-v", *order)
    assert status == pytest.ExitCode.OK, output
    passed = [line.split()[0] for line in output.splitlines() if " PASSED" in line]
    assert passed[-1].endswith("test_early")


def test_sw_does_not_pass_over_profiler_tests_that_have_not_run(suite: Path) -> None:
    test = "import pytest\n\n@pytest.mark.profiler\ndef test_early(): assert False\n"
    (suite / "perf" / "test_a_first_file.py").write_text(test)
    (suite / "perf" / "test_z.py").write_text("def test_z(): assert False\n")
    run(suite, "--sw")
    (suite / "perf" / "test_z.py").write_text("def test_z(): pass\n")
    status, output = run(suite, "--sw")
    assert status == pytest.ExitCode.INTERRUPTED, "as --sw ends at a failure"
    assert "test_early" in output


def test_all_of_the_suites_tests_that_record_with_cupti_are_marked() -> None:
    for path in (ROOT / "perf").glob("test_*.py"):
        text = path.read_text()
        if "cupti import" in text:
            assert text.count("@pytest.mark.profiler\n") == len(re.findall(r"^def test_", text, re.MULTILINE)), (
                path.name
            )


def profiled(suite: Path, monkeypatch: pytest.MonkeyPatch, fault: str, *arguments: str) -> tuple[int, str]:
    """Run the small suite on the made-up GPU with --torch-profiler; return exit status and output.

    Cases alone: claims about real time may fail on a machine that is busy.
    """
    with (suite / "conftest.py").open("a") as conftest:
        conftest.write("\n\ndef pytest_configure(config): import fake_gpu\n")
    monkeypatch.setenv("FAULT", fault)
    options = ("-m", "gpu", "--torch-profiler", "--trace-dir=traces", "--benchmark-json=found.json")
    return run(suite, *options, "-k", "test_case or test_z", *(arguments or ("--no-baseline",)))


def add_last(suite: Path, body: str) -> None:
    """Add a test that runs after the cases."""
    test = f"import os, signal, pytest\n\n@pytest.mark.gpu\ndef test_z(): {body}\n"
    (suite / "perf" / "test_z.py").write_text(test)


def traces(suite: Path) -> list[str]:
    return sorted(path.name for path in (suite / "traces").iterdir())


def test_cases_are_profiled_when_all_tests_have_run(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, output = profiled(suite, monkeypatch, "")
    assert status == pytest.ExitCode.OK, output
    told = [line.strip() for line in output.splitlines() if "torch.profiler: " in line]
    cases = [case.replace("-", "/", 1) for case in CASES]
    assert told == [f"torch.profiler: {case}, {number} of 5" for number, case in enumerate(cases, 1)]
    assert output.rindex("perf/test_cases.py") < output.index(told[0]), "after the last test"
    assert traces(suite) == BOTH
    assert json.loads((suite / "found.json").read_text())["overlap_failed"] == []


@pytest.mark.parametrize(
    ("fault", "told"),
    [("disk", "OSError: made up"), ("CUPTI", "RuntimeError: made up"), ("file", "FileError: made up")],
)
def test_a_case_that_cannot_be_profiled_is_told_and_the_others_are(
    suite: Path, monkeypatch: pytest.MonkeyPatch, fault: str, told: str
) -> None:
    status, output = profiled(suite, monkeypatch, fault, "--update-baselines=first record")
    assert status == pytest.ExitCode.TESTS_FAILED
    assert f"torch.profiler: first/overlap has no profile: {told}" in output
    assert traces(suite) == [name for name in BOTH if name != "first-overlap-cuda.torch.json"]
    assert json.loads((suite / "found.json").read_text())["overlap_failed"] == []
    assert len(json.loads((suite / "baselines" / "made-up.json").read_text())["cases"]) == 5, "the cases were measured"


def test_ctrl_c_while_profiling_loses_nothing_that_was_measured(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, output = profiled(suite, monkeypatch, "Ctrl-C")
    assert status == pytest.ExitCode.TESTS_FAILED
    left = "first/overlap, first/overlap_post_thread, second/normal, second/overlap"
    assert f"torch.profiler: interrupted; without a profile: {left}" in output
    assert "cases against the baseline: 5 not compared" in output
    assert len(json.loads((suite / "found.json").read_text())["benchmarks"]) == 5
    assert traces(suite) == sorted([*OWN, "first-normal-cuda.torch.json"])


def test_a_failing_test_still_lets_cases_be_profiled(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_last(suite, "assert False")
    status, output = profiled(suite, monkeypatch, "")
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "1 failed, 5 passed" in output
    assert traces(suite) == BOTH


@pytest.mark.parametrize(
    ("body", "option", "expected"),
    [
        ("os.kill(os.getpid(), signal.SIGINT)", "--no-baseline", pytest.ExitCode.INTERRUPTED),
        ("assert False", "-x", pytest.ExitCode.TESTS_FAILED),
    ],
    ids=["Ctrl-C", "-x"],
)
def test_a_session_that_ends_early_profiles_nothing_and_keeps_its_own_traces(
    suite: Path, monkeypatch: pytest.MonkeyPatch, body: str, option: str, expected: pytest.ExitCode
) -> None:
    add_last(suite, body)
    status, output = profiled(suite, monkeypatch, "", option, "--no-baseline")
    assert status == expected
    assert "torch.profiler: no case was profiled, as the session ended early; without a profile: first/normal" in output
    assert "Traceback" not in output
    assert traces(suite) == OWN
    assert (suite / "found.json").exists() == (option == "-x")


def test_without_cupti_cases_keep_their_own_traces_and_the_reason_is_told(
    suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, output = profiled(suite, monkeypatch, "none")
    assert status == pytest.ExitCode.OK
    assert "--torch-profiler recorded nothing: no CUPTI" in output
    assert traces(suite) == OWN


def test_what_a_trace_leaves_out_is_told_at_the_end(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, output = profiled(suite, monkeypatch, "left out")
    assert status == pytest.ExitCode.OK
    assert output.count("left out of first/overlap") == 1
