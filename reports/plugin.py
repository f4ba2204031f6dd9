"""The pytest plugin: options, devices, and the fixtures that cases and claims ask for."""

from __future__ import annotations

import argparse
import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from impl.engine import Scheduler
from impl.errors import SettingError
from impl.experiment import Result, run
from impl.machines import why_no_cuda
from impl.schedulers import load_users
from reports.arguments import positive
from reports.baselines import Baselines, compare_case, compare_figure, entry, file_for
from reports.claims import Claim, ClaimFailed, Evidence
from reports.cupti import record, why_no_cupti
from reports.files import FileError, require_writable
from reports.lab import MACHINES, MARKS, Lab
from reports.machine import describe_gpu
from reports.measure import Case, cases
from reports.recorder import Recorder
from reports.records import NOTE, CaseRecord, ClaimRecord
from reports.replay import enter
from reports.summary import sentence
from reports.trace import trace_path, write_trace
from reports.verdict import Verdict

USERS = pytest.StashKey[Mapping[str, Scheduler]]()


def pytest_addoption(parser: pytest.Parser) -> None:
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


def pytest_configure(config: pytest.Config) -> None:
    _require_something_to_compare(config)
    if config.option.torch_profiler and config.option.trace_dir is None:
        raise pytest.UsageError("--torch-profiler writes traces: say where, with --trace-dir DIR")
    if config.option.trace_dir is not None:
        if not config.option.trace_dir.name:  # "" and "." are this folder
            raise pytest.UsageError(f"--trace-dir {str(config.option.trace_dir)!r}: give traces a folder of their own")
        try:
            require_writable(config.option.trace_dir)  # before the run, not after it
        except FileError as error:
            raise pytest.UsageError(f"--trace-dir: {error}") from error
    _require_one_process_for_real_devices(config)
    try:
        config.stash[USERS] = load_users(config.getoption("--scheduler"))
    except SettingError as error:
        raise pytest.UsageError(str(error)) from error
    config.pluginmanager.register(Recorder(config), "overlap-recorder")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if {"case", "device", "check_case"} <= set(metafunc.fixturenames):
        try:
            users: Mapping[str, Scheduler] = metafunc.config.stash[USERS]
            every = cases(metafunc.module.EXPERIMENTS, tuple(users))
        except SettingError as error:
            raise pytest.UsageError(str(error)) from error
        found = [(case, device) for device in MACHINES for case in every]
        parameters = [
            pytest.param(case, device, id=f"{case.experiment.id}-{case.scheduler}-{device}", marks=_marks(device))
            for case, device in found
        ]
        metafunc.parametrize(("case", "device"), parameters)
    elif {"predicted", "device", "lab"} <= set(metafunc.fixturenames):
        parameters = [
            pytest.param(experiment, device, id=f"{experiment.id}-{device}", marks=_marks(device))
            for device in MACHINES
            for experiment in metafunc.module.PREDICTED
            if device != "virtual"
        ]
        metafunc.parametrize(("predicted", "device"), parameters)
    elif "device" in metafunc.fixturenames and not _has_own_parameters(metafunc, "device"):
        metafunc.parametrize("device", [pytest.param(d, id=d, marks=_marks(d)) for d in MACHINES])


def _has_own_parameters(metafunc: pytest.Metafunc, name: str) -> bool:
    """Return whether a test parametrizes a name itself."""
    names = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    return any(name in (n.replace(" ", "").split(",") if isinstance(n, str) else n) for n in names)


def _marks(device: str) -> list[pytest.MarkDecorator]:
    return [getattr(pytest.mark, MARKS[device])] if device in MARKS else []


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out devices nobody asked for; stop, or skip with the reason, if a GPU is asked for and not there."""
    unasked_marks = [mark for mark in MARKS.values() if mark not in config.option.markexpr]
    unasked = {item for item in items if any(item.get_closest_marker(mark) for mark in unasked_marks)}
    if unasked:
        config.hook.pytest_deselected(items=list(unasked))
        items[:] = [item for item in items if item not in unasked]
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    for item in items:
        claim = getattr(getattr(item, "function", None), "claim", None)
        if claim is not None:
            device = item.callspec.params["device"]  # type: ignore[attr-defined] # a claim has a device
            item.user_properties.append(claim_record(claim, Evidence(device, {}), "was not run").as_property())
    reason = why_no_cuda() if on_gpu else None
    if on_gpu and reason is None and config.getoption("--require-baseline"):
        require_baseline()
    if reason is not None:
        if not config.getoption("--gpu-optional"):
            raise pytest.UsageError(f"no usable CUDA device: {reason} (--gpu-optional skips what needs one)")
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason=f"no usable CUDA device: {reason}"))


def require_baseline() -> None:
    """Stop before any test if there is nothing to compare with."""
    path = file_for("cuda", describe_gpu()["gpu"])
    try:
        is_empty = Baselines.read(path).is_empty
    except FileError as error:
        raise pytest.UsageError(f"--require-baseline: {error}") from error
    if is_empty:
        raise pytest.UsageError(f"--require-baseline: {path} has no case; record it with --update-baselines REASON")


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


def claim_record(claim: Claim, evidence: Evidence, reason: str) -> ClaimRecord:
    """Return what a claim leaves for summary, baselines and JSON."""
    figure = evidence.figure
    return ClaimRecord(
        claim=claim.name,
        device=evidence.device,
        section=claim.section,
        verdict=evidence.verdict.value,
        reason=reason,
        figure="" if figure is None else figure.name,
        unit="" if figure is None else figure.unit,
        value=None if figure is None else figure.value,
        experiments=[experiment.id for experiment in claim.experiments],
    )


@pytest.fixture(scope="session")
def lab(pytestconfig: pytest.Config) -> Iterator[Lab]:
    """The session's lab."""
    reporter = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    capture = pytestconfig.pluginmanager.get_plugin("capturemanager")

    def progress(text: str) -> None:
        if reporter is not None and capture is not None and reporter.verbosity >= 0:
            with capture.global_and_fixture_disabled():
                reporter.ensure_newline()
                reporter.write_line(f"  {text}")
                reporter._tw.flush()

    with closing(Lab(pytestconfig.stash[USERS], progress, num_rounds=pytestconfig.getoption("--rounds"))) as made:
        yield made


@pytest.fixture(scope="session")
def baselines_of(lab: Lab) -> Callable[[str], Baselines]:
    """Return the baselines of a device; a damaged file fails every test that needs it."""
    read: dict[str, Baselines] = {}

    def get(device: str) -> Baselines:
        if device not in read:
            gpu = describe_gpu()["gpu"] if device == "cuda" else None
            try:
                read[device] = Baselines.read(file_for(device, gpu))
            except FileError as error:
                pytest.fail(str(error), pytrace=False)
        return read[device]

    return get


@pytest.fixture
def require_claim(
    device: str, lab: Lab, request: pytest.FixtureRequest, baselines_of: Callable[[str], Baselines]
) -> Callable[[Claim], None]:
    """Judge a claim, leave its record, and fail unless it holds."""

    def require(claim: Claim) -> None:
        evidence = lab.judge(claim, device)
        unmet = [str(check) for check in evidence.checks if check.verdict is not Verdict.HOLDS]
        record = claim_record(claim, evidence, "; ".join(unmet))
        request.node.user_properties.append(record.as_property())
        failure = ""
        try:
            evidence.require_holds()
        except ClaimFailed as error:
            failure = f"{sentence(claim.name)}\n{error}\n{inspect.getdoc(claim.judge)}"
        if failure:  # outside of the handler, so that it is told once
            pytest.fail(failure, pytrace=False)
        option = request.config.option
        if evidence.is_exact and not option.update_baselines and not option.no_baseline:
            moved = compare_figure(record.claim, record.value, baselines_of(device))
            if moved:
                pytest.fail(moved, pytrace=False)

    return require


@pytest.fixture
def check_case(
    device: str,
    lab: Lab,
    request: pytest.FixtureRequest,
    baselines_of: Callable[[str], Baselines],
) -> Callable[[Case, BenchmarkFixture], None]:
    """Leave a case's record, fill its benchmark entry, and fail if it differs from its baseline."""
    config = request.config

    def trace(case: Case, device: str, last: Result) -> str | None:
        """Write a case's trace; under torch.profiler, of a run of its own, which is no sample of anything."""
        path = trace_path(config.option.trace_dir, case.experiment.id, case.scheduler, device)
        if device == "cuda" and config.option.torch_profiler and why_no_cupti() is None:
            scheduler = lab.schedulers(case.experiment)[case.scheduler]
            machine = lab.machine(device)
            recording = record(
                lambda: run(scheduler, case.experiment.on(machine), machine), path.with_suffix(".torch.json")
            )
            last = recording.result
        return write_trace(last, path)

    def check(case: Case, benchmark: BenchmarkFixture) -> None:
        rounds = lab.rounds(case.experiment, device)
        results = rounds.of(case.scheduler)
        enter(benchmark, case, device, rounds)
        if rounds.left_out:  # the same note at each case of the experiment: told once
            repeated = f"{case.experiment.id}: {len(rounds.left_out)} rounds left out and repeated"
            request.node.user_properties.append((NOTE, f"{repeated}: {rounds.left_out[0]}"))
        if config.option.trace_dir is not None:
            left_out = trace(case, device, results[-1])
            if left_out:
                request.node.user_properties.append((NOTE, left_out))
        outcome, moved = compare_case(
            case,
            rounds,
            baselines_of(device),
            device,
            is_updating=config.getoption("--update-baselines") is not None,
            is_ignored=config.getoption("--no-baseline"),
        )
        reference = case.experiment.reference
        has_throughput = all(r.metrics.summary.throughput_rps is not None for r in results)
        record = CaseRecord(
            case=case.id,
            device=device,
            baseline=outcome,
            is_user=case.is_user,
            throughput_gain=float(rounds.gain("throughput_rps", case.scheduler, reference).mean())
            if has_throughput
            else None,
            ttft_change=float(rounds.gain("ttft_mean_ns", case.scheduler, reference).mean()),
            metrics=entry(rounds, case.scheduler),
        )
        request.node.user_properties.append(record.as_property())
        if moved:
            lines = "\n  ".join(moved)
            pytest.fail(f"{case.id} on {device} is not as in the baseline:\n  {lines}", pytrace=False)

    return check
