"""How `python -m reports` ends where something outside goes wrong, and what it leaves in its files then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reports.__main__ import main
from reports.commands import gate, table
from reports.regression.suite import CasesFailed

ROOT = Path(__file__).resolve().parent.parent
FULL = Path("/dev/full")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PRINTING = """
import sys
from reports.__main__ import main
from reports.commands import table
table.run = lambda arguments: print("x" * int(sys.argv[1])) or 1
sys.exit(main(["table"]))
"""
needs_full = pytest.mark.skipif(not FULL.exists(), reason="no device here that is always full")


@pytest.fixture
def handlers() -> Iterator[None]:
    """Put back how this process meets signals."""
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def measured(handlers: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the gate measure nothing, and say what it would have measured."""
    found: list[str] = []

    def measure(base: str, head: str, *rest: object) -> None:
        found.append(base)
        raise CasesFailed(base, f"{base}: 2 cases fail")

    monkeypatch.setattr(gate, "resolve", lambda root, option, ref: ref)
    monkeypatch.setattr(gate, "require_clean", lambda root: None)
    monkeypatch.setattr(gate, "measure", measure)
    return found


@needs_full
@pytest.mark.slow
@pytest.mark.parametrize("is_mute", [False, True], ids=["told", "mute"])
@pytest.mark.parametrize("length", [10, 100_000], ids=["noticed late", "noticed at once"])
def test_a_full_disk_is_no_regression(length: int, is_mute: bool) -> None:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with FULL.open("w") as full:
        errors = full if is_mute else subprocess.PIPE
        done = subprocess.run(
            [sys.executable, "-c", PRINTING, str(length)],
            cwd=ROOT,
            env=variables,
            stdout=full,
            stderr=errors,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    if not is_mute:
        assert done.stderr == "ended without a result: [Errno 28] No space left on device\n"


def test_a_temporary_folder_that_is_none_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(arguments: object) -> int:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(table, "run", run)
    assert main(["table"]) == 2
    told = "ended without a result: [Errno 2] No usable temporary directory found in ['/tmp']\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("option", ["--json", "--markdown"])
def test_files_that_cannot_be_written_are_refused_before_anything_is_measured(
    option: str, measured: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gate", "--base", "base", "-o", str(tmp_path / "out"), option, str(tmp_path)]) == 2
    assert measured == []
    assert capsys.readouterr().err == f"{tmp_path}: cannot be written; choose another file\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("side", "code", "name"), [("base", 2, "UNUSABLE"), ("head", 1, "REGRESSION")])
def test_failed_cases_replace_older_results(
    side: str, code: int, name: str, measured: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "out.json", tmp_path / "out.md"]
    for file in files:
        file.write_text("older")
    options = ["-o", str(tmp_path / "out"), "--json", str(files[0]), "--markdown", str(files[1])]
    assert main(["gate", "--base", side, *options]) == code
    told = f"{side}: 2 cases fail"
    assert capsys.readouterr().err == told + "\n"
    assert json.loads(files[0].read_text()) == {
        "schema": 1,
        "result": name,
        "exit_code": code,
        "sentence": told,
        "rows": [],
    }
    assert files[1].read_text() == f"### Overlap scheduling: {name}\n\n`{told}`\n"


@pytest.mark.parametrize("number", SIGNALS)
def test_signals_that_end_a_job_interrupt_it_once(number: signal.Signals, handlers: None) -> None:
    gate.interrupt_on_signals()
    handler = signal.getsignal(number)
    assert callable(handler)
    with pytest.raises(KeyboardInterrupt):
        handler(number, None)
    assert {signal.getsignal(each) for each in SIGNALS} == {signal.SIG_IGN}


def test_what_nohup_ignores_stays_ignored(handlers: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    gate.interrupt_on_signals()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
