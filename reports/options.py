"""The suite's options of pytest: what they are, and which of them do not go together."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

import pytest

from reports.arguments import positive
from reports.files import FileError, require_writable, require_writable_file


def add_options(parser: pytest.Parser) -> None:
    """Declare the suite's options."""
    group = parser.getgroup("overlap scheduling")
    group.addoption(
        "--scheduler",
        action="append",
        default=[],
        metavar="PACKAGE.MODULE:NAME",
        help="let your own scheduler join every case (repeatable)",
    )
    group.addoption(
        "--update-baselines",
        metavar="REASON",
        help="rewrite the baselines of what ran, if all of it passed, and record the reason in them",
    )
    group.addoption("--require-baseline", action="store_true", help="stop if there is no baseline for this GPU")
    group.addoption(
        "--no-baseline", action="store_true", help="compare nothing with baselines, as when two commits are compared"
    )
    group.addoption(
        "--rounds",
        type=positive,
        metavar="N",
        help="paired rounds of every experiment where time is real (default: the experiment's own number); a claim "
        "takes two at least",
    )
    group.addoption(
        "--trace-dir",
        type=Path,
        metavar="DIR",
        help="write the last round of every case as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing",
    )
    group.addoption(
        "--torch-profiler",
        action="store_true",
        help="run every case on a GPU once more under torch.profiler: its CUPTI trace and ours of the same run, in "
        "--trace-dir",
    )
    group.addoption(
        "--gpu-optional", action="store_true", help="skip GPU tests, with the reason, where no GPU can be used"
    )


def require_consistent(config: pytest.Config) -> None:
    """Stop before any test where what is asked for cannot be done, or would be silently left out.

    Raises:
        UsageError: naming the option and the remedy.
    """
    _require_something_to_compare(config)
    _require_trace_folder(config.option)
    _require_results_file(config.option)
    _require_one_process_for_real_devices(config)


def _require_trace_folder(option: argparse.Namespace) -> None:
    if option.trace_dir is None:
        if option.torch_profiler:
            raise pytest.UsageError("--torch-profiler writes traces: say where, with --trace-dir DIR")
        return
    here = Path.cwd()
    if option.trace_dir.resolve() in (here, *here.parents):  # "" and "." too
        raise pytest.UsageError(f"--trace-dir {str(option.trace_dir)!r}: give traces a folder of their own")
    try:
        require_writable(option.trace_dir)  # before the run, not after it
    except FileError as error:
        raise pytest.UsageError(f"--trace-dir: {error}") from error


def _require_results_file(option: argparse.Namespace) -> None:
    if option.benchmark_json is None:
        return
    try:
        require_writable_file(option.benchmark_json)  # pytest-benchmark opens it after the last test
    except FileError as error:
        raise pytest.UsageError(f"--benchmark-json: {error}") from error


def _require_one_process_for_real_devices(config: pytest.Config) -> None:
    """Stop before xdist starts its workers: an error of theirs is an internal one, with a traceback."""
    asks_for_real_device = re.search(r"(?<!\bnot )\b(cpu|gpu)\b", config.option.markexpr)
    if asks_for_real_device and config.getoption("dist", "no") != "no":
        raise pytest.UsageError("real devices cannot be measured by several xdist workers at once; leave out -n")


def _require_something_to_compare(config: pytest.Config) -> None:
    """Stop before any test where what is asked for would be silently left out."""
    option = config.option
    if option.update_baselines is not None and not is_reason(option.update_baselines):
        raise pytest.UsageError(
            f"--update-baselines {option.update_baselines!r}: that is no reason; "
            "say in two words or more why the baselines change, before any path"
        )
    for name, is_asked in {
        "--update-baselines": option.update_baselines is not None,
        "--require-baseline": option.require_baseline,
    }.items():
        if is_asked and option.no_baseline:
            raise pytest.UsageError(f"{name} and --no-baseline exclude each other")
    wants_results = option.benchmark_json or option.benchmark_compare_fail
    is_off = option.benchmark_disable or getattr(option, "numprocesses", None)
    if wants_results and is_off and not option.benchmark_enable:
        raise pytest.UsageError(
            "--benchmark-json and --benchmark-compare-fail need benchmarks, and --benchmark-disable or -n of xdist "
            "switches them off: nothing would be written or compared; leave one out"
        )
    if option.benchmark_compare_fail and not _has_stored_run(option):
        raise pytest.UsageError(
            f"--benchmark-compare-fail: {option.benchmark_storage} holds no run to compare with; "
            "store one first with --benchmark-autosave"
        )


def is_reason(text: str) -> bool:
    """Return whether a text says why, and is not what was to follow it: a path, a node id, another option."""
    text = text.strip()
    is_other = "::" in text or text.endswith(".py") or text.startswith("-") or os.path.exists(text)
    return len(text.split()) >= 2 and not is_other


def _has_stored_run(option: argparse.Namespace) -> bool:
    storage = Path(str(option.benchmark_storage).removeprefix("file://"))
    return any(storage.glob("**/*.json")) or "://" in str(storage)
