"""Commits side by side in git worktrees of their own; the user's checkout is never touched."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reports.files import FileError
from reports.regression import processes

NUM_TRIES = 5
PAUSE_S = 0.1


def git(repository: Path, *arguments: str) -> str:
    """Run git in a repository, without the user's hooks, and return what it prints.

    Raises:
        FileError: with git's own last line, if it fails or is not there.
    """
    command = ["git", "-C", str(repository), "-c", f"core.hooksPath={os.devnull}", *arguments]
    try:
        done = processes.run(command, processes.environment())
    except OSError as error:
        raise FileError(f"git cannot be run: {error}; it must be installed, and temporary files possible") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise FileError(f"{repository}: git {arguments[0]} failed: {lines[-1]}")
    return done.stdout.strip()


def resolve(repository: Path, option: str, ref: str) -> str:
    """Return the full hash of a commit.

    Raises:
        FileError: if the ref names none, and with git's own words if there is no repository to look in.
    """
    if ref.startswith("-"):
        raise FileError(f"{option} {ref!r}: no commit; expected a branch, a tag or a hash")
    git(repository, "rev-parse", "--git-dir")
    try:
        return git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    except FileError as error:
        raise FileError(
            f"{option} {ref!r}: no such commit in {repository}; expected a branch, a tag or a hash "
            "(a shallow clone lacks older ones: git fetch --unshallow)"
        ) from error


def require_clean(repository: Path) -> None:
    """Refuse a checkout with changes: only commits are measured, and they would be left out.

    Raises:
        FileError: naming a changed file.
    """
    changed = git(repository, "status", "--porcelain").splitlines()
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise FileError(
            f"{repository}: has changes that are not committed ({changed[0].strip()}{more}), and only commits are "
            "measured; commit them, or put them aside with: git stash --include-untracked"
        )


@contextmanager
def worktree(repository: Path, commit: str, folder: Path) -> Iterator[Path]:
    """Check out a commit into a folder that is removed again, also after an interruption.

    Args:
        repository: the user's; no other worktree of it is touched.
        commit: what to check out.
        folder: an absolute path without symbolic links, as git lists worktrees by those.

    Raises:
        FileError: if git cannot.
    """
    try:
        git(repository, "worktree", "add", "--detach", "--quiet", str(folder), commit)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if f"worktree {folder}" in _patient_git(repository, "worktree", "list", "--porcelain").splitlines():
            # Twice, as git keeps a worktree locked until it is whole.
            _patient_git(repository, "worktree", "remove", "--force", "--force", str(folder))


def _patient_git(repository: Path, *arguments: str) -> str:
    """Run git, again if it fails, as about worktrees it does in the milliseconds in which another gate adds one."""
    for _ in range(NUM_TRIES - 1):
        try:
            return git(repository, *arguments)
        except FileError:
            time.sleep(PAUSE_S)
    return git(repository, *arguments)
