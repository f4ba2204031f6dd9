from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.ui import WebDriverWait

import reports.page.timelines
from impl.batching import Dynamic
from impl.costs import cost_ms
from impl.experiment import Result, Scenario
from impl.schedulers import SCHEDULERS
from impl.timeline import FORWARD, STAGES
from impl.workload import burst, constant
from reports.__main__ import main
from reports.article import read_article
from reports.baselines import FOLDER, Baselines
from reports.files import FileError
from reports.page.data import case_rows
from reports.page.page import render
from reports.page.timelines import timelines
from reports.page.traces import read_trace
from reports.regression.results import ResultFile, read_result
from reports.rows import bubbles
from reports.trace import trace_path, write_trace
from tests.browser import chromium, needs_chromium
from tests.build import MS, attempt, scenario, stages
from tests.results import entry, metrics, write_entries

HOSTILE = "a\"b'<script>alert(1)</script>&amp;--><!--é中over<b>lap: x.y"


def traced(
    folder: Path, *schedulers: str, served: Scenario | None = None, names: dict[str, str] | None = None
) -> tuple[ResultFile, dict[str, Result]]:
    """Run schedulers, leave their traces in folder/traces, and return a result of them, by their names there."""
    found = {(names or {}).get(each, each): attempt(SCHEDULERS[each], served) for each in schedulers}
    entries = []
    for name, result in found.items():
        write_trace(result, trace_path(folder / "traces", "small", name, "virtual"))
        entries.append(entry(f"small/{name}", [metrics(total_ns=result.metrics.summary.total_ns)], device="virtual"))
    return read_result(write_entries(folder / "run.json", entries)), found


def prepared(folder: Path, file: ResultFile) -> dict[str, Any]:
    return timelines(
        case_rows([file], read_article(), Baselines.read(FOLDER / "virtual.json")), [file], folder / "traces"
    )


def spans_of(case: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return row, stage, batch, start and length of every span, in order of time."""
    columns = case["spans"]
    found = [
        (case["rows"][row]["name"], STAGES[stage], case["batches"]["id"][batch], start, length)
        for row, stage, batch, start, length in zip(
            columns["row"], columns["stage"], columns["batch"], columns["start"], columns["length"], strict=True
        )
    ]
    return sorted(found, key=lambda each: each[3:])


# Reading traces


def test_a_trace_says_what_the_run_was(tmp_path: Path) -> None:
    result = attempt(SCHEDULERS["overlap_three_thread"], scenario(constant(9, qps=300), Dynamic(4)))
    write_trace(result, tmp_path / "run.json")
    trace = read_trace(tmp_path / "run.json")
    start_ns = result.timeline.started_ns
    moved = [s._replace(start_ns=s.start_ns - start_ns, end_ns=s.end_ns - start_ns) for s in result.timeline.spans]
    assert trace.spans == sorted(moved, key=lambda span: span.start_ns)
    assert trace.total_ns == result.metrics.summary.total_ns
    assert {each: batch.request_ids for each, batch in trace.batches.items()} == {
        taken.batch_id: taken.request_ids for taken in result.timeline.taken
    }
    assert [mark.time_ns for mark in trace.marks["arrival"]] == [
        r.arrival_ns for r in result.scenario.workload.requests
    ]
    assert [mark.request_id for mark in trace.marks["first token"]] == list(range(9))


def edited(change: Callable[[list[str]], list[str]]) -> Callable[[str], str]:
    return lambda text: "\n".join(change(text.split("\n")))


def with_event(old: str, new: str) -> Callable[[str], str]:
    """Replace a part of the first event that has it."""

    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return change


DAMAGES = {
    "empty": (lambda _: "", "line 1: not the beginning of a trace of this suite"),
    "no JSON": (lambda _: "<html>", "line 1: not the beginning of a trace"),
    "an object of another tool": (lambda _: '{"traceEvents": []}', "line 1: not the beginning of a trace"),
    "a list": (lambda _: "[1, 2]\n", "line 1: not the beginning of a trace"),
    "one endless line": (lambda text: text.replace("\n", " "), "line 1: not the beginning of a trace"),
    "written before": (with_event('"otherData"', '"other"'), "line 1: field 'otherData' is None; expected an object"),
    "cut between lines": (edited(lambda lines: lines[:-5]), "the rest is missing: the file is cut off"),
    "cut inside of a line": (lambda text: text[: len(text) // 2], "line 1"),
    "no span left": (edited(lambda lines: [lines[0], "]}"]), "line 2: the trace ends without any of its 18 spans"),
    "no event": (edited(lambda lines: [lines[0], "7,", *lines[1:]]), "line 2: holds a int; expected an object"),
    "deep": (edited(lambda lines: [lines[0], "[" * 9999, *lines[1:]]), "line 2: "),
    "unknown phase": (with_event('"ph": "X"', '"ph": "B"'), "field 'ph' is 'B'; expected one of M, X, i, s, f, C"),
    "unknown stage": (with_event('"cat": "pre"', '"cat": "up"'), "field 'cat' is 'up'; expected one of pre, launch"),
    "list as stage": (with_event('"cat": "pre"', '"cat": ["pre"]'), "field 'cat' is ['pre']; expected a text"),
    "unknown mark": (
        with_event('"cat": "arrival"', '"cat": "x"'),
        "field 'cat' is 'x'; expected one of arrival, first",
    ),
    "unknown thread": (
        with_event('"pid": 1, "tid": 3, "ts"', '"pid": 9, "tid": 3, "ts"'),
        "field 'tid' is 3; expected a thr",
    ),
    "NaN": (with_event('"ts": 0.0', '"ts": NaN'), "field 'ts' is nan; expected microseconds from 0 to"),
    "negative": (with_event('"dur": 1000.0', '"dur": -1'), "field 'dur' is -1; expected microseconds"),
    "huge": (with_event('"dur": 1000.0', '"dur": 1e300'), "field 'dur' is 1e+300; expected microseconds"),
    "text as time": (with_event('"dur": 1000.0', '"dur": "1"'), "field 'dur' is '1'; expected microseconds"),
    "true as batch": (with_event('"batch": 0', '"batch": true'), "field 'batch' is True; expected a whole number"),
    "no arguments": (with_event('"args": {"batch"', '"arg": {"batch"'), "field 'args' is None; expected an object"),
    "too few requests": (with_event('"size": 1', '"size": 30'), "field 'requests' is [0]; expected the numbers of 20 "),
    "text as request": (with_event('"requests": [0]', '"requests": ["r"]'), "field 'requests' is ['r']; expected the"),
}


@pytest.mark.parametrize(("damage", "told"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_trace_is_named_with_line_and_remedy(damage: Callable[[str], str], told: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_trace(attempt(SCHEDULERS["normal"]), path)
    path.write_text(damage(path.read_text()))
    with pytest.raises(FileError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}: line ")
    assert told in str(caught.value)
    assert str(caught.value).endswith("write it again with: pytest perf --trace-dir DIR")
    assert "\n" not in str(caught.value)


def test_what_is_no_text_or_no_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    for path, told in ((tmp_path / "bytes.json", "codec can't decode"), (tmp_path, "cannot be read")):
        with pytest.raises(FileError, match=told):
            read_trace(path)


# Preparing them


def test_a_timeline_has_every_span_in_its_row_and_the_bubbles(tmp_path: Path) -> None:
    served = scenario(burst(3), costs=stages(1, 5, 1))
    file, results = traced(tmp_path, "normal", "overlap", served=served)
    found = prepared(tmp_path, file)
    normal, overlap = found["cases"][0], found["cases"][1]
    assert [row["name"] for row in normal["rows"]] == ["thread scheduler", "stream engine"]
    assert [row["isStream"] for row in normal["rows"]] == [False, True]
    forwards = [each for each in spans_of(normal) if each[1] == FORWARD]
    assert forwards == [("stream engine", FORWARD, i, (1 + 7 * i) * MS, 5 * MS) for i in range(3)]
    assert normal["bubbles"] == {"start": [6 * MS, 13 * MS], "length": [2 * MS, 2 * MS]}
    start_ns = results["overlap"].timeline.started_ns
    assert overlap["bubbles"]["start"] == [start - start_ns for start, _ in bubbles(results["overlap"].timeline)] == []
    assert normal["batches"] == {
        "id": [0, 1, 2],
        "size": [1] * 3,
        "tokens": [1] * 3,
        "requests": ["r0", "r1", "r2"],
        "label": ["r0", "r1", "r2"],
    }
    assert normal["marks"]["arrival"] == {"time": [0], "batch": [0], "requests": ["r0–r2"]}
    assert normal["marks"]["first token"]["time"] == [7 * MS, 14 * MS, 21 * MS]
    assert (normal["reference"], overlap["reference"]) == (None, 0)
    assert (normal["notes"], overlap["notes"]) == ([], [])
    assert normal["end"] == 21 * MS


def test_copies_that_take_time_have_a_row_however_short(tmp_path: Path) -> None:
    """A zoom shows what a picture of the whole run cannot."""
    for copy_ms, rows in (
        (0.001, ["thread scheduler", "stream engine", "GPU copy"]),
        (0, ["thread scheduler", "stream engine"]),
    ):
        costs = stages(1, 5000, 1)
        file, _ = traced(tmp_path, "normal", served=scenario(costs=replace(costs, copy=cost_ms(copy_ms))))
        assert [row["name"] for row in prepared(tmp_path, file)["cases"][0]["rows"]] == rows


def test_a_large_batch_names_its_first_requests(tmp_path: Path) -> None:
    file, _ = traced(tmp_path, "normal", served=scenario(burst(30), Dynamic(30)))
    found = prepared(tmp_path, file)["cases"][0]["batches"]
    assert (found["requests"], found["size"], found["label"]) == (["r0–r19 and 10 more"], [30], ["B0"])


def test_too_many_spans_and_marks_are_left_out_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, results = traced(tmp_path, "normal", served=scenario(burst(9), Dynamic(3)))
    whole = spans_of(prepared(tmp_path, file)["cases"][0])
    monkeypatch.setattr(reports.page.timelines, "MAX_SPANS", 7)
    monkeypatch.setattr(reports.page.timelines, "MAX_MARKS", 4)
    found = prepared(tmp_path, file)["cases"][0]
    assert spans_of(found) == whole[:6], "and a copy without time"
    assert found["notes"] == [
        "the first 7 of 18 spans are shown, up to 7 ms",
        "the first 4 of 6 arrivals are shown",
        "the first 4 of 6 first tokens are shown",
    ]
    assert results["normal"].metrics.summary.total_ns > found["end"]
    assert found["marks"]["arrival"]["requests"] == ["r0–r3"]


def test_spans_that_the_trace_itself_lacks_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reports.trace.MAX_SPANS", 10)
    file, _ = traced(tmp_path, "overlap", served=scenario(burst(9)))
    (note,) = prepared(tmp_path, file)["cases"][0]["notes"]
    assert note.startswith("the first 10 of 54 spans are shown, up to ")


def test_a_trace_of_another_run_is_told(tmp_path: Path) -> None:
    file, _ = traced(tmp_path, "normal")
    write_trace(
        attempt(SCHEDULERS["normal"], scenario(burst(4))), trace_path(tmp_path / "traces", "small", "normal", "virtual")
    )
    (note,) = prepared(tmp_path, file)["cases"][0]["notes"]
    assert note.startswith("the trace is of another run than the results: it took 28.000 ms, as no round of theirs did")


def test_cases_without_a_trace_have_no_timeline(tmp_path: Path) -> None:
    file, _ = traced(tmp_path, "normal", "overlap", "overlap_three_thread")
    trace_path(tmp_path / "traces", "small", "normal", "virtual").unlink()
    found = prepared(tmp_path, file)["cases"]
    assert {index: case["reference"] for index, case in found.items()} == {1: None, 2: None}


# The command


def test_the_command_draws_timelines_and_says_without_how_to_get_them(tmp_path: Path) -> None:
    traced(tmp_path, "normal", "overlap")
    run = ["html", str(tmp_path / "run.json"), "-o", str(tmp_path / "page")]
    assert main([*run, "--trace-dir", str(tmp_path / "traces")]) == 0
    text = (tmp_path / "page" / "index.html").read_text()
    assert '<section id="timelines">' in text
    assert main(run) == 0
    text = (tmp_path / "page" / "index.html").read_text()
    assert '<section id="timelines">' not in text
    assert "python -m reports html FILE --trace-dir DIR -o PAGE" in text


def test_a_folder_without_traces_of_the_cases_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traced(tmp_path, "normal", "overlap", "overlap_three_thread", "overlap_worker_thread")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for name, told in (
        ("none", f"--trace-dir {tmp_path / 'none'}: cannot be read: "),
        ("file", f"--trace-dir {tmp_path / 'file'}: cannot be read: "),
        (
            "empty",
            "has no trace of any case of RESULT: small/normal on virtual (small-normal-virtual.json), "
            "small/overlap on virtual (small-overlap-virtual.json), small/overlap_three_thread on virtual "
            "(small-overlap_three_thread-virtual.json) and 1 more; write them",
        ),
    ):
        arguments = [
            "html",
            str(tmp_path / "run.json"),
            "-o",
            str(tmp_path / "page"),
            "--trace-dir",
            str(tmp_path / name),
        ]
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert told in error
        assert error.endswith(f"with: pytest perf --trace-dir {tmp_path / name}\n")
        assert error.count("\n") == 1
    assert not (tmp_path / "page").exists()


def test_a_name_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    traced(tmp_path, "normal")
    entries = [entry(case, [metrics()], device="virtual") for case in ("small/normal", "small/../../secret")]
    (tmp_path / "small-").mkdir()
    (tmp_path / "secret-virtual.json").write_text("secret")
    file = read_result(write_entries(tmp_path / "run.json", entries))
    assert list(prepared(tmp_path, file)["cases"]) == [0]


# In a browser


def open_page(driver: webdriver.Chrome, folder: Path, file: ResultFile) -> None:
    (folder / "index.html").write_text(render([file], [], None, folder / "traces"), encoding="utf-8")
    driver.get((folder / "index.html").as_uri())
    wait_until(driver, "return document.querySelectorAll('#timeline .barlayer .point').length > 0")


def wait_until(driver: webdriver.Chrome, script: str) -> None:
    WebDriverWait(driver, 10).until(lambda _: driver.execute_script(script))


def errors(driver: webdriver.Chrome) -> list[str]:
    return [line["message"] for line in driver.get_log("browser") if line["level"] == "SEVERE"]


def headings(driver: webdriver.Chrome) -> list[str]:
    found: list[str] = driver.execute_script(
        "return [...document.querySelectorAll('#timeline .annotation-text')].map((each) => each.textContent)"
    )
    return found


def labels(driver: webdriver.Chrome) -> list[str]:
    found: list[str] = driver.execute_script(
        "return [...document.querySelectorAll('#timeline .textpoint')].map((each) => each.textContent)"
    )
    return found


def zoom(driver: webdriver.Chrome, *range_ms: float) -> None:
    driver.execute_async_script(
        "Plotly.relayout('timeline', {'xaxis.range': [arguments[0], arguments[1]]}).then(arguments[2])", *range_ms
    )


@pytest.mark.slow
@needs_chromium
def test_a_selected_case_shows_its_timeline_above_normals(tmp_path: Path) -> None:
    file, _ = traced(tmp_path, "normal", "overlap", "overlap_three_thread")
    with chromium(tmp_path / "profile") as driver:
        open_page(driver, tmp_path, file)
        assert headings(driver) == ["small/overlap", "small/normal"]
        Select(driver.find_element(By.ID, "timeline-case")).select_by_visible_text("small/overlap_three_thread")
        assert headings(driver) == ["small/overlap_three_thread", "small/normal"]
        assert driver.find_element(By.ID, "selected-case").text == "small/overlap_three_thread", "one selection"
        driver.find_element(By.CSS_SELECTOR, "#cases-table button.case").click()
        assert headings(driver) == ["small/normal"], "its own reference"
        assert Select(driver.find_element(By.ID, "timeline-case")).first_selected_option.text == "small/normal"
        names = {each.text for each in driver.find_elements(By.CSS_SELECTOR, "#timeline .ytick")}
        assert names == {"arrivals", "thread scheduler", "stream engine", "first tokens"}
        assert errors(driver) == []
        assert driver.execute_script("return performance.getEntriesByType('resource').map((e) => e.name)") == []


@pytest.mark.slow
@needs_chromium
def test_hovering_tells_requests_stage_batch_size_and_times(tmp_path: Path) -> None:
    file, _ = traced(tmp_path, "normal", served=scenario(burst(6), Dynamic(3)))
    with chromium(tmp_path / "profile") as driver:
        open_page(driver, tmp_path, file)
        text = hover(driver, "forward")
        for words in ("forward: r0–r2", "batch 0: 3 requests, 3 tokens", "5 ms, from 1 ms to 6 ms", "stream engine"):
            assert words in text
        assert "no forward runs2 ms, from 6 ms to 8 ms" in hover(driver, "bubble")
        assert errors(driver) == []


def hover(driver: webdriver.Chrome, word: str) -> str:
    """Point at the first bar of a stage; return what is said about it."""
    script = """
        const traces = [...document.querySelectorAll("#timeline .barlayer .trace")];
        const isMeant = (each) => each.__data__[0].trace.hovertext[0].startsWith(`<b>${arguments[0]}`);
        return traces.find(isMeant).querySelector(".point path");
    """
    bar = driver.execute_script(script, word)
    ActionChains(driver).move_to_element(bar).perform()
    wait_until(driver, f"return (document.querySelector('#timeline .hovertext')?.textContent || '').includes('{word}')")
    text = driver.find_element(By.CSS_SELECTOR, "#timeline .hovertext").get_attribute("textContent")
    assert text is not None
    return text


@pytest.mark.slow
@needs_chromium
def test_a_zoom_holds_for_both_runs_and_brings_out_names_and_lengths(tmp_path: Path) -> None:
    file, _ = traced(tmp_path, "normal", "overlap", served=scenario(burst(300), costs=stages(1, 5, 1)))
    with chromium(tmp_path / "profile") as driver:
        open_page(driver, tmp_path, file)
        assert labels(driver) == [], "no room for any"
        before = driver.execute_script("return document.querySelectorAll('#timeline .barlayer .point').length")
        zoom(driver, 100, 130)
        wait_until(driver, "return document.querySelectorAll('#timeline .textpoint').length > 0")
        found = labels(driver)
        assert "2 ms" in found, "of normal's bubbles"
        assert {"r14", "r15", "r19", "r20"} <= set(found), "forwards of both: normal needs 7 ms for each, overlap 5"
        after = driver.execute_script("return document.querySelectorAll('#timeline .barlayer .point').length")
        assert after < before / 10
        edges = driver.execute_script("return document.getElementById('timeline').layout.xaxis.range")
        assert edges == [100, 130]
        assert (
            driver.execute_script("return Object.keys(document.getElementById('timeline').layout)").count("xaxis2") == 0
        )
        driver.find_element(By.CSS_SELECTOR, "#timeline [data-attr='zoom'][data-val='reset']").click()
        wait_until(driver, "return document.getElementById('timeline').layout.xaxis.range[1] > 2000")
        assert labels(driver) == []
        assert errors(driver) == []


@pytest.mark.slow
@needs_chromium
def test_a_stage_hidden_in_the_legend_stays_hidden_through_a_zoom(tmp_path: Path) -> None:
    file, _ = traced(tmp_path, "normal")
    with chromium(tmp_path / "profile") as driver:
        open_page(driver, tmp_path, file)
        count = "return [...document.querySelectorAll('#timeline .textpoint')].length"
        before = driver.execute_script(count)
        driver.find_element(By.CSS_SELECTOR, "#timeline .legendtoggle").click()  # pre
        wait_until(driver, f"{count} < {before}")
        hidden = driver.execute_script(count)
        zoom(driver, 0, 20)
        zoom(driver, 0, 22)
        assert driver.execute_script(count) == hidden == before - 3
        assert errors(driver) == []


@pytest.mark.slow
@needs_chromium
def test_a_case_without_trace_leaves_the_timeline_and_says_so(tmp_path: Path) -> None:
    file, _ = traced(tmp_path, "normal", "overlap", "overlap_three_thread")
    trace_path(tmp_path / "traces", "small", "normal", "virtual").unlink()
    with chromium(tmp_path / "profile") as driver:
        open_page(driver, tmp_path, file)
        Select(driver.find_element(By.ID, "timeline-case")).select_by_visible_text("small/overlap_three_thread")
        driver.find_element(By.CSS_SELECTOR, "#cases-table button.case").click()
        assert headings(driver) == ["small/overlap_three_thread"]
        notes = driver.find_element(By.ID, "timeline-notes").text
        assert notes == "small/normal has no trace in the folder; shown is another case"


@pytest.mark.slow
@needs_chromium
def test_hostile_names_are_drawn_as_they_are_on_a_phone(tmp_path: Path) -> None:
    file, _ = traced(tmp_path, "normal", "overlap", names={"overlap": HOSTILE})
    path = trace_path(tmp_path / "traces", "small", HOSTILE, "virtual")
    lane = json.dumps("<b>x</b>&lt;")
    path.write_text(path.read_text().replace('{"name": "scheduler"}', f'{{"name": {lane}}}'))
    with chromium(tmp_path / "profile", width=500) as driver:
        open_page(driver, tmp_path, file)
        assert headings(driver) == [f"small/{HOSTILE}", "small/normal"]
        names = [
            each.get_attribute("textContent") for each in driver.find_elements(By.CSS_SELECTOR, "#timeline .ytick")
        ]
        assert "thread <b>x</b>&lt;" in names
        assert driver.find_elements(By.CSS_SELECTOR, "img, #timeline b") == []
        assert driver.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
        assert errors(driver) == []
