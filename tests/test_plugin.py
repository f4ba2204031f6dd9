"""The plugin from outside: pytest in a process of its own, on a copy of the repository with a small perf/."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from impl.machines import why_no_cuda
from impl.metrics import Summary
from reports import plugin
from reports.options import is_reason
from tests.small import CASES, run, start

FAILING_CLAIM = """
from perf.experiments import FIRST
from reports.claims import Broken, Evidence, claim

@claim(FIRST, section="7", broken=Broken("nothing"))
def test_overlap_is_ten_times_as_fast(evidence: Evidence) -> None:
    gain = evidence.of(FIRST).gain("throughput_rps", "overlap")
    evidence.at_least("throughput gain", gain, 9)
    evidence.show("throughput", gain, "%")
"""
FAILING_TEARDOWN = """
import pytest

@pytest.fixture(autouse=True)
def complains_afterwards(request):
    yield
    assert "first-overlap-virtual" not in request.node.name
"""
WAITING_TEST = """
import time
from pathlib import Path

def test_waits():
    Path("started").touch()
    time.sleep(60)
"""
pytestmark = pytest.mark.slow
no_gpu = pytest.mark.skipif(why_no_cuda() is None, reason="there is a GPU here")


def baseline(suite: Path) -> Path:
    return suite / "baselines" / "virtual.json"


def test_cases_and_claims_pass_and_the_table_shows_them(template: Path) -> None:
    status, output = run(template)
    assert status == 0, output
    assert "8 passed" in output
    assert "claims on virtual" in output
    row = next(line for line in output.splitlines() if "overlap raises throughput → throughput" in line)
    assert re.search(r" 7 +\+35\.94 % +\+\d+\.\d\d % +\+\d+\.\d\d % +HOLDS", row)
    assert "claims: 2 HOLDS" in output
    assert "cases against the baseline: 5 equal" in output


@no_gpu
def test_asking_for_a_gpu_that_is_not_there_is_an_error_of_one_line(template: Path) -> None:
    status, output = run(template, "-m", "gpu")
    assert status == pytest.ExitCode.USAGE_ERROR
    told = [line for line in output.splitlines() if "no usable CUDA device" in line]
    assert told == [f"ERROR: no usable CUDA device: {why_no_cuda()} (--gpu-optional skips what needs one)"]
    assert "Traceback" not in output
    assert "passed" not in output


@no_gpu
def test_an_optional_gpu_gives_skips_with_the_reason_and_not_run_in_the_table(template: Path) -> None:
    status, output = run(template, "-m", "gpu", "--gpu-optional")
    assert status == 0, output
    assert re.search(r"SKIPPED \[\d+\] .*no usable CUDA device: ", output)
    assert "claims on cuda" in output
    assert "overlap raises throughput → not measured" in output
    assert "claims: 2 NOT RUN" in output
    assert "passed" not in output
    assert "HOLDS" not in output


def test_a_users_scheduler_joins_every_case(template: Path) -> None:
    status, output = run(template, "-v", "--scheduler", "my_engine.loops:mine")
    assert status == 0, output
    for case in [*CASES, "first-mine", "second-mine"]:
        assert re.search(rf"test_case\[{case}-virtual\] +PASSED", output), case
    assert "5 equal, 2 without one (yours)" in output


@pytest.mark.parametrize(
    ("paths", "told"),
    [
        (["nonsense"], "scheduler 'nonsense'; allowed: package.module:name"),
        (
            ["my_engine.nowhere:mine"],
            "module 'my_engine.nowhere' does not import: ModuleNotFoundError: No module named",
        ),
        (["my_engine.loops:nothing"], "'my_engine.loops' has no callable 'nothing'; it has: Engine, loses, mine"),
        (["my_engine.loops:overlap"], "the name 'overlap' is taken by one of the suite's own; rename yours"),
        (["my_engine.loops:mine", "my_engine.others:mine"], "another one is already listed as 'mine'"),
    ],
)
def test_a_bad_scheduler_is_one_clear_usage_error(paths: list[str], told: str, template: Path) -> None:
    status, output = run(template, *[argument for path in paths for argument in ("--scheduler", path)])
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "Traceback" not in output
    lines = [line for line in output.splitlines() if line]
    assert len(lines) == 1, output
    assert lines[0].startswith("ERROR: ")
    assert told in lines[0]


def test_a_users_scheduler_that_loses_requests_fails_only_its_own_cases(template: Path) -> None:
    status, output = run(template, "--scheduler", "my_engine.loops:loses", "--scheduler", "my_engine.loops:mine")
    assert status == pytest.ExitCode.TESTS_FAILED
    failed = re.findall(r"^FAILED (\S+)", output, re.MULTILINE)
    assert failed == [f"perf/test_cases.py::test_case[{name}-loses-virtual]" for name in ("first", "second")]
    assert "2 failed, 10 passed" in output
    assert "3 of 4 requests never ended: request 1 (0 of 1 outputs), 2 (0 of 1 outputs)" in output
    assert "claims: 2 HOLDS" in output


def test_xdist_still_asserts_claims_and_prints_the_table_once(suite: Path) -> None:
    (suite / "perf" / "test_failing.py").write_text(FAILING_CLAIM)
    status, output = run(suite, "-n", "2")
    assert status == pytest.ExitCode.TESTS_FAILED, output
    assert "1 failed, 8 passed" in output
    assert "FAILS on virtual:" in output
    assert output.count("claims on virtual") == 1
    assert "claims: 1 FAILS, 2 HOLDS" in output
    assert "cases against the baseline: 5 equal" in output


def test_claims_are_asserted_with_benchmarks_disabled(suite: Path) -> None:
    (suite / "perf" / "test_failing.py").write_text(FAILING_CLAIM)
    status, output = run(suite, "--benchmark-disable")
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "1 failed, 8 passed" in output
    assert "FAILS: throughput gain = " in output
    assert "wanted at least 9" in output
    assert "claims: 1 FAILS, 2 HOLDS" in output


def test_the_benchmark_json_has_one_entry_a_case_with_metrics_and_claims(suite: Path) -> None:
    (suite / "perf" / "test_failing.py").write_text(FAILING_CLAIM)
    status, output = run(suite, "--benchmark-json=out.json", "--scheduler", "my_engine.loops:mine")
    assert status == pytest.ExitCode.TESTS_FAILED, output
    entries: list[dict[str, Any]] = json.loads((suite / "out.json").read_text())["benchmarks"]
    names = [entry["name"] for entry in entries]
    assert sorted(names) == sorted(f"test_case[{case}-virtual]" for case in [*CASES, "first-mine", "second-mine"])
    for entry in entries:
        info = entry["extra_info"]
        assert info["schema"] >= 1
        assert info["device"] == "virtual"
        assert f"{info['experiment']}-{info['scheduler']}" in entry["name"]
        for metrics in info["rounds"]:
            assert set(metrics) == set(Summary.__dataclass_fields__)
        assert (info["gpu"], info["left_out"]) == ([], []), "nothing samples virtual time"
        assert entry["stats"]["data"] == [metrics["total_ns"] / 1e9 for metrics in info["rounds"]]
    overlap = {entry["name"]: entry["extra_info"]["overlap"] for entry in entries}
    assert overlap["test_case[first-normal-virtual]"] == ["SYNCHRONIZES"]
    assert overlap["test_case[first-overlap-virtual]"] == ["CPU_LONGER"]
    assert overlap["test_case[first-overlap_post_thread-virtual]"] == ["ON"]
    claims = {entry["name"]: entry["extra_info"]["claims"] for entry in entries}
    assert [(c["claim"], c["verdict"]) for c in claims["test_case[second-normal-virtual]"]] == [
        ("test_overlap_runs_more_forwards", "HOLDS")
    ]
    first = {c["claim"]: c for c in claims["test_case[first-overlap-virtual]"]}
    assert {name: found["verdict"] for name, found in first.items()} == {
        "test_overlap_raises_throughput": "HOLDS",
        "test_overlap_is_ten_times_as_fast": "FAILS",
    }
    assert first["test_overlap_is_ten_times_as_fast"]["reason"].startswith("FAILS: throughput gain = ")
    assert first["test_overlap_is_ten_times_as_fast"]["figure"] == first["test_overlap_raises_throughput"]["figure"]


def change_experiments(suite: Path) -> None:
    """Let forwards of both experiments take longer."""
    path = suite / "perf" / "experiments.py"
    path.write_text(path.read_text().replace("forward=cost_ms(5)", "forward=cost_ms(6)"))


def lose_requests(suite: Path) -> None:
    """Let `overlap` lose requests in the second experiment."""
    path = suite / "perf" / "experiments.py"
    text = path.read_text().replace(
        '{"normal": normal, "overlap": overlap}, section="11"', '{"normal": normal, "overlap": loses}, section="11"'
    )
    path.write_text(text.replace("from reports.cases", "from my_engine.loops import loses\nfrom reports.cases"))


def test_a_moved_case_fails_with_both_values(suite: Path) -> None:
    change_experiments(suite)
    before = baseline(suite).read_bytes()
    status, output = run(suite, "-k", "first or raises")
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "total_ns: 48000000 instead of 44000000" in output
    assert "3 moved" in output
    assert baseline(suite).read_bytes() == before


@pytest.mark.parametrize(
    "fail",
    [
        lambda suite: (suite / "perf" / "test_failing.py").write_text(FAILING_CLAIM),
        lambda suite: (suite / "perf" / "conftest.py").write_text(FAILING_TEARDOWN),
        lose_requests,
    ],
    ids=["claim", "teardown", "lost request"],
)
def test_a_failing_run_never_becomes_a_baseline(fail: Callable[[Path], object], suite: Path) -> None:
    fail(suite)
    change_experiments(suite)
    before = baseline(suite).read_bytes()
    status, output = run(suite, "--update-baselines=slower stages")
    assert status == pytest.ExitCode.TESTS_FAILED
    assert baseline(suite).read_bytes() == before
    assert re.search(r"baselines not updated: [12] tests? failed, and a failing run never becomes a baseline", output)


UPDATING = "--update-baselines=slower stages"


def test_a_collection_error_never_becomes_a_baseline(suite: Path) -> None:
    change_experiments(suite)
    (suite / "perf" / "test_broken.py").write_text("import no_such_module")
    before = baseline(suite).read_bytes()
    status, output = run(suite, UPDATING, "--continue-on-collection-errors")
    assert status == pytest.ExitCode.TESTS_FAILED
    assert baseline(suite).read_bytes() == before
    assert "baselines not updated: pytest ends with 1, and a failing run never becomes a baseline" in output


def test_an_internal_error_never_becomes_a_baseline(suite: Path) -> None:
    change_experiments(suite)
    (suite / "perf" / "conftest.py").write_text(
        "def pytest_runtest_logreport(report):\n    assert 'second-overlap' not in report.nodeid"
    )
    before = baseline(suite).read_bytes()
    status, output = run(suite, UPDATING)
    assert status == pytest.ExitCode.INTERNAL_ERROR
    assert baseline(suite).read_bytes() == before
    assert "baselines not updated: pytest ends with 3, and" in output


def test_a_regression_that_pytest_benchmark_finds_never_becomes_a_baseline(suite: Path) -> None:
    assert run(suite, "--benchmark-autosave")[0] == 0
    change_experiments(suite)
    before = baseline(suite).read_bytes()
    status, output = run(suite, UPDATING, "--benchmark-compare", "--benchmark-compare-fail=mean:5%")
    assert status != 0
    assert "Performance has regressed" in output
    assert baseline(suite).read_bytes() == before


@pytest.mark.parametrize(
    "text", ["", " ", "perf", "faster", "perf/test_cases.py::test_case[a b]", "a new test.py", "--rounds 3", "x" * 5000]
)
def test_what_follows_a_forgotten_reason_is_none(text: str) -> None:
    assert not is_reason(text)


def test_a_path_with_a_space_is_no_reason_and_a_sentence_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("new stages").touch()
    assert not is_reason("new stages")
    assert is_reason("slower stages")
    assert is_reason("slower stages, " * 1000), "longer than any path"


def test_without_a_reason_nothing_runs(suite: Path) -> None:
    status, output = run(suite, "--update-baselines", "perf/test_cases.py")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "--update-baselines 'perf/test_cases.py': that is no reason; say in two words or more why" in output


def test_a_required_baseline_holds_a_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "gpu.json"
    monkeypatch.setattr(plugin, "describe_gpu", lambda: {"gpu": "any"})
    monkeypatch.setattr(plugin, "file_for", lambda device, gpu: path)
    with pytest.raises(pytest.UsageError, match=r"gpu\.json has no case; record it with --update-baselines REASON"):
        plugin.require_baseline()
    path.write_text('{"schema": 1, "machine": {}, "cases": {}, "claims": {"some claim": 0.5}}')
    with pytest.raises(pytest.UsageError, match=r"gpu\.json has no case; record it"):
        plugin.require_baseline()
    path.write_text('{"schema": 1')
    with pytest.raises(pytest.UsageError, match=r"gpu\.json: not valid JSON"):
        plugin.require_baseline()


@pytest.mark.parametrize("option", ["--require-baseline", UPDATING])
def test_nothing_is_both_wanted_and_left_out(option: str, suite: Path) -> None:
    status, output = run(suite, option, "--no-baseline")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert f"{option.partition('=')[0]} and --no-baseline exclude each other" in output


def test_a_baseline_changes_only_with_a_reason_which_it_keeps(suite: Path) -> None:
    before = baseline(suite).read_bytes()
    status, output = run(suite, "--update-baselines=nothing changed")
    assert status == 0
    assert baseline(suite).read_bytes() == before, "equal values are no change and need no entry"
    change_experiments(suite)
    status, output = run(suite, "--update-baselines=slower stages", "--scheduler", "my_engine.loops:mine")
    assert status == 0, output
    after = json.loads(baseline(suite).read_text())
    assert set(after["cases"]) == set(json.loads(before)["cases"]), "not a user's case"
    assert [entry["reason"] for entry in after["history"]][-1] == "slower stages"
    assert after["history"][-1]["cases"] == 5
    assert "virtual.json: 5 cases and 2 claims ran and passed, 5 and " in output


def test_updating_some_cases_keeps_the_others(suite: Path) -> None:
    before = json.loads(baseline(suite).read_text())
    for case in before["cases"].values():
        case["total_ns"] = 1
    baseline(suite).write_text(json.dumps(before))
    status, output = run(suite, "--update-baselines=once more", "-k", "first-overlap-virtual")
    assert status == 0, output
    after = json.loads(baseline(suite).read_text())
    assert {case for case in after["cases"] if after["cases"][case]["total_ns"] != 1} == {"first/overlap"}
    assert after["claims"] == before["claims"]


@pytest.mark.parametrize("arguments", [[], ["--update-baselines=once more"]], ids=["comparing", "updating"])
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda text: text[: len(text) // 2], "virtual.json: not valid JSON"),
        (
            lambda text: re.sub(r'"total_ns": \d+', '"total_ns": "x"', text, count=1),
            "virtual.json: field 'cases.first/normal.total_ns' is 'x'; expected a finite number or null",
        ),
    ],
    ids=["truncated", "no number"],
)
def test_a_damaged_baseline_is_named_and_left_alone(
    damage: Callable[[str], str], told: str, arguments: list[str], suite: Path
) -> None:
    damaged = damage(baseline(suite).read_text())
    baseline(suite).write_text(damaged)
    status, output = run(suite, *arguments)
    assert status == pytest.ExitCode.TESTS_FAILED
    assert told in output
    assert baseline(suite).read_text() == damaged
    assert "ran and passed" not in output


def test_without_the_virtual_baseline_nothing_passes(suite: Path) -> None:
    baseline(suite).unlink()
    status, output = run(suite)
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "8 failed" in output
    assert "virtual.json has no case; record it with --update-baselines REASON" in output
    assert "virtual.json has no figure for this claim; record it with --update-baselines REASON" in output


def test_cases_and_baselines_must_match_both_ways(suite: Path) -> None:
    data = json.loads(baseline(suite).read_text())
    data["cases"]["renamed/overlap"] = data["cases"].pop("first/overlap")
    baseline(suite).write_text(json.dumps(data))
    status, output = run(suite, "-k", "first-overlap-virtual or baseline")
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "2 failed" in output
    assert "virtual.json has no such entry; record it with --update-baselines REASON" in output
    assert "cases without a baseline" in output
    data["cases"]["first/overlap"] = data["cases"]["renamed/overlap"]
    baseline(suite).write_text(json.dumps(data))
    status, output = run(suite, "-k", "baseline")
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "entries of virtual.json without a case: renamed/overlap; delete or rename them" in output


def test_ctrl_c_overwrites_neither_benchmarks_nor_baselines(suite: Path) -> None:
    (suite / "perf" / "test_waiting.py").write_text(WAITING_TEST)
    change_experiments(suite)
    (suite / "out.json").write_text("the last whole result")
    before = baseline(suite).read_bytes()
    process = start(suite, "--benchmark-json=out.json", "--update-baselines=once more")
    deadline_s = time.monotonic() + 60
    while not (suite / "started").exists() and time.monotonic() < deadline_s and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert (suite / "out.json").read_text() == "the last whole result"
    assert baseline(suite).read_bytes() == before
    assert "interrupted: no benchmark JSON was written" in output


@pytest.mark.parametrize(
    "arguments",
    [
        ["--benchmark-compare-fail=mean:5%", "-n", "2"],
        ["--benchmark-json=out.json", "-n", "2"],
        ["--benchmark-json=out.json", "--benchmark-disable"],
        ["--benchmark-compare-fail=mean:5%", "--benchmark-disable"],
    ],
)
def test_results_are_not_asked_for_where_benchmarks_are_switched_off(arguments: list[str], suite: Path) -> None:
    status, output = run(suite, *arguments)
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "nothing would be written or compared; leave one out" in output
    assert not (suite / "out.json").exists()


def test_the_folder_of_the_benchmark_json_is_made_or_refused_before_any_test(suite: Path) -> None:
    assert run(suite, "--benchmark-json=new/folder/out.json")[0] == 0
    assert (suite / "new/folder/out.json").exists()
    status, output = run(suite, "--benchmark-json=new/folder")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "--benchmark-json: new/folder: cannot be written; choose another file" in output


def test_a_comparison_with_no_stored_run_stops_before_any_test(suite: Path) -> None:
    status, output = run(suite, "--benchmark-compare-fail=mean:5%")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert ".benchmarks holds no run to compare with; store one first with --benchmark-autosave" in output
    assert run(suite, "--benchmark-autosave")[0] == 0
    assert run(suite, "--benchmark-compare-fail=mean:5%", "--benchmark-compare")[0] == 0


@pytest.mark.parametrize("rounds", ["0", "-1", "x", "1.5"])
def test_rounds_are_a_whole_number(rounds: str, template: Path) -> None:
    status, output = run(template, f"--rounds={rounds}")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert f"'{rounds}'; expected a whole number of at least 1" in output


@pytest.mark.parametrize("markers", ["cpu", "gpu", "cpu and not slow"])
def test_real_devices_are_not_measured_by_several_workers(markers: str, template: Path) -> None:
    status, output = run(template, "-m", markers, "-n", "2")
    assert status == pytest.ExitCode.USAGE_ERROR
    lines = [line for line in output.splitlines() if line]
    assert lines == ["ERROR: real devices cannot be measured by several xdist workers at once; leave out -n"]


def test_leaving_out_real_devices_in_words_is_no_request_for_them(template: Path) -> None:
    status, output = run(template, "-m", "not gpu and not cpu", "-n", "2")
    assert status == 0, output
    assert "8 passed" in output


def test_leaving_out_a_gpu_that_is_not_there_still_writes_benchmarks(suite: Path) -> None:
    status, output = run(suite, "-m", "not gpu and not cpu", "--benchmark-json=out.json")
    assert status == 0, output
    assert len(json.loads((suite / "out.json").read_text())["benchmarks"]) == 5


def test_cpu_runs_in_real_time_and_is_compared_with_nothing(template: Path) -> None:
    status, output = run(template, "-m", "cpu", "-k", "case")
    assert status == 0, output
    assert "5 passed" in output


def test_traces_of_every_case_are_written_and_a_bad_folder_stops_the_session(suite: Path) -> None:
    status, output = run(suite, "--trace-dir=traces", "-k", "first")
    assert status == 0, output
    names = sorted(path.name for path in (suite / "traces").iterdir())
    assert names == [f"{case}-virtual.json" for case in CASES if case.startswith("first")]
    (suite / "file").write_text("")
    status, output = run(suite, "--trace-dir=file")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "--trace-dir: file: no file can be written there" in output


def test_a_torch_profile_needs_a_folder_and_without_a_gpu_its_lack_is_told(suite: Path) -> None:
    status, output = run(suite, "--torch-profiler")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "--torch-profiler writes traces: say where, with --trace-dir DIR" in output
    status, output = run(suite, "--torch-profiler", "--trace-dir=traces", "-k", "first")
    assert status == pytest.ExitCode.OK
    assert "--torch-profiler recorded nothing: no case ran on a GPU (-m gpu)" in output
    assert list((suite / "traces").glob("*-virtual.json"))


def test_without_nvtx_real_runs_go_on_and_the_summary_says_so(suite: Path) -> None:
    (suite / "nvtx.py").write_text("raise ImportError('not installed here')")
    status, output = run(suite, "-m", "cpu", "-k", "first")
    assert status == pytest.ExitCode.OK
    assert "no NVTX ranges: nvtx does not import (not installed here); install it with: pip install nvtx" in output
