"""The pytest plugin: options, devices, and the fixtures that cases and claims ask for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from impl.engine import Scheduler
from impl.errors import SettingError
from impl.experiment import Result
from impl.machines import why_no_cuda
from impl.schedulers import load_users
from reports.baselines import Baselines, compare_case, compare_figure, entry, file_for
from reports.cases import Case, cases
from reports.claims import Claim, ClaimFailed, Evidence
from reports.cupti import why_no_cupti
from reports.files import FileError
from reports.lab import MACHINES, MARKS, Lab
from reports.machine import describe_gpu
from reports.options import add_options, require_consistent
from reports.profiling import Profiles
from reports.recorder import Recorder
from reports.records import NOTE, CaseRecord, ClaimRecord
from reports.replay import enter
from reports.summary import sentence
from reports.trace import trace_path, write_trace
from reports.verdict import Verdict

USERS = pytest.StashKey[Mapping[str, Scheduler]]()
PROFILES = pytest.StashKey[Profiles]()


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    require_consistent(config)
    try:
        config.stash[USERS] = load_users(config.getoption("--scheduler"))
    except SettingError as error:
        raise pytest.UsageError(str(error)) from error
    recorder = Recorder(config)
    config.pluginmanager.register(recorder, "overlap-recorder")
    config.stash[PROFILES] = Profiles(recorder.note, recorder.fail, partial(write_progress, config))
    config.pluginmanager.register(config.stash[PROFILES], "overlap-profiles")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give tests their parameters by the fixtures that they ask for.

    A module whose test asks for case, device and check_case defines EXPERIMENTS; one whose test asks for predicted,
    device and lab defines PREDICTED.
    """
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
    _deselect_unasked(config, items)
    _note_claims_as_not_run(items)
    _require_gpu(config, [item for item in items if item.get_closest_marker("gpu")])


def _deselect_unasked(config: pytest.Config, items: list[pytest.Item]) -> None:
    unasked_marks = [mark for mark in MARKS.values() if mark not in config.option.markexpr]
    unasked = {item for item in items if any(item.get_closest_marker(mark) for mark in unasked_marks)}
    if unasked:
        config.hook.pytest_deselected(items=list(unasked))
        items[:] = [item for item in items if item not in unasked]


def _note_claims_as_not_run(items: Iterable[pytest.Item]) -> None:
    """Leave a record of every claim now: one that is skipped, or ends in an error, leaves none of its own."""
    for item in items:
        claim = getattr(getattr(item, "function", None), "claim", None)
        if claim is not None:
            device = item.callspec.params["device"]  # type: ignore[attr-defined] # a claim has a device
            item.user_properties.append(claim_record(claim, Evidence(device, {}), "was not run").as_property())


def _require_gpu(config: pytest.Config, on_gpu: Sequence[pytest.Item]) -> None:
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


def write_progress(config: pytest.Config, text: str) -> None:
    """Write a line between the dots of pytest."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    capture = config.pluginmanager.get_plugin("capturemanager")
    if reporter is not None and capture is not None and reporter.verbosity >= 0:
        with capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.write_line(f"  {text}")
            reporter._tw.flush()


@pytest.fixture(scope="session")
def lab(pytestconfig: pytest.Config) -> Iterator[Lab]:
    """The session's lab."""
    num_rounds = pytestconfig.getoption("--rounds")
    with closing(Lab(pytestconfig.stash[USERS], partial(write_progress, pytestconfig), num_rounds=num_rounds)) as made:
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
        """Write a case's trace; where torch.profiler is wanted, it is replaced later, by that of a run of its own."""
        path = trace_path(config.option.trace_dir, case.experiment.id, case.scheduler, device)
        if device == "cuda" and config.option.torch_profiler and why_no_cupti() is None:
            config.stash[PROFILES].add(case, lab, path)
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
