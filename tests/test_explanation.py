from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from impl.attribution import Cause
from impl.diagnosis import Diagnosis, Finding
from impl.gpu_time import GpuCause
from impl.schedulers import SCHEDULERS
from perf.experiments import DYNAMIC_BATCHING, QUEUED_DECODE, SATURATED, STARVED
from reports.__main__ import main
from reports.cases import Experiment
from reports.explanation import Explained, cause_table, explain, sentence
from tests import faulty
from tests.build import MS, attempt, scenario, stages


def of(experiment: Experiment, name: str) -> Explained:
    return explain(name, [attempt(experiment.schedulers[name], experiment.scenario)] * 2)


def test_means_add_up_to_the_mean_ttft_and_shares_to_one() -> None:
    for name in ("normal", "overlap"):
        result = attempt(DYNAMIC_BATCHING.schedulers[name], DYNAMIC_BATCHING.scenario)
        found = explain(name, [result])
        assert found.ttft_ns == pytest.approx(result.metrics.summary.ttft_mean_ns)
        assert sum(found.gpu.values()) == pytest.approx(1)
        assert found.gpu[GpuCause.BUSY] == pytest.approx(1 - result.metrics.summary.gpu_idle_share)
        assert explain(name, [result] * 3).ttft_ns == pytest.approx(found.ttft_ns)


def test_shares_of_the_gpu_are_means_over_rounds_and_the_diagnosis_is_of_the_last_one() -> None:
    """Of 3 forwards with 2 of CPU work in each of 2 gaps: 15 of 19 ms busy, and 30 of 34."""
    short, long = (attempt(SCHEDULERS["normal"], scenario(costs=stages(1, forward, 1))) for forward in (5, 10))
    found = explain("normal", [short, long])
    assert found.gpu == {
        GpuCause.BUSY: pytest.approx((15 / 19 + 30 / 34) / 2),
        GpuCause.CPU: pytest.approx((4 / 19 + 4 / 34) / 2),
    }
    assert found.ttft_ns == pytest.approx((14 + 24) / 2 * MS), "requests wait 0, 1 and 2 steps and take one more"
    assert found.diagnosis.finding is Finding.SYNCHRONIZES
    overlapped = attempt(SCHEDULERS["overlap"])
    assert explain("both", [short, overlapped]).diagnosis.finding is Finding.ON
    assert explain("both", [overlapped, short]).diagnosis.finding is Finding.SYNCHRONIZES


def test_other_metrics_are_means_over_rounds_and_have_a_row_where_they_are_defined() -> None:
    """Of 3 single forwards: 3 requests in 21 and in 36 ms."""
    short, long = (attempt(SCHEDULERS["normal"], scenario(costs=stages(1, forward, 1))) for forward in (5, 10))
    found = explain("normal", [short, long])
    assert found.metrics == {
        "throughput_rps": pytest.approx((3 / 0.021 + 3 / 0.036) / 2),
        "itl_mean_ns": None,
        "itl_max_ns": None,
        "num_forwards": 3,
        "batch_size_mean": 1,
    }
    assert "ITL" not in cause_table([found], width=80)
    decoding = explain("decode", [attempt(SCHEDULERS["normal"], QUEUED_DECODE.scenario)])
    shown = cause_table([found, decoding], width=200)
    [mean] = [line for line in shown.splitlines() if "ITL, mean, ms" in line]
    assert mean.split()[-2:] == ["–", f"{(decoding.metrics['itl_mean_ns'] or 0) / 1e6:.2f}"]
    assert [line.split()[-2:] for line in shown.splitlines() if "forwards  " in line] == [["3.00", "9.00"]]


def test_a_sentence_ends_with_the_throughput_where_both_have_one() -> None:
    normal, overlap = of(STARVED, "normal"), of(STARVED, "overlap")
    assert sentence(normal, overlap).endswith(". Throughput +57.0 %.")
    assert sentence(normal, normal).endswith(" ms). Throughput +0.0 %.")
    assert sentence(replace(normal, metrics={}), overlap).endswith(" ms behind earlier forwards.")


def test_what_a_sentence_names_and_its_share_are_measured_by_the_one_before() -> None:
    on = Diagnosis(Finding.ON, 0, 1, None)
    long = Explained("a", {Cause.QUEUE: 96e6, Cause.OWN_PRE: 3e6, Cause.HELD: 0.5e6, Cause.LOCK: 0.5e6}, {}, on)
    short = Explained("b", {Cause.QUEUE: 47e6, Cause.OWN_PRE: 3e6}, {}, on)
    assert sentence(long, short) == (
        "b's mean TTFT is 50.0 % below a's (50.000 against 100.000 ms): "
        "-49.000 ms queue wait, -1.000 ms everything else."
    )
    assert sentence(short, long) == (
        "a's mean TTFT is 100.0 % above b's (100.000 against 50.000 ms): "
        "+49.000 ms queue wait, +0.500 ms lock, +0.500 ms held back."
    )


def test_the_sentence_names_what_makes_the_difference_largest_first() -> None:
    assert sentence(of(SATURATED, "normal"), of(SATURATED, "overlap")) == (
        "overlap's mean TTFT is 19.3 % below normal's (1,668.000 against 2,068.000 ms): "
        "-652.000 ms queue wait, +252.000 ms behind earlier forwards. Throughput +30.2 %."
    )
    assert " 27.4 % above normal's " in sentence(of(DYNAMIC_BATCHING, "normal"), of(DYNAMIC_BATCHING, "overlap"))


def test_small_differences_are_added_up_and_never_lost() -> None:
    on = Diagnosis(Finding.ON, 0, 1, None)
    before = Explained("a", {Cause.QUEUE: 100e6, Cause.OWN_PRE: 1e6}, {}, on)
    after = Explained("b", {Cause.QUEUE: 80e6, Cause.OWN_PRE: 1.4e6, Cause.HAND_OFF: 0.5e6}, {}, on)
    assert sentence(before, after).endswith(": -20.000 ms queue wait, +0.900 ms everything else.")
    assert sentence(before, before) == "a's mean TTFT is equal to a's (101.000 against 101.000 ms)."


def test_a_single_small_difference_has_its_name() -> None:
    assert sentence(of(STARVED, "normal"), of(STARVED, "overlap")).endswith(
        ": -399.000 ms queue wait, +45.000 ms inserted pre, +9.000 ms behind earlier forwards. Throughput +57.0 %."
    )


def test_many_schedulers_are_drawn_in_blocks_and_never_cut() -> None:
    found = [of(STARVED, name) for name in STARVED.schedulers]
    text = cause_table(found, width=80)
    assert text.count("mean TTFT, ms") > 1
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert all(name in text for name in STARVED.schedulers)


def test_the_command_prints_causes_and_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "starved", "normal", "overlap"]) == 0
    output = capsys.readouterr().out
    assert "inserted pre" in output
    assert "GPU idle while the CPU prepares" in output
    assert "normal: off: the host waits for a forward before it prepares the next batch" in output
    assert "overlap: overlap is on, and CPU-bound" in output
    assert output.splitlines()[-1].startswith("overlap's mean TTFT is 28.4 % below normal's")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nothing"], "no experiment 'nothing'; there are: prototype, saturated"),
        (["saturated", "normal", "mine"], "experiment 'saturated' has no scheduler 'mine'; it has normal, overlap"),
    ],
)
def test_unknown_names_are_told_with_what_there_is(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_the_six_steps_of_a_request_are_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "starved", "normal", "overlap", "--request", "2"]) == 0
    rows = {" ".join(line.split()) for line in capsys.readouterr().out.splitlines()}
    assert "post of the previous 0.000 120.000" in rows
    assert "service TTFT 405.000 480.000" in rows
    assert main(["explain", "starved", "--request", "5"]) == 2
    assert "--request 5: starved has requests 0 to 4" in capsys.readouterr().err


@pytest.mark.slow
def test_pictures_are_drawn_for_each_scheduler_and_each_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "starved", "normal", "overlap", "-o", str(tmp_path), "--until-ms", "500"]) == 0
    names = {"starved-normal-virtual", "starved-overlap-virtual", "starved-normal-overlap-virtual"}
    assert {path.stem for path in tmp_path.iterdir()} == names | {"starved-batches-virtual"}
    assert {path.suffix for path in tmp_path.iterdir()} == {".png", ".svg"}
    assert str(tmp_path / "starved-overlap-virtual.svg") in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_told_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["explain", "starved", "-o", str(tmp_path / "file")]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert "no file can be written there" in errors


def test_a_users_scheduler_can_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    mine = "perf.broken:overlap_that_synchronizes"
    assert main(["explain", "saturated", "normal", "--scheduler", mine]) == 0
    output = capsys.readouterr().out
    assert "overlap_that_synchronizes: off: the host waits for a forward" in output
    assert "normal" in output
    for bad, told in (("nothing:mine", "nothing"), ("impl.schedulers:overlap", "is taken by one of the suite's own")):
        assert main(["explain", "saturated", "--scheduler", bad]) == 2
        assert told in capsys.readouterr().err


def test_an_experiment_that_compares_given_schedulers_takes_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    mine = "perf.broken:overlap_that_synchronizes"
    assert main(["explain", "launch_time", "--scheduler", mine]) == 2
    told = "--scheduler: experiment 'launch_time' compares given schedulers and takes no other"
    assert told in capsys.readouterr().err
    assert main(["explain", "launch_time", "lead_0_pre"]) == 0


def test_only_what_is_named_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    changed = replace(SATURATED, schedulers={**SATURATED.schedulers, "normal": faulty.posts_twice})
    monkeypatch.setattr("reports.commands.explain.find_experiment", lambda name: changed)
    assert main(["explain", "saturated", "overlap"]) == 0
    assert main(["explain", "saturated", "normal", "overlap"]) == 2
    assert "post of batch 0 a second time" in capsys.readouterr().err


def test_a_request_that_is_not_there_is_told_before_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("reports.commands.explain.Lab", None)
    assert main(["explain", "saturated", "--request", "1", "--request", "5"]) == 2
    assert "--request 5: saturated has requests 0 to 4" in capsys.readouterr().err


def test_a_small_change_is_explained_by_its_main_causes() -> None:
    on = Diagnosis(Finding.ON, 0, 1, None)
    before = Explained("a", {Cause.QUEUE: 100e6, Cause.OWN_PRE: 1e6, Cause.OWN_POST: 1e6}, {}, on)
    after = Explained("b", {Cause.QUEUE: 100.3e6, Cause.OWN_PRE: 1.11e6, Cause.OWN_POST: 1.1e6}, {}, on)
    assert sentence(before, after).endswith(": +0.300 ms queue wait, +0.210 ms everything else.")
