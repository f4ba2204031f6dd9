"""Shared fixtures, and settings of the property tests: the same examples in every run, unless others are asked for."""

from __future__ import annotations

import json
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.small import ROOT, run

settings.register_profile("suite", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("explore", deadline=None, max_examples=1000)  # pytest tests --hypothesis-profile=explore
collect_ignore = ["small_suite"]  # run in a copy

settings.load_profile("suite")


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with the small perf/ and its baseline; the tests copy it again."""
    suite = tmp_path_factory.mktemp("template") / "suite"
    ignored = shutil.ignore_patterns("__pycache__", "out")
    shutil.copytree(ROOT / "tests" / "small_suite", suite, ignore=ignored)
    for folder in ("impl", "reports"):
        shutil.copytree(ROOT / folder, suite / folder, ignore=ignored)
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, suite)
    for name in ("test_cases.py", "test_baselines.py"):
        shutil.copy(ROOT / "perf" / name, suite / "perf")
    (suite / "baselines").mkdir()
    claims = {"test_overlap_raises_throughput": {"section": "7", "value": 0.3594}}
    article = {"schema": 1, "claims": claims, "cases": {}}
    (suite / "baselines" / "article.json").write_text(json.dumps(article))
    status, output = run(suite, "--update-baselines=first record")
    assert status == 0, output
    assert "virtual.json: 5 cases and 2 claims ran and passed, 5 and " in output
    return suite


@pytest.fixture
def suite(template: Path, tmp_path: Path) -> Path:
    """A copy of the template that a test may change."""
    return Path(shutil.copytree(template, tmp_path / "suite"))


@pytest.fixture
def no_threads_left_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test after which threads of its run are still there."""
    monkeypatch.setattr("impl.runtime.threads.JOIN_S", 0.5)
    before = set(threading.enumerate())
    yield
    deadline_s = time.monotonic() + 5
    while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not left, f"left behind: {left}"


@pytest.fixture(autouse=True, scope="session")
def ctrl_c() -> Iterator[None]:
    """Heed Ctrl-C, here and in child processes: a shell starts background jobs with it ignored."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
