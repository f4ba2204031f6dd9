from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from impl.costs import Costs, WorkKind
from impl.device.protocol import DeviceSettings
from impl.engine import Scheduler
from impl.experiment import Scenario
from impl.machines import VirtualMachine
from impl.schedulers.normal import normal
from impl.schedulers.overlap import overlap
from impl.schedulers.overlap_three_thread import overlap_three_thread
from reports.baselines import FOLDER, METRICS, Baselines, compare_case, differences, entry, file_for
from reports.cases import Case, Experiment
from reports.files import FileError
from reports.measure import Rounds, measure_rounds
from tests.build import scenario, stages

EXPERIMENT = Experiment(scenario(), {"normal": normal, "overlap": overlap}, section="1")
CASE = Case(EXPERIMENT, "overlap")


@pytest.fixture
def rounds() -> Rounds:
    measured = Rounds(EXPERIMENT.scenario)
    measure_rounds(measured, EXPERIMENT.schedulers, VirtualMachine(), num_rounds=1)
    return measured


@pytest.fixture
def recorded(rounds: Rounds, tmp_path: Path) -> Baselines:
    """A written file that holds both cases as they are measured."""
    cases = {f"small/{name}": entry(rounds, name) for name in EXPERIMENT.schedulers}
    baselines = Baselines(tmp_path / "virtual.json", cases, {"test_a": 0.5}, {"device": "virtual"})
    baselines.write()
    return baselines


def test_a_file_is_read_as_it_was_written(recorded: Baselines) -> None:
    assert Baselines.read(recorded.path) == recorded
    assert not recorded.is_empty


def test_a_missing_file_is_empty(tmp_path: Path) -> None:
    missing = Baselines.read(tmp_path / "none.json")
    assert missing.is_empty
    missing.cases["a/b"] = dict.fromkeys(METRICS)
    replace(missing, path=tmp_path / "new folder" / "x.json").write()
    assert (tmp_path / "new folder" / "x.json").exists()


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda data: data.pop("cases"), "field 'cases' is None; expected an object"),
        (lambda data: data.update(cases=[]), "field 'cases' is []; expected an object"),
        (lambda data: data.update(claims=3), "field 'claims' is 3; expected an object"),
        (lambda data: data.pop("machine"), "field 'machine' is None; expected an object"),
        (lambda data: data["cases"].update({"small/overlap": 7}), "field 'cases.small/overlap' is 7; expected an obj"),
        (lambda data: data["cases"]["small/overlap"].pop("total_ns"), "field 'cases.small/overlap' lacks or adds ['to"),
        (lambda data: data["cases"]["small/normal"].update(new=1), "field 'cases.small/normal' lacks or adds ['new']"),
        (
            lambda data: data["cases"]["small/normal"].update(total_ns="7"),
            "field 'cases.small/normal.total_ns' is '7'; expected a finite number or null",
        ),
        (
            lambda data: data["cases"]["small/normal"].update(total_ns=True),
            "field 'cases.small/normal.total_ns' is True; expected a finite number or null",
        ),
        (lambda data: data["claims"].update(test_a=None), "field 'claims.test_a' is null; expected a finite number"),
        (lambda data: data["claims"].update(test_a="x"), "field 'claims.test_a' is 'x'; expected a finite number"),
        (lambda data: data.update(schema=99), "field 'schema' is 99, newer than 1"),
    ],
)
def test_a_damaged_entry_names_file_and_field(
    damage: Callable[[dict[str, Any]], object], told: str, recorded: Baselines
) -> None:
    data = json.loads(recorded.path.read_text())
    damage(data)
    recorded.path.write_text(json.dumps(data))
    with pytest.raises(FileError) as caught:
        Baselines.read(recorded.path)
    assert str(caught.value).startswith(f"{recorded.path}: {told}")


def test_the_recorded_files_of_this_repository_are_sound() -> None:
    assert not Baselines.read(FOLDER / "virtual.json").is_empty
    for path in set(FOLDER.glob("*.json")) - {FOLDER / "article.json"}:
        Baselines.read(path)


def test_a_gpu_has_a_file_of_its_own() -> None:
    assert file_for("virtual", None) == FOLDER / "virtual.json"
    assert file_for("cuda", "NVIDIA H200") == FOLDER / "nvidia-h200.json"
    assert file_for("cuda", "  NVIDIA A100-SXM4-80GB/x ") == FOLDER / "nvidia-a100-sxm4-80gb-x.json"


def test_an_entry_holds_every_metric_and_the_median_over_rounds(rounds: Rounds) -> None:
    summary = asdict(rounds.of("overlap")[0].metrics.summary)
    assert entry(rounds, "overlap") == summary
    for total_ns in (1, 10**12):
        result = rounds.of("overlap")[0]
        other = replace(result.metrics.summary, total_ns=total_ns, launch_lead=None)
        rounds.results["overlap"].append(replace(result, metrics=replace(result.metrics, summary=other)))
    assert entry(rounds, "overlap") == summary


def compare(rounds: Rounds, baselines: Baselines, device: str = "virtual", **options: bool) -> tuple[str, list[str]]:
    options = {"is_updating": False, "is_ignored": False} | options
    return compare_case(CASE, rounds, baselines, device, **options)


def test_equal_metrics_are_equal_and_a_moved_one_is_told_with_both_values(rounds: Rounds, recorded: Baselines) -> None:
    assert compare(rounds, recorded) == ("equal", [])
    recorded.cases[CASE.id]["total_ns"] = 12
    found = rounds.of("overlap")[0].metrics.summary.total_ns
    assert compare(rounds, recorded) == ("moved", [f"total_ns: {found} instead of 12"])


def test_one_nanosecond_is_a_difference_in_virtual_time(rounds: Rounds, recorded: Baselines) -> None:
    recorded.cases[CASE.id]["ttft_max_ns"] += 1  # type: ignore[operator]
    assert compare(rounds, recorded)[0] == "moved"


def test_on_a_real_device_ratios_to_normal_are_compared(rounds: Rounds, recorded: Baselines) -> None:
    for case in recorded.cases.values():  # another GPU, twice as fast at everything
        case["throughput_rps"] *= 2  # type: ignore[operator]
        case["ttft_mean_ns"] /= 2  # type: ignore[operator]
    assert compare(rounds, recorded, "cuda") == ("equal", [])
    recorded.cases[CASE.id]["throughput_rps"] *= 1.1  # type: ignore[operator]
    outcome, moved = compare(rounds, recorded, "cuda")
    assert outcome == "moved"
    assert len(moved) == 1
    assert moved[0].startswith("throughput_rps over normal's: ")
    assert "allowed ±3%" in moved[0]
    del recorded.cases["small/normal"]
    assert differences(recorded, CASE, rounds, is_exact=False) == ["the baseline has no small/normal to compare with"]


def test_on_a_real_device_one_stalled_round_of_three_moves_nothing(rounds: Rounds, recorded: Baselines) -> None:
    def with_rounds(*factors: float) -> Rounds:
        results = {}
        for name in ("normal", "overlap"):
            first = rounds.of(name)[0]
            results[name] = []
            for factor in factors:
                total_ns = round(first.metrics.summary.total_ns * (factor if name == "normal" else 1))
                longer = factor if name == "overlap" else 1
                summary = replace(
                    first.metrics.summary,
                    total_ns=total_ns,
                    ttft_mean_ns=first.metrics.summary.ttft_mean_ns * longer,
                    throughput_rps=first.metrics.summary.throughput_rps / longer,  # type: ignore[operator]
                )
                results[name].append(replace(first, metrics=replace(first.metrics, summary=summary)))
        return replace(rounds, results=results)

    reference = Case(CASE.experiment, "normal")
    for case in (CASE, reference):
        assert differences(recorded, case, with_rounds(1, 1.5, 1), is_exact=False) == []
        moved = differences(recorded, case, with_rounds(1, 1.5, 1.5), is_exact=False)
        assert len(moved) == (2 if case is CASE else 1)


def test_a_case_without_an_entry_is_missing(rounds: Rounds, recorded: Baselines) -> None:
    del recorded.cases[CASE.id]
    told = ["virtual.json has no such entry; record it with --update-baselines REASON"]
    assert compare(rounds, recorded) == ("missing", told)
    assert compare(rounds, recorded, is_updating=True) == ("rewritten", [])


def test_no_baseline_is_a_failure_only_in_virtual_time(rounds: Rounds, tmp_path: Path) -> None:
    assert compare(rounds, Baselines.read(tmp_path / "nvidia-h200.json"), "cuda") == ("without one", [])
    told = ["virtual.json has no case; record it with --update-baselines REASON"]
    assert compare(rounds, Baselines.read(tmp_path / "virtual.json")) == ("without one", told)


def test_nothing_is_compared_if_nothing_is_asked_for(rounds: Rounds, recorded: Baselines) -> None:
    recorded.cases.clear()
    assert compare(rounds, recorded, is_ignored=True) == ("not compared", [])


def test_users_schedulers_and_cpu_times_have_no_baseline(rounds: Rounds, recorded: Baselines) -> None:
    recorded.cases.clear()
    assert compare(rounds, recorded, "cpu") == ("without one (cpu)", [])
    user = Case(EXPERIMENT, "overlap", is_user=True)
    found = compare_case(user, rounds, recorded, "virtual", is_updating=False, is_ignored=False)
    assert found == ("without one (yours)", [])


def test_without_a_gil_threads_that_compute_are_compared_as_closely_as_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("reports.baselines.has_gil", lambda: False)
    case, measured, entries = a_fifth_more(overlap_three_thread, scenario(costs=stages(host_work=WorkKind.SPIN)))
    [moved] = differences(Baselines(tmp_path / "x.json", entries, {}, {}), case, measured, is_exact=False)
    assert moved.endswith("allowed ±3%")


def a_fifth_more(
    scheduler: Scheduler, served: Scenario, *, paced_by_host: frozenset[str] = frozenset()
) -> tuple[Case, Rounds, dict[str, dict[str, float | None]]]:
    """Measure a scheduler, and make a baseline in which its throughput was a fifth higher."""
    schedulers = {"normal": normal, "mine": scheduler, "threads": overlap_three_thread}
    case = Case(Experiment(served, schedulers, paced_by_host=paced_by_host), "mine")
    measured = Rounds(served)
    measure_rounds(measured, schedulers, VirtualMachine(), num_rounds=1)
    entries = {f"small/{name}": entry(measured, name) for name in schedulers}
    entries["small/mine"]["throughput_rps"] *= 1.2  # type: ignore[operator]
    return case, measured, entries


@pytest.mark.parametrize(
    ("scheduler", "costs", "settings", "paced_by_host", "allowed"),
    [
        (overlap, stages(host_work=WorkKind.SPIN), DeviceSettings(), (), "±3%"),
        (overlap_three_thread, stages(), DeviceSettings(), ("threads",), "±3%"),
        (overlap_three_thread, stages(host_work=WorkKind.SPIN), DeviceSettings(), (), "±12%"),
        (overlap, stages(), DeviceSettings(kernels_per_forward=9), (), "±12%"),
        (overlap, stages(), DeviceSettings(), ("mine",), "±12%"),
    ],
    ids=["one thread with the GIL", "threads that sleep", "threads that want the GIL", "many kernels", "paced by host"],
)
def test_more_is_allowed_where_rounds_or_hosts_vary_more(
    scheduler: Scheduler,
    costs: Costs,
    settings: DeviceSettings,
    paced_by_host: tuple[str, ...],
    allowed: str,
    tmp_path: Path,
) -> None:
    served = scenario(costs=costs, settings=settings)
    case, measured, entries = a_fifth_more(scheduler, served, paced_by_host=frozenset(paced_by_host))
    [moved] = differences(Baselines(tmp_path / "x.json", entries, {}, {}), case, measured, is_exact=False)
    assert moved.endswith(f"allowed {allowed}")
