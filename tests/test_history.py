from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from reports.__main__ import main
from reports.files import FileError
from reports.regression.history import Finding, History, Point, Series, find_steps, in_order, intervals, trace
from reports.regression.history_views import draw, to_text
from reports.regression.results import Key, read_result
from reports.regression.rules import FALSE_ALARM_RATE, Scale, read_rules
from tests.results_history import MACHINES, day, hash_of, write_result

RULES = read_rules()
Generator = np.random.Generator


def series(values: Sequence[object], metric: str = "throughput_rps", device: str = "cuda") -> Series:
    """Return a series; a value is one process of one commit, or a list of its processes."""
    arrays = [np.atleast_1d(np.asarray(value, dtype=np.float64)) for value in values]
    points = tuple(Point(position, array, array) for position, array in enumerate(arrays))
    return Series(Key(device, "saturated/overlap"), 1.0, metric, points, 0)


def places(values: Sequence[object], num_tested: int = 1, metric: str = "throughput_rps") -> list[int]:
    return [step.index for step in find_steps(series(values, metric), RULES, num_tested).steps]


def noise(random: Generator, num: int, share: float = 0.01) -> np.ndarray:
    return 100 * np.exp(share * random.standard_normal(num))


def stepped(random: Generator, *at: int, num: int = 20, size: float = 0.95, share: float = 0.01) -> np.ndarray:
    """Return noisy values with a step down at the first, third, … place and back up at the others."""
    values = noise(random, num, share)
    for number, place in enumerate(at):
        values[place:] *= size if number % 2 == 0 else 1 / size
    return values


# Simulations. The noise is 5 % where it must get past the threshold of 1 %, which alone keeps smaller noise silent.


@pytest.mark.slow
@pytest.mark.parametrize("num", [4, 8, 20, 60])
def test_flat_series_raise_no_more_false_alarms_than_stated(num: int) -> None:
    random, trials = np.random.default_rng(num), 1500
    alarms = sum(bool(places(noise(random, num, 0.05))) for _ in range(trials))
    assert alarms <= FALSE_ALARM_RATE * trials


@pytest.mark.slow
def test_the_rate_holds_for_all_series_together() -> None:
    random, trials, num_series = np.random.default_rng(7), 150, 10
    families = ([places(noise(random, 20, 0.05), num_series) for _ in range(num_series)] for _ in range(trials))
    assert sum(any(family) for family in families) <= FALSE_ALARM_RATE * trials


@pytest.mark.slow
@pytest.mark.parametrize("num_noisy", [2, 3, 5])
def test_a_noisier_end_raises_no_false_alarms(num_noisy: int) -> None:
    random, trials = np.random.default_rng(num_noisy), 1000
    quiet, noisy = 20 - num_noisy, num_noisy
    made = (np.concatenate([noise(random, quiet), noise(random, noisy, 0.03)]) for _ in range(trials))
    assert sum(bool(places(values)) for values in made) <= 2 * FALSE_ALARM_RATE * trials  # the t-tests approximate here


@pytest.mark.slow
@pytest.mark.parametrize("num_processes", [1, 3])
def test_a_step_is_found_at_the_right_commit(num_processes: int) -> None:
    random, trials = np.random.default_rng(1), 200
    found = []
    for _ in range(trials):
        levels = [1.0] * 10 + [0.95] * 10
        found.append(places([level * noise(random, num_processes) for level in levels]))
    assert sum(each == [10] for each in found) >= 0.95 * trials
    assert all(len(each) <= 2 for each in found)


@pytest.mark.slow
def test_a_step_among_all_cases_is_still_found() -> None:
    random, trials = np.random.default_rng(2), 100
    assert sum(places(stepped(random, 10), num_tested=198) == [10] for _ in range(trials)) >= 0.85 * trials


@pytest.mark.slow
@pytest.mark.parametrize(("at", "num", "share"), [((20, 40), 60, 0.9), ((20, 30), 60, 0.9), ((7, 14), 20, 0.5)])
def test_a_step_that_is_taken_back_is_two(at: tuple[int, int], num: int, share: float) -> None:
    random, trials = np.random.default_rng(3), 100
    found = [places(stepped(random, *at, num=num)) for _ in range(trials)]
    assert sum(each == list(at) for each in found) >= share * trials
    assert sum(len(each) > 2 for each in found) <= 2 * FALSE_ALARM_RATE * trials


@pytest.mark.slow
@pytest.mark.parametrize("num_processes", [1, 30])
def test_a_lone_outlier_is_no_change_point(num_processes: int) -> None:
    random = np.random.default_rng(4)
    for outlier in range(20):
        values = [noise(random, num_processes) for _ in range(20)]
        values[outlier] *= 1.3
        assert places(values) == []


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0001, 0.001, 0.01])
def test_a_drift_is_a_few_steps(share: float) -> None:
    random = np.random.default_rng(5)
    values = noise(random, 200, share) * np.exp(0.001 * np.arange(200))  # 22 % in all
    found = find_steps(series(values), RULES, 1)
    assert 1 <= len(found.steps) <= 15
    assert found.longest_run >= 3


@pytest.mark.slow
def test_luck_that_rounds_of_a_process_share_is_no_change() -> None:
    random, trials, alarms = np.random.default_rng(6), 300, 0
    for _ in range(trials):
        rounds = [luck * noise(random, 10, 0.002) / 100 for luck in noise(random, 10, 0.05)]
        points = tuple(Point(i, each, np.array([each.mean()])) for i, each in enumerate(rounds))
        found = find_steps(Series(Key("cuda", "a/b"), 1.0, "throughput_rps", points, 0), RULES, 1)
        alarms += bool(found.steps)
    assert alarms <= FALSE_ALARM_RATE * trials


@pytest.mark.slow
def test_the_smallest_step_is_found_as_often_as_stated() -> None:
    random, trials = np.random.default_rng(8), 200
    smallest = find_steps(series(noise(random, 20)), RULES, 1).smallest
    assert smallest is not None
    assert 0.02 < smallest < 0.05
    sizes = [find_steps(series(stepped(random, 10, size=1 / (1 + smallest))), RULES, 1).steps for _ in range(trials)]
    assert sum(len(each) == 1 for each in sizes) >= 0.85 * trials  # its own noise is an estimate


# Rules.


def test_a_step_within_the_threshold_is_none() -> None:
    random = np.random.default_rng(9)
    assert places(stepped(random, 10, size=0.993, share=0.0005)) == []
    assert places(stepped(random, 10, size=0.985, share=0.0005)) == [10]


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("throughput_rps", ["regression", "improvement"]),
        ("ttft_mean_ns", ["improvement", "regression"]),
        ("batch_size_mean", ["change", "change"]),
    ],
)
def test_words_follow_the_metrics_direction(metric: str, words: list[str]) -> None:
    factor = 1e6 if metric.endswith("_ns") else 1.0  # the threshold of times is 20 µs
    values = factor * stepped(np.random.default_rng(10), 15, 30, num=45)
    found = find_steps(series(values, metric), RULES, 1)
    assert [step.word for step in found.steps] == words
    assert found.steps[0].estimate == pytest.approx(0.95, abs=0.01)
    assert found.segments == [(0, 15), (15, 30), (30, 45)]


def test_shares_change_by_differences() -> None:
    values = [0.0] * 10 + [0.3] * 10
    (step,) = find_steps(series(values, "gpu_idle_share"), RULES, 1).steps
    assert (step.scale, step.word) == (Scale.DIFFERENCE, "regression")
    assert step.estimate == pytest.approx(0.3)


def test_counts_that_agree_a_few_times_are_no_evidence() -> None:
    assert places([15, 15, 14, 14], metric="num_forwards") == []
    assert places([15] * 5 + [14] * 5, metric="num_forwards") == [5]
    assert places([15] * 10, metric="num_forwards") == []


@pytest.mark.parametrize("num", [1, 2, 3])
def test_less_than_four_commits_are_too_short_to_tell(num: int) -> None:
    found = find_steps(series([[100.0, 101.0]] * num), RULES, 1)
    assert (found.steps, found.smallest, found.is_telling) == ((), None, False)


def test_every_change_of_an_exact_value_is_one() -> None:
    found = find_steps(series([5.0, 5.0, 5.0 + 1e-12, 4.0, 4.0], device="virtual"), RULES, 1)
    assert [(step.index, step.word) for step in found.steps] == [(2, "improvement"), (3, "regression")]
    assert found.steps[1].estimate == pytest.approx(0.8)
    from_zero = find_steps(series([0.0, 2.0], "num_surplus_tokens", "virtual"), RULES, 1)
    assert [(step.estimate, step.scale) for step in from_zero.steps] == [(2.0, Scale.DIFFERENCE)]


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 20, 200])
def test_intervals_lie_within_and_hold_two_segments(length: int) -> None:
    found = intervals(length)
    assert all(start >= 0 and end <= length and end - start >= 4 for start, end in found)
    assert ((0, length) in found) == (length >= 4)
    assert len(set(found)) == len(found)


# Files.


def build(
    folder: Path, levels: Sequence[float], *, device: str = "virtual", case: str = "saturated/overlap"
) -> list[Path]:
    folder.mkdir(exist_ok=True)
    return [
        write_result(
            folder / f"{i}.json",
            {case: [{"throughput_rps": level, "ttft_mean_ns": 1e9 / level}]},
            commit=hash_of(i),
            time=day(i),
            device=device,
        )
        for i, level in enumerate(levels)
    ]


def history(paths: Sequence[Path], *patterns: str, metrics: Sequence[str] = ("throughput_rps",)) -> History:
    return trace([read_result(path) for path in paths], RULES, patterns=patterns, metrics=metrics)


def test_commits_stand_in_the_order_of_their_time(tmp_path: Path) -> None:
    rounds = {"a/b": [{"throughput_rps": 1.0}]}
    times = {"later": "2026-01-02T00:30:00+02:00", "early": "2026-01-01T10:00:00Z", "late": "2026-01-01T22:10:00+00:00"}
    paths = [write_result(tmp_path / name, rounds, commit=name, time=time) for name, time in times.items()]
    paths.append(write_result(tmp_path / "none", rounds, commit="", written="2026-01-01T15:00:00"))
    paths.append(write_result(tmp_path / "again", rounds, commit="early", time=times["early"]))
    found = in_order([read_result(path) for path in paths])
    assert [(commit.name, len(commit.files)) for commit in found] == [("early", 2), ("", 1), ("late", 1), ("later", 1)]


def test_runs_of_changed_files_stand_alone(tmp_path: Path) -> None:
    rounds = {"a/b": [{"throughput_rps": 1.0}]}
    paths = [write_result(tmp_path / str(i), rounds, commit="c", is_dirty=i > 0, written=day(9 - i)) for i in range(3)]
    found = in_order([read_result(path) for path in paths])
    assert [[file.path.name for file in commit.files] for commit in found] == [["2"], ["1"], ["0"]]


def test_a_run_without_a_time_is_refused(tmp_path: Path) -> None:
    path = write_result(tmp_path / "x.json", {"a/b": [{"throughput_rps": 1.0}]}, time="yesterday")
    with pytest.raises(FileError, match=r"x\.json: has the time 'yesterday'; expected ISO 8601"):
        history([path])


def test_three_processes_are_samples_fewer_are_rounds(tmp_path: Path) -> None:
    rounds = [{"throughput_rps": value} for value in (1.0, 2.0)]
    paths = [write_result(tmp_path / str(i), {"a/b": rounds}, commit="c" if i < 3 else "d") for i in range(5)]
    points = history(paths).findings[0].series.points
    assert [point.samples.tolist() for point in points] == [[1.5, 1.5, 1.5], [1.0, 2.0, 1.0, 2.0]]


def test_unlike_machines_are_refused_with_the_facts(tmp_path: Path) -> None:
    rounds = {"a/b": [{"throughput_rps": 1.0}]}
    other = {**MACHINES["cuda"], "gpu": "NVIDIA H100"}
    paths = [write_result(tmp_path / "0", rounds), write_result(tmp_path / "1", rounds, facts=other)]
    with pytest.raises(FileError, match=r"unlike machines \(cuda\): gpu: .*H200.*H100.*; give files of one machine"):
        history(paths)


def test_an_unknown_metric_and_case_are_named(tmp_path: Path) -> None:
    paths = build(tmp_path, [1, 2])
    with pytest.raises(FileError, match="no metric 'speed'; there are: total_ns, ttft_mean_ns"):
        history(paths, metrics=["speed"])
    with pytest.raises(FileError, match=r"no case matches 'x/\*'; there are: saturated/overlap"):
        history(paths, "saturated/*", "x/*")
    with pytest.raises(FileError, match="launch_lead: undefined in every run"):
        history(paths, metrics=["launch_lead"])


def test_undefined_values_leave_a_gap_that_is_counted(tmp_path: Path) -> None:
    values: list[dict[str, float | None]] = [{"itl_mean_ns": 1.0}, {"itl_mean_ns": None}, {"itl_mean_ns": 1.0}, {}]
    paths = [
        write_result(tmp_path / str(i), {"a/b": [value]}, commit=hash_of(i), time=day(i), device="virtual")
        for i, value in enumerate(values)
    ]
    found = history(paths, metrics=["itl_mean_ns"])
    assert [point.position for point in found.findings[0].series.points] == [0, 2]
    assert "no change; undefined at 2 commits" in to_text(found)


def test_another_time_scale_is_another_series(tmp_path: Path) -> None:
    rounds = {"a/b": [{"throughput_rps": 1.0}]}
    paths = [write_result(tmp_path / str(i), rounds, commit=hash_of(i), scale=(1, 0.1)[i]) for i in range(2)]
    found = history(paths)
    assert [finding.series.time_scale for finding in found.findings] == [0.1, 1]
    assert "a/b on cuda, times × 0.1" in to_text(found)


# Text.


def test_a_series_with_a_change_point_is_shown_in_full_others_in_a_line(tmp_path: Path) -> None:
    paths = build(tmp_path / "a", [20, 20, 19]) + build(tmp_path / "b", [7, 7, 7], case="starved/overlap")
    lines = to_text(history(paths)).splitlines()
    assert sum("starved/overlap" in line for line in lines) == 1
    (line,) = [line for line in lines if "<--" in line]
    assert line.split() == [
        hash_of(2)[:8], "2026-01-03", "00:00", "19", "req/s", "–", "1", "-5.00", "%", "<--", "regression",
    ]  # fmt: skip
    assert sum(hash_of(i)[:8] in line for i in range(3) for line in lines) == 3
    assert lines[-1] == "2 series over 3 commits: 1 regression"


def test_measured_series_say_from_where_a_step_is_visible(tmp_path: Path) -> None:
    values = noise(np.random.default_rng(1), 20, 0.003)
    text = to_text(history(build(tmp_path, values, device="cuda")))
    assert " no change" in text
    assert "1% false alarms at most" in text
    short = to_text(history(build(tmp_path, values[:3], device="cuda")))
    assert "too short to tell" in short
    assert short.endswith("1 series over 3 commits: no change point; 1 too short or too noisy to tell")


def test_virtual_rounds_that_differ_are_told(tmp_path: Path) -> None:
    rounds = [{"throughput_rps": 1.0}, {"throughput_rps": 2.0}]
    path = write_result(tmp_path / "0", {"a/b": rounds}, device="virtual")
    assert "no longer exact: its rounds differ" in to_text(history([path]))


def test_a_commit_whose_tests_failed_is_told(tmp_path: Path) -> None:
    path = write_result(tmp_path / "0", {"a/b": [{"throughput_rps": 1.0}]}, failed=["test_x", "test_y"])
    assert "00000000 of 2026-01-01 00:00: test_x and 1 more failed there" in to_text(history([path]))


# Pictures.


@pytest.mark.slow
def test_pictures_are_the_same_for_the_same_files(tmp_path: Path) -> None:
    found = history(build(tmp_path, [20, 20, 19, 21]))
    first, second = (draw(found, "throughput_rps") for _ in range(2))
    assert first == second
    assert first["png"].startswith(b"\x89PNG")
    assert ElementTree.fromstring(first["svg"]).tag.endswith("svg")
    assert b"dc:date" not in first["svg"]
    assert b"-5.00 %" in first["svg"]  # matplotlib writes texts as comments beside their outlines


@pytest.mark.slow
def test_only_so_many_series_are_drawn_those_with_change_points_first(tmp_path: Path) -> None:
    paths = []
    for i in range(4):
        cases = {f"e{n}/s": [{"throughput_rps": 6.0 if n == 14 and i > 1 else 5.0}] for n in range(15)}
        paths.append(write_result(tmp_path / str(i), cases, commit=hash_of(i), time=day(i), device="virtual"))
    svg = draw(history(paths), "throughput_rps")["svg"]
    assert b"3 of 15 series left out, none of them with a change point" in svg
    assert svg.index(b"e14/s on virtual") < svg.index(b"e0/s on virtual")
    assert b"e11/s on virtual" not in svg


# The command.


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["reports", "history", *map(str, arguments)])
    return main()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["'\"; rm -rf $x", "<&>\\frac$a$", "хеш提交", "\x1b[31mred\n"])
def test_the_command_writes_a_picture_of_each_metric_whatever_commits_are_called(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = build(tmp_path, [20, 20])
    paths.append(
        write_result(
            tmp_path / "odd.json",
            {"saturated/overlap": [{"throughput_rps": 18.0, "ttft_mean_ns": 6e7}]},
            commit=name,
            time=day(9),
            device="virtual",
        )
    )
    assert run(monkeypatch, *paths, paths[0], "-o", tmp_path / "out") == 0
    out = capsys.readouterr().out
    assert "2 series over 3 commits: 2 regressions" in out
    assert "\x1b" not in out
    names = {f"{metric}.{suffix}" for metric in ("throughput_rps", "ttft_mean_ns") for suffix in ("png", "svg")}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    ElementTree.fromstring((tmp_path / "out" / "throughput_rps.svg").read_bytes())


def test_bad_input_ends_with_one_line_and_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = build(tmp_path / "in", [20, 20])
    blocked = tmp_path / "file"
    blocked.write_text("")
    for arguments, told in [
        ((*paths, "--metric", "speed", "-o", tmp_path), "no metric 'speed'"),
        ((*paths, "--case", "x", "-o", tmp_path), "no case matches 'x'"),
        (("nowhere.json", "-o", tmp_path), "nowhere.json: no such file"),
        (("nowhere.json", "-o", blocked), f"{blocked}: no file can be written there"),
    ]:
        assert run(monkeypatch, *arguments) == 2
        captured = capsys.readouterr()
        assert told in captured.err
        assert captured.err.count("\n") == 1
        assert captured.out == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "out"
    folder.mkdir(mode=0o500)
    assert run(monkeypatch, *build(tmp_path, [1, 2]), "-o", folder) == 2


def test_without_matplotlib_the_remedy_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: object, **named: object) -> object:
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    assert run(monkeypatch, *build(tmp_path, [1, 2]), "-o", tmp_path / "out") == 2
    assert 'install it with: pip install -e ".[pictures]"' in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_finding_tells_its_segments() -> None:
    found = Finding(series([1.0, 1.0]), (), 0.0, is_telling=True)
    assert found.segments == [(0, 2)]
    assert found.longest_run == 0
