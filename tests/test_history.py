from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from reports.__main__ import main
from reports.files import FileError
from reports.regression.history import History, in_order, trace
from reports.regression.history_figures import draw
from reports.regression.history_text import to_text
from reports.regression.results import read_result
from reports.regression.rules import read_rules
from tests.results import metrics, write_run

RULES = read_rules()
START = datetime(2026, 1, 1, tzinfo=UTC)
ONE_ROUND = {"a/b": [metrics()]}


def hash_of(number: int) -> str:
    """Return a commit's hash, of which the first characters differ from other numbers'."""
    return f"{number * 2654435761 % 2**32:08x}".ljust(40, "0")


def day(number: float) -> str:
    """Return the time of a commit, in ISO 8601."""
    return (START + timedelta(days=number)).isoformat()


# Files.


def build(
    folder: Path, levels: Sequence[float], *, device: str = "virtual", case: str = "saturated/overlap"
) -> list[Path]:
    folder.mkdir(exist_ok=True)
    return [
        write_run(
            folder / f"{i}.json",
            {case: [metrics(throughput_rps=level, ttft_mean_ns=1e9 / level)]},
            commit=hash_of(i),
            time=day(i),
            device=device,
        )
        for i, level in enumerate(levels)
    ]


def history(paths: Sequence[Path], *patterns: str, metrics: Sequence[str] = ("throughput_rps",)) -> History:
    return trace([read_result(path) for path in paths], RULES, patterns=patterns, metrics=metrics)


def test_commits_stand_in_the_order_of_their_time(tmp_path: Path) -> None:
    times = {"later": "2026-01-02T00:30:00+02:00", "early": "2026-01-01T10:00:00Z", "late": "2026-01-01T22:10:00+00:00"}
    paths = [write_run(tmp_path / name, ONE_ROUND, commit=name, time=time) for name, time in times.items()]
    paths.append(write_run(tmp_path / "none", ONE_ROUND, commit="", written="2026-01-01T15:00:00"))
    paths.append(write_run(tmp_path / "again", ONE_ROUND, commit="early", time=times["early"]))
    found = in_order([read_result(path) for path in paths])
    assert [(commit.name, len(commit.files)) for commit in found] == [("early", 2), ("", 1), ("late", 1), ("later", 1)]


def test_runs_of_changed_files_stand_alone(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / str(i), ONE_ROUND, commit="c", is_dirty=i > 0, written=day(9 - i)) for i in range(3)]
    found = in_order([read_result(path) for path in paths])
    assert [[file.path.name for file in commit.files] for commit in found] == [["2"], ["1"], ["0"]]


def test_a_run_without_a_time_is_refused(tmp_path: Path) -> None:
    path = write_run(tmp_path / "x.json", ONE_ROUND, time="yesterday")
    with pytest.raises(FileError, match=r"x\.json: has the time 'yesterday'; expected ISO 8601"):
        history([path])


def test_three_processes_are_samples_fewer_are_rounds(tmp_path: Path) -> None:
    rounds = [metrics(throughput_rps=value) for value in (1.0, 2.0)]
    paths = [write_run(tmp_path / str(i), {"a/b": rounds}, commit="c" if i < 3 else "d") for i in range(5)]
    points = history(paths).findings[0].series.points
    assert [point.samples.tolist() for point in points] == [[1.5, 1.5, 1.5], [1.0, 2.0, 1.0, 2.0]]


def test_unlike_machines_are_refused_with_the_facts(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / "0", ONE_ROUND), write_run(tmp_path / "1", ONE_ROUND, facts={"gpu": "NVIDIA H100"})]
    with pytest.raises(FileError, match=r"unlike machines \(cuda\): gpu: .*H200.*H100.*; give files of one machine"):
        history(paths)


def test_an_unknown_metric_and_case_are_named(tmp_path: Path) -> None:
    paths = build(tmp_path, [1, 2])
    with pytest.raises(FileError, match="no metric 'speed'; there are: total_ns, ttft_mean_ns"):
        history(paths, metrics=["speed"])
    with pytest.raises(FileError, match=r"no case matches 'x/\*'; there are: saturated/overlap"):
        history(paths, "saturated/*", "x/*")
    with pytest.raises(FileError, match="itl_mean_ns: undefined in every run"):
        history(paths, metrics=["itl_mean_ns"])


def test_undefined_values_leave_a_gap_that_is_counted(tmp_path: Path) -> None:
    unknown = {name: value for name, value in metrics().items() if name != "itl_mean_ns"}
    values = [metrics(itl_mean_ns=1.0), metrics(itl_mean_ns=None), metrics(itl_mean_ns=1.0), unknown]
    paths = [
        write_run(tmp_path / str(i), {"a/b": [value]}, commit=hash_of(i), time=day(i), device="virtual")
        for i, value in enumerate(values)
    ]
    found = history(paths, metrics=["itl_mean_ns"])
    assert [point.position for point in found.findings[0].series.points] == [0, 2]
    assert "no change; undefined at 2 commits" in to_text(found)


def test_another_time_scale_is_another_series(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / str(i), ONE_ROUND, commit=hash_of(i), scale=(1, 0.1)[i]) for i in range(2)]
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
    values = 100 * np.exp(0.003 * np.random.default_rng(1).standard_normal(20))
    text = to_text(history(build(tmp_path, values, device="cuda")))
    assert " no change" in text
    assert "1% false alarms at most" in text
    short = to_text(history(build(tmp_path, values[:3], device="cuda")))
    assert "too short to tell" in short
    assert short.endswith("1 series over 3 commits: no change point; 1 too short or too noisy to tell")


def test_virtual_rounds_that_differ_are_told(tmp_path: Path) -> None:
    rounds = [metrics(throughput_rps=1.0), metrics(throughput_rps=2.0)]
    path = write_run(tmp_path / "0", {"a/b": rounds}, device="virtual")
    assert "no longer exact: its rounds differ" in to_text(history([path]))


def test_a_commit_whose_tests_failed_is_told(tmp_path: Path) -> None:
    path = write_run(tmp_path / "0", ONE_ROUND, commit=hash_of(0), time=day(0), failed=["test_x", "test_y"])
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
def test_only_so_many_series_are_drawn_those_with_change_points_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reports.regression.history_figures.MAX_PANELS", 2)
    paths = []
    for i in range(4):
        cases = {f"e{n}/s": [metrics(throughput_rps=6.0 if n == 4 and i > 1 else 5.0)] for n in range(5)}
        paths.append(write_run(tmp_path / str(i), cases, commit=hash_of(i), time=day(i), device="virtual"))
    svg = draw(history(paths), "throughput_rps")["svg"]
    assert b"3 of 5 series left out, none of them with a change point" in svg
    assert svg.index(b"e4/s on virtual") < svg.index(b"e0/s on virtual")
    assert b"e1/s on virtual" not in svg


# The command.


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["reports", "history", *map(str, arguments)])
    return main()


@pytest.mark.slow
def test_the_command_writes_a_picture_of_each_metric_whatever_commits_are_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = build(tmp_path, [20, 20])
    for i, name in enumerate(["'\"; rm -rf $x", "<&>\\frac$a$", "хеш提交", "\x1b[31mred\n"], start=2):
        rounds = [metrics(throughput_rps=20.0 - i, ttft_mean_ns=1e9 / (20 - i))]
        path = tmp_path / f"{i}.json"
        paths.append(write_run(path, {"saturated/overlap": rounds}, commit=name, time=day(i), device="virtual"))
    assert run(monkeypatch, *paths, paths[0], "-o", tmp_path / "out") == 0
    out = capsys.readouterr().out
    assert "2 series over 6 commits: 8 regressions" in out
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
