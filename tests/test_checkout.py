"""Worktrees of a repository that is somebody else's."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from reports.files import FileError
from reports.regression.checkout import git, resolve, worktree


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two files in one commit."""
    found = tmp_path.resolve() / "mine"
    found.mkdir()
    git(found, "init", "-q", "-b", "main")
    for name in ("first", "second"):
        (found / name).write_text(name)
    git(found, "add", "-A")
    commit(found)
    return found


def commit(repository: Path) -> None:
    git(repository, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qam", "some")


def filter_files(repository: Path, smudge: str) -> None:
    """Let git run a command for every file that it checks out."""
    git(repository, "config", "filter.own.smudge", smudge)
    (repository / ".gitattributes").write_text("first filter=own\n")
    git(repository, "add", "-A")
    commit(repository)


def entries(repository: Path) -> list[str]:
    folder = repository / ".git" / "worktrees"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_commit_is_there_and_gone_again(repository: Path) -> None:
    folder = repository.parent / "base"
    with worktree(repository, "HEAD", folder):
        assert (folder / "second").read_text() == "second"
    assert not folder.exists()
    assert entries(repository) == []


def test_other_worktrees_stay_also_if_their_folder_is_not_there(repository: Path) -> None:
    """As on a disk that is not mounted now."""
    git(repository, "worktree", "add", "-q", "-b", "other", str(repository.parent / "away"))
    shutil.rmtree(repository.parent / "away")
    with worktree(repository, "HEAD", repository.parent / "base"):
        pass
    assert entries(repository) == ["away"]


def add_half(repository: Path) -> Path:
    """Leave a worktree in the state in which git, adding it, lets no other git list them."""
    half = repository / ".git" / "worktrees" / "half"
    half.mkdir(parents=True)
    for name in ("commondir", "HEAD"):
        (half / name).touch()
    (half / "gitdir").write_text(f"{repository.parent}/half/.git")
    return half


def test_another_gates_worktree_in_the_making_is_waited_for(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = []

    def whole_after_two(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 2:
            shutil.rmtree(half)

    monkeypatch.setattr("time.sleep", whole_after_two)
    with worktree(repository, "HEAD", repository.parent / "base"):
        half = add_half(repository)
    assert len(pauses) == 2
    assert entries(repository) == []


def test_one_that_begins_just_before_the_removal_is_waited_for_too(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git_and_another_gate(repository: Path, *arguments: str) -> str:
        done = git(repository, *arguments)
        if arguments[:2] == ("worktree", "list"):
            halves.append(add_half(repository))
        return done

    halves: list[Path] = []
    monkeypatch.setattr("reports.regression.checkout.git", git_and_another_gate)
    monkeypatch.setattr("time.sleep", lambda pause_s: shutil.rmtree(halves[0]))
    with worktree(repository, "HEAD", repository.parent / "base"):
        pass
    assert len(halves) == 1
    assert entries(repository) == []


def test_worktrees_that_git_cannot_list_are_an_error_in_the_end(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda pause_s: None)
    with (
        pytest.raises(FileError, match="git worktree failed: fatal: failed to read"),
        worktree(repository, "HEAD", repository.parent / "base"),
    ):
        add_half(repository)


def test_the_users_hooks_do_not_run(repository: Path) -> None:
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    with worktree(repository, "HEAD", repository.parent / "base") as folder:
        assert (folder / "first").exists()


@pytest.mark.slow
def test_an_interruption_while_files_are_checked_out_leaves_nothing(repository: Path) -> None:
    filter_files(repository, f"kill -ALRM {os.getpid()}; sleep 30")
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), worktree(repository, "HEAD", repository.parent / "base"):
            pytest.fail("checked out")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert entries(repository) == []
    assert not (repository.parent / "base").exists()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds git's process in /proc")
def test_a_killed_git_leaves_nothing_although_its_worktree_is_still_locked(repository: Path) -> None:
    grandparent = "$(cut -d' ' -f4 /proc/$PPID/stat)"  # "git worktree" lets "git reset" check the files out
    locked = repository.parent / "locked"
    filter_files(repository, f"cp {repository}/.git/worktrees/base/locked {locked}; kill -9 {grandparent}; sleep 30")
    with (
        pytest.raises(FileError, match="git worktree failed: exit status -9"),
        worktree(repository, "HEAD", repository.parent / "base"),
    ):
        pytest.fail("checked out")
    assert locked.read_text().strip() == "initializing"
    assert entries(repository) == []
    assert not (repository.parent / "base").exists()


def test_variables_of_git_name_no_other_repository(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a hook, where git sets them."""
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.setenv(name, str(repository.parent / "elsewhere"))
    assert git(repository, "status", "--porcelain") == ""


def test_a_ref_that_is_none_is_told_from_a_repository_that_is_none(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(resolve(repository, "--base", "main")) == 40
    with pytest.raises(FileError, match=r"--base 'nowhere': no such commit in .* \(a shallow clone lacks older ones"):
        resolve(repository, "--base", "nowhere")
    with pytest.raises(FileError, match="git rev-parse failed: fatal: not a git repository"):
        resolve(repository.parent, "--base", "main")
    monkeypatch.setenv("PATH", str(repository))
    with pytest.raises(FileError, match=r"git cannot be run: .*No such file.*: 'git'; it must be installed"):
        resolve(repository, "--base", "main")
