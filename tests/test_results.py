from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reports.files import FileError
from reports.regression.results import Key, find_runs, read_result, read_side
from tests.results import CASES, document, entry, metrics, write_run


def test_a_run_is_read_with_its_rounds_facts_and_failures(tmp_path: Path) -> None:
    claims = [{"claim": "test_x", "section": "7", "verdict": "HOLDS", "reason": "", "figure": 0.3}]
    cases = {"saturated/normal": [metrics(), metrics(total_ns=1)]}
    found = read_result(write_run(tmp_path / "run.json", cases, claims=claims, failed=["perf/test_a.py::test_b"]))
    key = Key("cuda", "saturated/normal")
    assert [each["total_ns"] for each in found.cases[key].rounds] == [400_000_000, 1]
    assert found.machines["cuda"]["gpu"] == "NVIDIA H200"
    assert found.claims[0].verdict == "HOLDS"
    assert found.failed == ("perf/test_a.py::test_b",)
    assert (found.commit, found.time) == ("a" * 40, "2026-11-30T00:00:00+00:00")


def change(path: list[Any], value: object) -> Callable[[dict[str, Any]], None]:
    def apply(data: dict[str, Any]) -> None:
        place: Any = data
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return apply


INFO = ["benchmarks", 1, "extra_info"]


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (change(["benchmarks"], []), "field 'benchmarks' is empty: no case ran"),
        (change(["benchmarks"], {"a": 1}), "field 'benchmarks' is no list of objects: not written by pytest-benchmark"),
        (change(["benchmarks"], [{"name": "x"}]), "has 1 entries, none of a case of this suite"),
        (change([*INFO, "rounds"], []), "field 'benchmarks[1].extra_info.rounds' holds no round of saturated/overlap"),
        (change([*INFO, "schema"], 99), "field 'benchmarks[1].extra_info.schema' is 99, newer than 1; update this"),
        (change([*INFO, "schema"], "1"), "field 'benchmarks[1].extra_info.schema' is '1'; expected a whole number"),
        (change([*INFO, "scheduler"], "normal"), "holds saturated/normal on cuda a second time"),
        (change([*INFO, "scheduler"], None), "field 'benchmarks[1].extra_info.scheduler' is None; expected a name"),
        (change([*INFO, "scale"], 0), "field 'benchmarks[1].extra_info.scale' is 0; expected a factor above 0"),
        (
            change([*INFO, "rounds", 0, "ttft_mean_ns"], float("nan")),
            "field 'benchmarks[1].extra_info.rounds[0].ttft_mean_ns' is nan; expected a finite number or null",
        ),
        (change(["benchmarks", 0, "stats", "mean"], float("inf")), "field 'benchmarks[0].stats.mean' is inf"),
        (
            change([*INFO, "rounds", 0, "ttft_mean_ns"], "fast"),
            "field 'benchmarks[1].extra_info.rounds[0].ttft_mean_ns' is 'fast'; expected a finite number or null",
        ),
        (change(["overlap_failed"], 3), "field 'overlap_failed' is no list of tests"),
        (change(["overlap_failed"], None), "field 'overlap_failed' is no list of tests"),
        (change([*INFO, "device"], "Virtual"), "extra_info.device' is 'Virtual'; expected one of virtual, cpu, cuda"),
        (change([*INFO, "scheduler"], "a\nb"), "extra_info.scheduler' is 'a\\nb'; expected a name"),
        (change([*INFO, "scheduler"], "\ud800"), "extra_info.scheduler' is '\\ud800'; expected a name"),
        (
            change([*INFO, "rounds", 0, "ttft_mean_ns"], -1),
            "extra_info.rounds[0].ttft_mean_ns' is -1; expected a number above 0",
        ),
        (
            change([*INFO, "rounds", 0, "throughput_rps"], 0),
            "extra_info.rounds[0].throughput_rps' is 0; expected a number above 0",
        ),
        (change(["machine_info"], {}), "field 'machine_info.overlap' is missing: the suite's plugin did not run"),
        (change(["machine_info", "overlap"], {}), "field 'machine_info.overlap.cuda' is missing"),
    ],
)
def test_bad_input_is_named_with_file_and_field(
    damage: Callable[[dict[str, Any]], None], told: str, tmp_path: Path
) -> None:
    data = document(entry(case, [metrics()] * 3) for case in CASES)
    damage(data)
    path = tmp_path / "run.json"
    path.write_text(json.dumps(data))
    with pytest.raises(FileError) as caught:
        read_result(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", '{"benchmarks": [', "[]", "null", "\x00"])
def test_what_is_no_json_object_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(FileError, match=r"run\.json: (not valid JSON|holds a)"):
        read_result(path)


def test_a_missing_commit_is_no_error(tmp_path: Path) -> None:
    data = document([entry("a/normal", [metrics()])])
    data["commit_info"] = {"error": "no git", "id": "unversioned"}
    (tmp_path / "run.json").write_text(json.dumps(data))
    found = read_result(tmp_path / "run.json")
    assert (found.commit, found.time) == ("", "2026-11-30T01:00:00+00:00")


def test_stored_runs_are_found_by_the_names_that_pytest_benchmark_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ".benchmarks" / "Linux-CPython-3.12-64bit"
    folder.mkdir(parents=True)
    for name in ("0001_abc", "0002_def", "0003_def"):
        write_run(folder / f"{name}.json")
    monkeypatch.chdir(tmp_path)
    assert [path.name for path in find_runs(["0001", "Linux-*/0002_def"])] == ["0001_abc.json", "0002_def.json"]
    with pytest.raises(
        FileError, match=r"000: stands for 3 stored runs \(.*0001_abc\.json.*\); write more of the name"
    ):
        find_runs(["000"])
    for name in ("0009", "missing.json", "a/b/c/d"):
        with pytest.raises(FileError, match=rf"{name}: no such file, and no stored run of that name in {tmp_path}"):
            find_runs([name])


def test_looking_for_a_stored_run_makes_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError):
        find_runs(["0001"])
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_named_twice_is_no_second_process(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a.json")
    copy = tmp_path / "copy.json"
    copy.write_bytes(first.read_bytes())
    for names in (f"{first},{first}", f"{first},{copy}", f"{tmp_path}/*.json"):
        with pytest.raises(FileError, match=r"BASE: .* holds the same run as .*; name each run once"):
            read_side("BASE", names)
    virtual = [write_run(tmp_path / f"v{i}.json", device="virtual") for i in range(2)]
    assert len(read_side("BASE", ",".join(map(str, virtual)))) == 2, "in virtual time equal runs are what is expected"


def test_names_may_be_longer_than_paths_and_contain_commas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "a,b.json")
    assert len(read_side("BASE", "a,b.json")) == 1
    with pytest.raises(FileError, match="no such file, and no stored run"):
        read_side("BASE", "x" * 300)


def test_a_processor_is_a_fact_of_the_machine(tmp_path: Path) -> None:
    data = document([entry("a/normal", [metrics()], device="cpu")])
    data["machine_info"]["cpu"] = {"brand_raw": "AMD EPYC"}
    (tmp_path / "run.json").write_text(json.dumps(data))
    assert read_result(tmp_path / "run.json").machines["cpu"]["processor"] == "AMD EPYC"
