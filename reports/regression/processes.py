"""Runs commands so that nothing of them survives their end."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

GRACE_S = 5
"""For a process that is told to end: git removes what it has half made."""


def environment() -> dict[str, str]:
    """Return this process's environment without git's variables: inside a hook they name another repository."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


def run(
    command: Sequence[str],
    variables: Mapping[str, str],
    *,
    folder: Path | None = None,
    timeout_s: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command, and end whatever it started when it ends, whichever way.

    Args:
        command: program and arguments.
        variables: the whole environment.
        folder: where to run it.
        timeout_s: None waits for as long as it takes.

    Raises:
        OSError: if the program cannot be started.
        subprocess.TimeoutExpired: if it takes longer.
    """
    # Files, as whoever inherits a pipe could keep it open after the process has ended.
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
    ):
        # A group of its own: Ctrl-C reaches only this process, which then ends the group.
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            process.wait(timeout_s)
        except BaseException:  # a timeout, Ctrl-C or a signal: the child must not outlive it
            _signal_group(process, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
            raise
        finally:
            _signal_group(process, signal.SIGKILL)
            process.wait()
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(command, process.returncode, output.read(), errors.read())


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # nothing of it is left
        os.killpg(process.pid, number)
