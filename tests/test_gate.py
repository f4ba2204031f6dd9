"""The whole gate on the virtual device: commits of a small suite in a repository of their own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from impl.machines import why_no_cuda
from reports.files import FileError
from reports.regression.gate import match_cases
from reports.regression.rules import Plan

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.slow


def git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def started(repository: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start the gate; it does not outlive the block, however that ends."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(repository), "TMPDIR": str(repository.parent / "tmp")}
    with subprocess.Popen(
        [sys.executable, "-m", "reports", "gate", "--device", "virtual", *arguments],
        cwd=repository,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def gate(repository: Path, *arguments: str) -> tuple[int, str, str]:
    """Run the gate; return exit code, output and errors. Nothing may be left behind."""
    with started(repository, *arguments) as process:
        output, errors = process.communicate(timeout=120)
    assert "Traceback" not in errors, errors
    assert_nothing_is_left(repository)
    return process.returncode, output, errors


def assert_nothing_is_left(repository: Path) -> None:
    assert git(repository, "worktree", "list").count("\n") == 0
    assert list((repository.parent / "tmp").iterdir()) == []
    assert git(repository, "status", "--porcelain") == ""


def edit(repository: Path, file: str, old: str, new: str) -> None:
    path = repository / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    git(repository, "commit", "-qam", f"{old} -> {new}")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the project and a small perf/, in one commit."""
    folder = tmp_path_factory.mktemp("template")
    repository = folder / "suite"
    repository.mkdir()
    for name in ("impl", "reports", "baselines"):
        shutil.copytree(ROOT / name, repository / name, ignore=shutil.ignore_patterns("__pycache__", "out"))
    shutil.copytree(ROOT / "tests" / "small_suite" / "perf", repository / "perf")
    for name in ("test_cases.py", "gate.toml"):
        shutil.copy(ROOT / "perf" / name, repository / "perf" / name)
    for name in ("conftest.py", "pyproject.toml", ".gitignore"):
        shutil.copy(ROOT / name, repository / name)
    git(repository, "init", "-q", "-b", "main")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "base")
    return repository


@pytest.fixture
def repository(template: Path, tmp_path: Path) -> Path:
    (tmp_path / "tmp").mkdir()
    found = tmp_path / "suite"
    shutil.copytree(template, found)
    return found


def test_an_equal_pair_passes(repository: Path) -> None:
    (repository / "README").write_text("another commit, the same code")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "words")
    code, output, errors = gate(repository, "--base", "HEAD~1")
    assert code == 0, output + errors
    assert "5 cases compared" in output
    assert "OK" in output.splitlines()[-2]
    assert "REGRESSION" not in output
    assert "pair 1 took" in errors


def test_a_regression_of_a_tenth_of_a_percent_is_found_and_its_reverse_is_an_improvement(repository: Path) -> None:
    """In code, not in settings: each side has to run its own."""
    edit(repository, "impl/costs.py", 'nanoseconds("fixed", fixed)', 'nanoseconds("fixed", fixed * 1.001)')
    code, output, _ = gate(repository, "--base", "HEAD~1", "-o", "../results")
    assert code == 1
    assert "+0.10 %" in output
    assert "REGRESSION" in output.splitlines()[-2]
    names = sorted(path.name for path in (repository.parent / "results").iterdir())
    assert names == ["pair-01-base.json", "pair-01-head.json"]
    commits = [json.loads((repository.parent / "results" / n).read_text())["commit_info"]["id"] for n in names]
    assert commits == [git(repository, "rev-parse", "HEAD~1"), git(repository, "rev-parse", "HEAD")]
    code, output, _ = gate(repository, "--base", "HEAD", "--head", "HEAD~1")
    assert code == 0
    assert "IMPROVEMENT" in output.splitlines()[-2]


def test_a_head_whose_case_fails_is_a_regression_and_such_a_base_is_unusable(repository: Path) -> None:
    edit(repository, "impl/schedulers/overlap.py", "engine.post(last)", "pass")
    code, _, errors = gate(repository, "--base", "HEAD~1", "--markdown", "../out.md")
    assert code == 1
    assert "cases fail, the first: FAILED perf/test_cases.py::test_case[first-overlap-virtual]" in errors
    assert (repository.parent / "out.md").read_text().startswith("### Overlap scheduling: REGRESSION")
    code, _, errors = gate(repository, "--base", "HEAD", "--head", "HEAD~1")
    assert code == 2
    assert errors.splitlines()[-1].startswith("base ")


def test_a_case_that_head_skips_does_not_pass(repository: Path) -> None:
    edit(
        repository,
        "perf/test_cases.py",
        "    rounds = lab.rounds",
        '    if case.scheduler == "overlap":\n        pytest.skip("not now")\n    rounds = lab.rounds',
    )
    code, output, errors = gate(repository, "--base", "HEAD~1", "--json", "../out.json")
    assert (code, output) == (1, "")
    told = "2 cases left no result, the first: perf/test_cases.py::test_case[first-overlap-virtual]: skipped"
    assert errors.splitlines()[-1].endswith(told)
    assert json.loads((repository.parent / "out.json").read_text())["result"] == "REGRESSION"


def test_renamed_cases_fail_unless_allowed(repository: Path) -> None:
    edit(repository, "perf/experiments.py", 'Scenario("second"', 'Scenario("other"')
    code, output, _ = gate(repository, "--base", "HEAD~1")
    assert code == 1
    assert "only in base (renamed or removed?):\n  second-normal" in output
    assert "only in head (renamed or new?):\n  other-normal" in output


def test_bad_refs_and_changed_files_are_refused_before_anything_runs(repository: Path) -> None:
    for ref in ("nowhere", "--all", "HEAD~99", ""):
        code, output, errors = gate(repository, f"--base={ref}")
        assert (code, output) == (2, "")
        assert errors.startswith(f"--base {ref!r}: no ")
        assert errors.count("\n") == 1
    (repository / "new.py").write_text("")
    with started(repository, "--base", "HEAD") as process:
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (2, "")
    assert "has changes that are not committed (?? new.py), and only commits are measured; commit them" in errors
    assert (repository / "new.py").exists()


def test_a_base_that_does_not_import_is_named_with_its_error(repository: Path) -> None:
    edit(
        repository,
        "perf/experiments.py",
        "from impl.workload import",
        "import no_such_module\nfrom impl.workload import",
    )
    edit(repository, "perf/experiments.py", "import no_such_module\n", "")
    code, output, errors = gate(repository, "--base", "HEAD~1")
    assert (code, output) == (2, "")
    assert errors.splitlines()[-1].endswith(
        "its suite does not import: ModuleNotFoundError: No module named 'no_such_module'; choose a commit that does"
    )


def test_a_base_older_than_the_gate_is_named(repository: Path) -> None:
    edit(repository, "reports/options.py", '"--no-baseline"', '"--no-such-option"')
    edit(repository, "reports/options.py", '"--no-such-option"', '"--no-baseline"')
    code, _, errors = gate(repository, "--base", "HEAD~1")
    assert code == 2
    assert "unrecognized arguments: --no-baseline" in errors


def test_results_are_never_overwritten(repository: Path) -> None:
    full = repository.parent / "full"
    full.mkdir()
    (full / "mine").write_text("kept")
    code, _, errors = gate(repository, "--base", "HEAD", "-o", str(full))
    assert code == 2
    assert "is not empty, and results are never overwritten" in errors
    assert [path.name for path in full.iterdir()] == ["mine"]
    code, _, errors = gate(repository, "--base", "HEAD", "-o", str(full / "mine"))
    assert code == 2
    assert "cannot be used for output" in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_leaves_nothing_behind(number: signal.Signals, repository: Path) -> None:
    edit(
        repository,
        "perf/experiments.py",
        "from impl.workload import",
        "import time; time.sleep(30)\nfrom impl.workload import",
    )
    worktrees = repository / ".git" / "worktrees"  # not from git, which fails while another one adds to them
    with started(repository, "--base", "HEAD") as process:
        deadline_s = time.monotonic() + 30
        while len(list(worktrees.glob("*/HEAD"))) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert errors.splitlines()[-1] == "interrupted: nothing was decided"
    assert_nothing_is_left(repository)


def test_plans_that_fit_neither_commit_are_refused() -> None:
    nodes = ["perf/test_cases.py::test_case[first-normal-virtual]"]
    with pytest.raises(FileError, match="the gate's plan has the experiment 'none', which neither commit has"):
        match_cases(nodes, nodes, Plan(("none",), 1, (1,)))
    other = ["perf/test_cases.py::test_case[other-normal-virtual]"]
    with pytest.raises(FileError, match="no case of first, other is in both commits: nothing to compare"):
        match_cases(nodes, other, Plan((), 1, (1,)))


@pytest.mark.skipif(why_no_cuda() is None, reason="there is a GPU here")
def test_without_a_gpu_the_gate_says_which_device_needs_none(repository: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "reports", "gate", "--base", "HEAD", "-o", str(repository.parent / "out")],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.strip().endswith("(--device virtual needs none)")
