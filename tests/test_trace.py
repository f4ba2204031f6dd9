from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given

import reports.trace
from impl.batching import Dynamic
from impl.costs import cost_ms
from impl.experiment import Result, Scenario
from impl.schedulers import SCHEDULERS
from impl.timeline import FORWARD
from impl.workload import burst, constant
from reports.files import FileError
from reports.trace import trace_path, write_trace
from tests.build import attempt, scenario, stages
from tests.strategies import scenarios

NUMBER = {"type": "number", "minimum": 0}
TRACK = {"pid": {"type": "integer"}, "tid": {"type": "integer"}, "name": {"type": "string"}}


def event(phase: str, required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"ph": {"const": phase}, **TRACK, **properties},
        "required": ["ph", "pid", "tid", "name", *required],
        "additionalProperties": False,
    }


ARGS = {"type": "object"}
SCHEMA = {
    "type": "object",
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "otherData": ARGS,
        "traceEvents": {
            "type": "array",
            "items": {
                "oneOf": [
                    event("M", ["args"], args=ARGS),
                    event("X", ["ts", "dur", "cat", "args"], ts=NUMBER, dur=NUMBER, cat={"type": "string"}, args=ARGS),
                    event("s", ["ts", "id", "cat"], ts=NUMBER, id={"type": "integer"}, cat={"type": "string"}),
                    event(
                        "f",
                        ["ts", "id", "cat", "bp"],
                        ts=NUMBER,
                        id={"type": "integer"},
                        cat={"type": "string"},
                        bp={"const": "e"},
                    ),
                    event(
                        "i",
                        ["ts", "s", "cat", "args"],
                        ts=NUMBER,
                        s={"enum": ["g", "p", "t"]},
                        cat={"type": "string"},
                        args=ARGS,
                    ),
                    event("C", ["ts", "args"], ts=NUMBER, args=ARGS),
                ]
            },
        },
    },
    "required": ["traceEvents"],
    "additionalProperties": False,
}
"""The part of the Trace Event Format that is written here."""


def events(result: Result, folder: Path) -> list[dict[str, Any]]:
    write_trace(result, folder / "run.json")
    data = json.loads((folder / "run.json").read_text())
    jsonschema.validate(data, SCHEMA)
    found: list[dict[str, Any]] = data["traceEvents"]
    return found


def of(found: list[dict[str, Any]], phase: str) -> list[dict[str, Any]]:
    return [each for each in found if each["ph"] == phase]


def test_every_span_is_a_slice_on_a_named_track(tmp_path: Path) -> None:
    result = attempt(SCHEDULERS["overlap_three_thread"])
    found = events(result, tmp_path)
    assert len(of(found, "X")) == len(result.timeline.spans)
    names = {(each["pid"], each["tid"]): each["args"]["name"] for each in of(found, "M") if each["tid"]}
    assert sorted(names.values()) == ["arrivals", "copy", "engine", "first tokens", "launch", "post", "scheduler"]
    assert {name for (process, _), name in names.items() if process == reports.trace.GPU} == {"copy", "engine"}
    forward = next(each for each in of(found, "X") if each["name"] == "forward 1")
    assert (forward["ts"], forward["dur"]) == (6000.0, 5000.0), "microseconds from the start of the run"
    assert names[forward["pid"], forward["tid"]] == "engine"
    assert forward["args"] == {"batch": 1, "size": 1, "tokens": 1, "requests": [1]}


def test_arrivals_and_first_tokens_are_marked_on_tracks_of_their_own(tmp_path: Path) -> None:
    result = attempt(SCHEDULERS["normal"], scenario(constant(2, qps=500)))
    found = events(result, tmp_path)
    names = {(each["pid"], each["tid"]): each["args"]["name"] for each in of(found, "M")}
    marks = [(names[each["pid"], each["tid"]], each["cat"], each["ts"], each["args"]) for each in of(found, "i")]
    assert marks == [
        ("arrivals", "arrival", 0.0, {"request": 0, "batch": 0}),
        ("arrivals", "arrival", 2000.0, {"request": 1, "batch": 1}),
        ("first tokens", "first token", 7000.0, {"request": 0, "batch": 0}),
        ("first tokens", "first token", 14000.0, {"request": 1, "batch": 1}),
    ]


def test_a_case_has_one_file_inside_the_folder_whatever_its_name(tmp_path: Path) -> None:
    assert trace_path(tmp_path, "saturated", "overlap", "cuda") == tmp_path / "saturated-overlap-cuda.json"
    hostile = ["../../x", "a/b", "größe", "a:b", 'a"b', "x" * 5000]
    paths = [trace_path(tmp_path, "saturated", scheduler, "virtual") for scheduler in hostile]
    assert len(set(paths)) == len(paths)
    for path in paths:
        assert path.parent == tmp_path
        write_trace(attempt(SCHEDULERS["normal"]), path)


@given(served=scenarios())
def test_arrows_lead_forward_in_time_and_slices_of_a_thread_do_not_cross(served: Scenario) -> None:
    result = attempt(SCHEDULERS["overlap"], served)
    spans = result.timeline.spans
    threads = reports.trace._tracks(spans)
    arrows: dict[int, dict[str, float]] = defaultdict(dict)
    for each in reports.trace._arrows(spans, threads, result.timeline.started_ns):
        arrows[each["id"]][each["ph"]] = each["ts"]
    assert len(arrows) == 2 * len(result.timeline.stage(FORWARD))
    assert all(each["s"] <= each["f"] for each in arrows.values())
    tracks = defaultdict(list)
    for each in reports.trace._slices(spans, threads, result.timeline):
        tracks[each["pid"], each["tid"]].append((each["ts"], each["ts"] + each["dur"]))
    assert {process for process, _ in tracks} == {reports.trace.HOST, reports.trace.GPU}
    for slices in tracks.values():
        assert all(before[1] <= after[0] + 1e-6 for before, after in pairwise(sorted(slices)))


def test_counters_end_at_zero_and_never_fall_below(tmp_path: Path) -> None:
    found = events(attempt(SCHEDULERS["overlap"], scenario(burst(5))), tmp_path)
    queue = [each["args"]["requests"] for each in of(found, "C") if each["name"] == "queue"]
    assert max(queue) == 5
    assert min(queue) >= 0
    assert queue[-1] == 0
    assert [each["args"]["requests"] for each in of(found, "C") if each["name"] == "batch size"] == [1, 0] * 5


def test_copies_that_wait_for_each_other_stand_one_behind_the_other(tmp_path: Path) -> None:
    """Forwards of 5 ms from 1 ms on, with copies of 8 ms."""
    costs = replace(stages(1, 5, 0), copy=cost_ms(8))
    found = events(attempt(SCHEDULERS["overlap_three_thread"], scenario(costs=costs)), tmp_path)
    copies = [(each["ts"], each["ts"] + each["dur"]) for each in of(found, "X") if each["cat"] == "copy"]
    assert copies == [(6000, 14000), (14000, 22000), (22000, 30000)]


def test_the_batch_size_is_that_of_the_forward_that_runs_and_falls_at_its_end(tmp_path: Path) -> None:
    """Batches of 2, 2 and 1 with stages of 1 + 5 + 1 ms."""
    found = events(attempt(SCHEDULERS["normal"], scenario(burst(5), Dynamic(2))), tmp_path)
    sizes = [(each["ts"], each["args"]["requests"]) for each in of(found, "C") if each["name"] == "batch size"]
    assert sizes == [(1000, 2), (6000, 0), (8000, 2), (13000, 0), (15000, 1), (20000, 0)]


def test_too_much_detail_is_dropped_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports.trace, "MAX_SPANS", 10)
    result = attempt(SCHEDULERS["overlap"], scenario(burst(9)))
    told = write_trace(result, tmp_path / "run.json")
    assert told == (
        f"run: 10 of {len(result.timeline.spans)} spans are in the trace, the earliest ones, and of marks and counters "
        "what belongs to them; a viewer takes no more"
    )
    data = json.loads((tmp_path / "run.json").read_text())
    jsonschema.validate(data, SCHEMA)
    kept = of(data["traceEvents"], "X")
    assert data["otherData"]["num_spans"] == len(result.timeline.spans) > len(kept)
    earliest = sorted(span.start_ns for span in result.timeline.spans)[: len(kept)]
    assert [each["ts"] * 1e3 for each in kept] == pytest.approx([ns - result.timeline.started_ns for ns in earliest])
    assert {"pre", "forward"} <= {each["cat"] for each in kept}, "the GPU's too, though it is recorded last"


@pytest.mark.parametrize("limit", [1, 2, 7, 60, 299])
@pytest.mark.parametrize("scheduler", ["normal", "overlap_three_thread"])
def test_the_limit_bounds_events_of_every_kind(
    scheduler: str, limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = attempt(SCHEDULERS[scheduler], scenario(constant(50, qps=300)))
    assert len(result.timeline.spans) == 300
    whole = events(result, tmp_path)
    monkeypatch.setattr(reports.trace, "MAX_SPANS", limit)
    found = events(result, tmp_path)
    slices = of(found, "X")
    batches = {each["args"]["batch"] for each in slices}
    end = max(each["ts"] for each in slices)
    assert len(slices) == limit
    assert of(found, "i") == [each for each in of(whole, "i") if each["args"]["batch"] in batches]
    queue = [each for each in of(whole, "C") if each["name"] == "queue" and each["ts"] <= end]
    assert [each for each in of(found, "C") if each["name"] == "queue"] == queue
    assert len(of(found, "i")) == 2 * len(batches), "a request each"
    beside = len(of(found, "s") + of(found, "f")) + len(of(found, "C")) - len(queue)
    assert beside <= 2 * limit, "arrows and batch sizes"
    num_arrived = sum(request.arrival_ns / 1e3 <= end for request in result.scenario.workload.requests)
    assert len(found) - len(of(found, "M")) <= 3 * limit + 4 * num_arrived


def test_a_run_at_the_limit_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = attempt(SCHEDULERS["overlap"], scenario(burst(9)))
    whole = events(result, tmp_path)
    monkeypatch.setattr(reports.trace, "MAX_SPANS", len(result.timeline.spans))
    assert write_trace(result, tmp_path / "run.json") is None
    assert events(result, tmp_path) == whole
    assert [len(of(whole, phase)) for phase in "XisfC"] == [54, 18, 18, 18, 36]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="file: no file can be written there"):
        write_trace(attempt(SCHEDULERS["normal"]), tmp_path / "file" / "run.json")
