from __future__ import annotations

import builtins
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impl.attribution import Cause, attribute, mean_by_cause
from impl.batching import Dynamic
from impl.costs import Costs, cost_ms
from impl.errors import SettingError
from impl.experiment import Result, Scenario
from impl.gpu_time import GpuCause, split_gpu_time
from impl.machines import VirtualMachine
from impl.schedulers import SCHEDULERS
from impl.timeline import COPY, FORWARD, Span
from impl.workload import burst, constant
from perf.experiments import COPY_STREAM, DYNAMIC_BATCHING, GIL, HIGH_QPS, SATURATED, STARVED
from reports.bar_styles import in_ms
from reports.files import FileError
from reports.rows import BatchName, Kind, Mark, batch_names, bubbles, clusters, first_tokens, rows_of, spelled
from reports.white_box.batch_sizes import draw_batch_sizes, queue_lengths
from reports.white_box.saving import save
from reports.white_box.style import literal, shortened, text_width_pt
from reports.white_box.timeline import draw_timeline
from reports.white_box.waterfall import draw_waterfall, steps
from tests.build import MS, START_NS, attempt, by_hand, scenario, stages
from tests.strategies import machines, scenarios

HOSTILE = "a\"b'c $x^2$ <b>&amp; µ – Ж \\alpha_1 {0} %s"
UNDRAWABLE = "\x00\n\u202e\U000f0000"


def draw(result: Result, title: str = "a run", **options: Any) -> Any:
    return draw_timeline(result.timeline, result.scenario.workload, title=title, **options)


def bars(figure: Any) -> Counter[str]:
    """Count the bars and lines of every row and stage."""
    found: Counter[str] = Counter()
    for collection in figure.axes[0].collections:
        if not collection.get_label().startswith("_"):
            found[collection.get_label()] += len(collection.get_paths())
    return found


def texts(figure: Any) -> list[str]:
    found = [text.get_text() for text in figure.texts]
    for axes in figure.axes:
        found += [text.get_text() for text in axes.texts]
        found += [label.get_text() for label in (*axes.get_xticklabels(), *axes.get_yticklabels())]
        found += [axes.get_title(loc=loc) for loc in ("left", "right")]
    return found


def means(name: str) -> dict[Cause, float]:
    result = attempt(SCHEDULERS[name], STARVED.scenario)
    return mean_by_cause(attribute(result.timeline, result.scenario.workload))


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_row_has_a_bar_for_each_of_its_spans(name: str) -> None:
    result = attempt(SCHEDULERS[name], scenario(burst(7), costs=stages(2, 5, 1, launch=1)))
    found = bars(draw(result))
    expected = Counter(f"{s.lane}: {s.stage}" for s in result.timeline.spans if s.end_ns > s.start_ns)
    assert {key: number for key, number in found.items() if key != "bubbles"} == expected


def test_a_bar_lies_where_its_span_lies() -> None:
    result = attempt(SCHEDULERS["overlap"], SATURATED.scenario)
    start_ns = result.timeline.started_ns
    drawn = set()
    for collection in draw(result).axes[0].collections:
        if collection.get_label() == "engine: forward":
            for path in collection.get_paths():
                drawn.add((min(path.vertices[:, 0]), max(path.vertices[:, 0])))
    assert drawn == {
        ((s.start_ns - start_ns) / MS, (s.end_ns - start_ns) / MS) for s in result.timeline.stage("forward")
    }


@pytest.mark.parametrize("name", ["normal", "overlap", "overlap_three_thread"])
def test_bubbles_are_the_gpus_idle_time(name: str) -> None:
    result = attempt(SCHEDULERS[name], STARVED.scenario)
    split = split_gpu_time(result.timeline, result.scenario.workload)
    idle_ns = sum(ns for cause, ns in split.items() if cause is not GpuCause.BUSY)
    assert sum(end_ns - begin_ns for begin_ns, end_ns in bubbles(result.timeline)) == idle_ns
    figure = draw(result)
    assert bars(figure)["bubbles"] == len(bubbles(result.timeline))
    written = [text.get_text() for text in figure.axes[0].texts if text.get_text().endswith(" ms")]
    lengths = [f"{in_ms(end_ns - begin_ns)} ms" for begin_ns, end_ns in bubbles(result.timeline)]
    assert [text.removeprefix("bubble ") for text in written] == lengths


def test_bubbles_and_copies_of_just_the_share_of_a_run_that_can_be_seen_are_shown() -> None:
    """A run of 1000, of which a hundredth is 10."""
    for ends, shown in ((400, [(START_NS + 400, START_NS + 410)]), (401, [])):
        rows = [("engine", FORWARD, 0, 0, ends), ("engine", FORWARD, 1, 410, 1000)]
        assert bubbles(by_hand(rows)[0], seen_share=0.01) == shown
    for copied, kinds in ((410, [Kind.STREAM, Kind.COPIES]), (409, [Kind.STREAM])):
        rows = [("engine", FORWARD, 0, 0, 400), ("copy", COPY, 0, 400, copied), ("engine", FORWARD, 1, 410, 1000)]
        assert [row.kind for row in rows_of(by_hand(rows)[0], seen_share=0.01)] == kinds


def test_rows_stand_in_the_order_in_which_a_batch_meets_them() -> None:
    result = attempt(SCHEDULERS["overlap_three_thread"], COPY_STREAM.scenario)
    rows = [(row.kind, row.name) for row in rows_of(result.timeline)]
    assert rows == [
        (Kind.THREAD, "scheduler"),
        (Kind.THREAD, "launch"),
        (Kind.THREAD, "post"),
        (Kind.STREAM, "engine"),
        (Kind.COPIES, "copy"),
    ]
    without = attempt(SCHEDULERS["overlap_worker_thread"], STARVED.scenario)
    assert [row.name for row in rows_of(without.timeline)] == ["scheduler", "worker", "engine"]


def test_spans_that_overlap_stand_below_each_other() -> None:
    timeline = attempt(SCHEDULERS["normal"]).timeline
    timeline.spans += [Span("copy", "copy", 0, 0, 5 * MS), Span("copy", "copy", 1, 4 * MS, 6 * MS)]
    tracks = rows_of(timeline)[-1].tracks
    assert len(tracks) == 2
    for track in tracks:
        assert all(before.end_ns <= after.start_ns for before, after in pairwise(track))


def test_a_batch_of_one_request_is_named_by_it_and_a_larger_one_by_its_number_too() -> None:
    def names(result: Result) -> Mapping[int, BatchName]:
        return batch_names({taken.batch_id: taken.request_ids for taken in result.timeline.taken})

    assert names(attempt(SCHEDULERS["normal"]))[2] == ("r2", "r2", "2")
    dynamic = attempt(SCHEDULERS["normal"], DYNAMIC_BATCHING.scenario)
    assert names(dynamic)[1] == ("B1: r1–r10", "B1", "1")
    again = attempt(SCHEDULERS["normal"], HIGH_QPS.scenario)
    assert names(again)[0] == ("B0: r0–r15", "B0", "0")
    assert spelled([5, 2, 3, 9, 4]) == "r2–r5, r9"


def test_there_is_a_tick_for_every_arrival_and_every_first_token() -> None:
    result = attempt(SCHEDULERS["overlap"], DYNAMIC_BATCHING.scenario)
    assert len(first_tokens(result.timeline)) == 100
    axes = draw(result).axes[0]
    ticks = sum(len(c.get_paths()) for c in axes.collections if c.get_label().startswith("_child"))
    assert ticks == 200
    groups = clusters([Mark(t, t, 0) for t in (0, 2, 4, 9)], 3)
    assert [[mark.time_ns for mark in group] for group in groups] == [[0, 2], [4], [9]]


def test_stages_without_time_are_lines_and_waits_without_time_are_nothing() -> None:
    result = attempt(SCHEDULERS["overlap"], scenario(costs=Costs()))
    found = bars(draw(result))
    for stage in ("pre", "launch", "post"):
        assert found[f"scheduler: {stage} without time"] == 3
    assert found["engine: forward without time"] == 3
    assert not any("synchronize" in label or "copy" in label for label in found)


def test_waiting_for_the_gil_is_shown() -> None:
    result = attempt(SCHEDULERS["overlap_three_thread"], GIL.scenario)
    assert bars(draw(result))["lock waits"] == len(result.timeline.lock_waits) > 0


def test_a_window_leaves_out_what_comes_later_and_says_so() -> None:
    result = attempt(SCHEDULERS["overlap_three_thread"], DYNAMIC_BATCHING.scenario)
    whole, part = draw(result), draw(result, until_ns=1000 * MS)
    assert bars(whole)["engine: forward"] == 67
    assert bars(part)["engine: forward"] == 7
    assert any(text.startswith("the first 1,000 ms of the run; ") for text in texts(part))
    assert bars(draw(result, until_ns=10**15)) == bars(whole)
    with pytest.raises(SettingError, match="until_ns"):
        draw(result, until_ns=0)


def test_labels_do_not_cover_each_other_or_leave_the_picture() -> None:
    for name in ("overlap", "overlap_three_thread"):
        figure = draw(attempt(SCHEDULERS[name], DYNAMIC_BATCHING.scenario))
        axes = figure.axes[0]
        renderer = figure.canvas.get_renderer()
        boxes = [text.get_window_extent(renderer) for text in axes.texts]
        edge = axes.get_window_extent(renderer)
        assert len(boxes) > 60
        for index, box in enumerate(boxes):
            assert edge.x0 - 2 <= box.x0
            assert box.x1 <= edge.x1 + 2
            for other in boxes[index + 1 :]:
                width = min(box.x1, other.x1) - max(box.x0, other.x0)
                height = min(box.y1, other.y1) - max(box.y0, other.y0)
                assert width <= 0.5 or height <= 0.5


@pytest.mark.slow
@settings(max_examples=15)
@given(served=scenarios(), machine=machines, name=st.sampled_from(sorted(SCHEDULERS)))
def test_whatever_runs_can_be_drawn(served: Scenario, machine: VirtualMachine, name: str) -> None:
    result = attempt(SCHEDULERS[name], served, machine)
    assert bars(draw(result))["bubbles"] == len(bubbles(result.timeline))
    assert draw_batch_sizes({name: result.metrics}, title="drawn")
    parts = mean_by_cause(attribute(result.timeline, served.workload))
    assert sum(parts.values()) == pytest.approx(result.metrics.summary.ttft_mean_ns)
    assert draw_waterfall({}, parts, names=("nothing", name), title="drawn")


def test_one_request_is_enough() -> None:
    result = attempt(SCHEDULERS["overlap"], scenario(burst(1)))
    assert bars(draw(result))["engine: forward"] == 1
    assert any(text.startswith("1 request, 1 forward; total 7 ms") for text in texts(draw(result)))
    assert draw_batch_sizes({"overlap": result.metrics}, title="one")


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        save(draw(attempt(SCHEDULERS["overlap"], STARVED.scenario)), tmp_path / folder, "t")
        save(draw_waterfall(means("normal"), means("overlap"), names=("n", "o"), title="w"), tmp_path / folder, "w")
        runs = {name: attempt(SCHEDULERS[name], DYNAMIC_BATCHING.scenario).metrics for name in ("normal", "overlap")}
        save(draw_batch_sizes(runs, title="b"), tmp_path / folder, "b")
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["b.png", "b.svg", "t.png", "t.svg", "w.png", "w.svg"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    svg = (tmp_path / "a" / "t.svg").read_bytes()
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert b"dc:date" not in svg


@pytest.mark.slow
def test_a_readers_own_style_does_not_change_the_picture(tmp_path: Path) -> None:
    import matplotlib

    result = attempt(SCHEDULERS["overlap"])
    before = [path.read_bytes() for path in save(draw(result), tmp_path, "a")]
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black", "text.parse_math": True}):
        after = [path.read_bytes() for path in save(draw(result), tmp_path, "b")]
    assert before == after


@pytest.mark.slow
def test_hostile_names_are_shown_as_they_are(tmp_path: Path) -> None:
    result = attempt(SCHEDULERS["overlap"])
    renamed = [span._replace(lane=HOSTILE) if span.lane == "scheduler" else span for span in result.timeline.spans]
    strange = replace(result, timeline=replace(result.timeline, spans=renamed))
    figures = {
        "timeline": draw(strange, HOSTILE),
        "waterfall": draw_waterfall(means("normal"), means("overlap"), names=("<$a$>", '"'), title=HOSTILE),
        "sizes": draw_batch_sizes({HOSTILE: result.metrics, "$b$": result.metrics}, title=HOSTILE),
    }
    for name, figure in figures.items():
        assert HOSTILE in texts(figure)
        for path in save(figure, tmp_path, name):
            assert path.stat().st_size > 5000
        ElementTree.fromstring((tmp_path / f"{name}.svg").read_bytes())
    assert any(text.startswith("thread a\"b'c $x^2$ <b>") for text in texts(figures["timeline"]))
    assert "<$a$>" in texts(figures["waterfall"])


def test_what_no_font_can_draw_is_escaped_and_stays_distinct(tmp_path: Path) -> None:
    assert literal("µ – Ж ü") == "µ – Ж ü"
    assert literal(UNDRAWABLE) == "\\x00\\n\\u202e\\U000f0000"
    figure = draw(attempt(SCHEDULERS["overlap"]), UNDRAWABLE)
    svg = save(figure, tmp_path, UNDRAWABLE)[1]
    ElementTree.fromstring(svg.read_bytes())


def test_long_names_are_cut_and_say_so() -> None:
    figure = draw(attempt(SCHEDULERS["overlap"]), "long title " * 100)
    assert any(text.startswith("long title") and text.endswith("…") for text in texts(figure))
    assert text_width_pt(shortened("w" * 100_000, 50, 9), 9) <= 50
    assert shortened("short", 50, 9) == "short"


@pytest.mark.slow
def test_a_thousand_forwards_are_drawn_in_seconds(tmp_path: Path) -> None:
    result = attempt(SCHEDULERS["overlap_three_thread"], scenario(constant(1000, qps=200), costs=stages(1, 4, 1)))
    began = time.perf_counter()
    save(draw(result), tmp_path, "many")
    save(draw_batch_sizes({"many": result.metrics}, title="many"), tmp_path, "sizes")
    assert time.perf_counter() - began < 20  # five times what a slow core takes
    assert (tmp_path / "many.svg").stat().st_size < 8_000_000


def test_a_waterfalls_steps_lead_from_one_mean_to_the_other() -> None:
    before, after = means("normal"), means("overlap")
    found = steps(before, after, ("normal", "overlap"))
    assert (found[0].to_ns, found[-1].to_ns) == (1213 * MS, 868 * MS)
    assert sum(step.change_ns for step in found[:-1]) == pytest.approx(found[-1].change_ns)
    order = [cause.value for cause in Cause]
    places = [order.index(step.name) for step in found[1:-1]]
    assert places == sorted(places)
    for step in found[1:-1]:
        cause = Cause(step.name)
        assert step.change_ns == pytest.approx(after.get(cause, 0) - before.get(cause, 0))
    assert len(found) - 2 == sum(after.get(c, 0) != before.get(c, 0) for c in Cause)


def test_a_waterfall_writes_signed_milliseconds() -> None:
    figure = draw_waterfall(means("normal"), means("overlap"), names=("normal", "overlap"), title="starved")
    assert [text.get_text() for text in figure.axes[0].texts] == [
        "1,213.0 ms",
        "−399.0 ms",
        "+45.0 ms",
        "+9.0 ms",
        "868.0 ms",
    ]


def test_a_step_that_rounds_to_nothing_has_no_sign() -> None:
    before, after = {Cause.QUEUE: 200.0 * MS}, {Cause.QUEUE: 200.0 * MS - 1000}
    figure = draw_waterfall(before, after, names=("a", "b"), title="close")
    assert [text.get_text() for text in figure.axes[0].texts] == ["200.0 ms", "≈ 0 ms", "200.0 ms"]


def test_a_waterfall_without_a_difference_says_so() -> None:
    same = {Cause.QUEUE: 1.0 * MS, Cause.OWN_PRE: 0.1}
    figure = draw_waterfall(same, {**same, Cause.OWN_PRE: 0.2}, names=("a", "b"), title="")
    assert "no cause differs" in texts(figure)
    assert draw_waterfall({}, {}, names=("a", "b"), title="nothing at all")


def test_batch_sizes_and_queues_are_those_of_the_run() -> None:
    result = attempt(SCHEDULERS["normal"], DYNAMIC_BATCHING.scenario)
    queue = queue_lengths(result.metrics)
    assert max(length for _, length in queue) == max(forward.size for forward in result.metrics.forwards) == 10
    assert queue[-1][1] == 0
    assert all(before[0] <= after[0] for before, after in pairwise(queue))
    figure = draw_batch_sizes({"normal": result.metrics, "again": result.metrics}, title="sizes")
    for axes in figure.axes:
        (drawn,) = [c for c in axes.collections if c.get_label() == "forwards"]
        heights = [path.vertices[:, 1].max() for path in drawn.get_paths()]
        assert heights == [forward.size for forward in result.metrics.forwards]
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in figure.axes}) == 1


def test_batch_sizes_of_forwards_without_time_and_of_no_runs() -> None:
    timeless = attempt(SCHEDULERS["normal"], scenario(burst(9), Dynamic(4), Costs(pre=cost_ms(0))))
    assert draw_batch_sizes({"timeless": timeless.metrics}, title="0 ms")
    with pytest.raises(SettingError, match="0 runs"):
        draw_batch_sizes({}, title="none")
    with pytest.raises(SettingError, match="until_ns"):
        draw_batch_sizes({"timeless": timeless.metrics}, title="0 ms", until_ns=-1)


def test_without_matplotlib_the_remedy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = attempt(SCHEDULERS["overlap"])
    figure = draw(result)
    real = builtins.__import__

    def without(name: str, *arguments: object, **named: object) -> object:
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    for attempted in (
        lambda: draw(result),
        lambda: draw_waterfall({}, {}, names=("a", "b"), title=""),
        lambda: draw_batch_sizes({"a": result.metrics}, title=""),
        lambda: save(figure, tmp_path, "a"),
    ):
        with pytest.raises(FileError, match=r'install it with: pip install -e "\.\[pictures\]"'):
            attempted()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="not written"):
        save(draw(attempt(SCHEDULERS["overlap"])), tmp_path / "file", "a")
