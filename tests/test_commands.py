"""The command line of `python -m reports`, and the situations that gates are known to get wrong."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reports.__main__ import main
from tests.results import CASES, document, entry, metrics, noisy, write_run

ROOT = Path(__file__).resolve().parent.parent
NO_CASES_CHANGED = "--allow-changed-cases"


def reports(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Run the command in a folder; return exit code, output and errors."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            code = main(arguments)
        except SystemExit as error:  # argparse's
            code = int(error.code or 0)
    return code, output.getvalue(), errors.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Hold a base of six quiet rounds of every case."""
    write_run(tmp_path / "base.json", {c: noisy(6, noise=0.0005, seed=i) for i, c in enumerate(CASES)})
    return tmp_path


def head(folder: Path, **changed: list[dict[str, Any]]) -> Path:
    """Write a head that differs from the base in some cases ("experiment__scheduler")."""
    cases = {c: noisy(6, noise=0.0005, seed=100 + i) for i, c in enumerate(CASES)}
    cases |= {name.replace("__", "/"): rounds for name, rounds in changed.items()}
    return write_run(folder / "head.json", cases)


def compare(folder: Path, *arguments: str) -> tuple[int, str, str]:
    return reports(folder, "compare", "base.json", "head.json", *arguments)


def test_equal_commits_exit_with_0_and_say_how_sure_they_are(folder: Path) -> None:
    head(folder)
    code, output, _ = compare(folder)
    assert code == 0, output
    assert "24 metrics of 4 cases compared: 24 OK" in output
    assert "1% false alarms at most in all" in output
    assert "The weaker test" in output
    assert "visible from" in output


def test_a_regression_exits_with_1_and_stands_next_to_the_prompt(folder: Path) -> None:
    head(folder, saturated__overlap=noisy(6, noise=0.0005, slower=0.1, seed=9))
    code, output, _ = compare(folder, "--markdown", "out.md", "--json", "out.json")
    assert code == 1
    assert output.splitlines()[-1] == "REGRESSION (exit code 1)"
    rows = [line for line in output.splitlines() if line.startswith(("saturated", "starved"))]
    assert "REGRESSION" in rows[-1]
    assert "saturated/overlap on cuda" in rows[-1]
    markdown = (folder / "out.md").read_text()
    assert markdown.startswith("### Overlap scheduling: REGRESSION\n")
    assert markdown.index("| saturated/overlap on cuda |") < markdown.index("<details>")
    data = json.loads((folder / "out.json").read_text())
    assert (data["result"], data["exit_code"]) == ("REGRESSION", 1)
    worse = {(row["case"], row["metric"]) for row in data["rows"] if row["verdict"] == "REGRESSION"}
    assert worse == {("saturated/overlap", "throughput_rps"), ("saturated/overlap", "ttft_mean_ns")}


def test_too_few_or_too_loud_rounds_exit_with_3(folder: Path) -> None:
    head(folder, saturated__overlap=noisy(2, noise=0.05, seed=9))
    code, output, _ = compare(folder)
    assert code == 3
    assert "too noisy: could not have shown a regression of the size that matters" in output


def test_several_files_a_side_and_stored_names_are_accepted(folder: Path) -> None:
    for i in range(3):
        for side in ("b", "h"):
            write_run(folder / f"{side}{i}.json", {c: noisy(2, noise=0.0005, seed=i) for c in CASES})
    code, output, _ = reports(folder, "compare", "b0.json,b1.json,b2.json", "h0.json,h1.json,h2.json")
    assert code == 0, output
    assert "unpaired processes" in output
    assert reports(folder, "compare", "b?.json", "h?.json")[1] == output
    stored = folder / ".benchmarks" / "Linux-CPython-3.12-64bit"
    stored.mkdir(parents=True)
    (folder / "base.json").rename(stored / "0001_abc.json")
    assert reports(folder, "compare", "0001", "0001_abc")[0] == 0


# The situations below are known from gates in the field; see the table in the docstring of each test.


def test_no_stored_base_is_an_error_of_its_own(folder: Path) -> None:
    """A first run has nothing to compare with: exit 2, and where it looked."""
    head(folder)
    code, _, errors = reports(folder, "compare", "0001", "head.json")
    assert code == 2
    assert f"0001: no such file, and no stored run of that name in {folder}/.benchmarks" in errors


def test_a_renamed_case_that_got_ten_times_slower_does_not_pass(folder: Path) -> None:
    """pytest-benchmark's own gate passes this input; see the next test."""
    cases = {c.replace("starved", "hungry"): [metrics(slower=9)] * 6 for c in CASES if "starved" in c}
    same = {c: noisy(6, noise=0.0005, seed=i) for i, c in enumerate(CASES) if "starved" not in c}
    write_run(folder / "head.json", same | cases)
    code, output, _ = compare(folder)
    assert code == 1
    assert "only in base (renamed or removed?):\n  starved/normal on cuda\n  starved/overlap on cuda" in output
    assert "only in head (renamed or new?):\n  hungry/normal on cuda\n  hungry/overlap on cuda" in output
    code, output, _ = compare(folder, NO_CASES_CHANGED)
    assert code == 0
    assert "4 cases changed (allowed)" in output


@pytest.mark.slow
def test_the_same_renamed_case_passes_pytest_benchmarks_own_gate(tmp_path: Path) -> None:
    """The reason for matching in both directions: a renamed and slower benchmark ends with 0 there."""
    slow = "def test_{name}(benchmark):\n    benchmark.pedantic(lambda: time.sleep({s}), rounds=2, iterations=1)\n"
    environment = os.environ | {"PYTEST_ADDOPTS": ""}
    results = []
    for name, seconds, more in (("old", 0.001, ["--benchmark-save=old"]), ("new", 0.05, ["--benchmark-compare"])):
        (tmp_path / "test_it.py").write_text("import time\n" + slow.format(name=name, s=seconds))
        limit = ["--benchmark-compare-fail=mean:5%"] if name == "new" else []
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", *more, *limit]
        command += [f"--rootdir={tmp_path}", "test_it.py"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        results.append(done.returncode)
    assert results == [0, 0]


def test_nothing_in_common_is_no_pass_and_shows_names_of_both_sides(folder: Path) -> None:
    write_run(folder / "head.json", {"hungry/normal": [metrics()] * 3})
    code, output, _ = compare(folder, NO_CASES_CHANGED)
    assert code == 3
    assert "nothing compared: base has saturated/normal on cuda, saturated/overlap on cuda" in output
    assert "head has hungry/normal on cuda" in output


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not valid JSON"),
        ('{"benchmarks": [{"na', "not valid JSON: Unterminated string starting at: line 1 column 18"),
        ('{"tool": "other", "results": []}', "field 'benchmarks' is no list of objects: not written by pytest-benchm"),
        ('{"benchmarks": []}', "field 'benchmarks' is empty: no case ran"),
        ('{"benchmarks": [{"name": "test_x", "stats": {"mean": 1}}]}', "1 entries, none of a case of this suite"),
        ('{"benchmarks": [{"stats": {"mean": NaN}}]}', "field 'benchmarks[0].stats.mean' is nan"),
    ],
    ids=["empty", "truncated", "another tool", "no benchmarks", "another suite", "nan"],
)
@pytest.mark.parametrize("side", ["base", "head"])
def test_unusable_files_exit_with_2_and_one_line(text: str, told: str, side: str, folder: Path) -> None:
    head(folder)
    (folder / f"{side}.json").write_text(text)
    code, output, errors = compare(folder, "--markdown", "out.md")
    assert code == 2
    assert output == ""
    assert errors.count("\n") == 1
    assert errors.startswith(f"{side}.json: ")
    assert told in errors
    assert not (folder / "out.md").exists()


def test_a_broken_newest_run_is_not_replaced_by_an_older_one(folder: Path) -> None:
    head(folder)
    stored = folder / ".benchmarks" / "Linux-CPython-3.12-64bit"
    stored.mkdir(parents=True)
    write_run(stored / "0001_good.json")
    (stored / "0002_broken.json").write_text('{"benchmarks": [')
    code, _, errors = reports(folder, "compare", "0002", "head.json")
    assert code == 2
    assert "0002_broken.json: not valid JSON" in errors


def test_a_huge_file_is_refused_at_once(folder: Path) -> None:
    with (folder / "head.json").open("wb") as file:
        file.truncate(200_000_000)
    code, _, errors = compare(folder)
    assert code == 2
    assert "head.json: has 200 MB; allowed: 64 MB" in errors


def test_values_of_a_metric_have_one_unit_on_both_sides(folder: Path) -> None:
    head(folder, saturated__overlap=[metrics(slower=6.5)] * 6)
    row = next(line for line in compare(folder)[1].splitlines() if "saturated/overlap" in line and " ttft_mean" in line)
    assert row.count(" ms") == 2
    assert "1,500.000 ms" in row


def test_a_clock_reading_makes_no_other_machine_and_a_gpu_does(folder: Path) -> None:
    write_run(folder / "head.json", facts={"sm_clock_mhz": 1}, cases={c: [metrics()] * 6 for c in CASES})
    assert compare(folder)[0] == 0
    write_run(folder / "head.json", facts={"gpu": "NVIDIA H100"}, cases={c: [metrics()] * 6 for c in CASES})
    code, _, errors = compare(folder)
    assert code == 2
    assert "runs of unlike machines (cuda): gpu: 'NVIDIA H200' in base.json, 'NVIDIA H100' in head.json" in errors
    code, output, _ = compare(folder, "--across-machines")
    assert "× normal" in output
    assert "only ratios to normal of the same run are compared" in output


def test_a_test_file_in_the_place_of_a_result_is_refused(folder: Path) -> None:
    (folder / "test_x.py").write_text("def test_x(): pass\n")
    code, _, errors = reports(folder, "compare", "base.json", "test_x.py")
    assert code == 2
    assert "test_x.py: not valid JSON" in errors
    code, _, errors = reports(folder, "compare", "base.json", "")
    assert code == 2
    assert "HEAD: names no result" in errors
    assert reports(folder, "compare", "base.json")[0] == 2


def test_older_and_newer_files(folder: Path) -> None:
    """An older file lacks a metric: not available. A newer one is refused by name. Neither is a traceback."""
    cases = {c: [{k: v for k, v in metrics().items() if k != "launch_lead"}] * 6 for c in CASES}
    write_run(folder / "old.json", cases)
    head(folder)
    code, output, _ = reports(folder, "compare", "old.json", "head.json")
    assert code == 0, output
    assert "launch_lead: not available, an older suite wrote the base" in output
    code, output, _ = reports(folder, "compare", "head.json", "old.json")
    assert code == 1, "a metric that head no longer writes is no longer gated"
    assert "launch_lead of saturated/normal on cuda: not in the file in head" in output
    data = document(entry(c, [metrics()]) for c in CASES)
    data["benchmarks"][0]["extra_info"]["schema"] = 7
    (folder / "head.json").write_text(json.dumps(data))
    code, _, errors = compare(folder)
    assert code == 2
    assert "schema' is 7, newer than 1; update this suite" in errors


def test_zero_to_zero_is_equal_and_zero_to_something_has_an_absolute_limit(folder: Path) -> None:
    def idle(share: float) -> list[dict[str, Any]]:
        return [metrics(gpu_idle_share=share)] * 6

    write_run(folder / "base.json", {"saturated/overlap": idle(0.0)})
    for share, code in ((0.0, 0), (0.009, 0), (0.06, 1)):
        write_run(folder / "head.json", {"saturated/overlap": idle(share)})
        assert compare(folder)[0] == code, share


def test_undefined_metrics_are_left_out_and_never_nan(folder: Path) -> None:
    head(folder)
    code, output, _ = compare(folder, "--json", "out.json")
    assert code == 0
    assert "itl_mean_ns" not in output
    text = (folder / "out.json").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text


def test_one_round_of_a_real_device_decides_nothing_and_one_virtual_round_does(folder: Path) -> None:
    for device, code in (("cuda", 3), ("virtual", 0)):
        write_run(folder / "base.json", {c: [metrics()] for c in CASES}, device=device)
        write_run(folder / "head.json", {c: [metrics()] for c in CASES}, device=device)
        found, output, _ = compare(folder)
        assert found == code
        assert ("1 + 1 samples: 2 + 2 are the least" in output) == (device == "cuda")


def test_a_loss_in_ttft_is_seen_though_the_run_takes_as_long(folder: Path) -> None:
    """The metric that matters is not the time that pytest-benchmark looks at."""
    head(folder, saturated__overlap=[metrics(ttft_mean_ns=200_000_000.0 * 9 + i) for i in range(6)])
    code, output, _ = compare(folder)
    assert code == 1
    assert "9 OK" in output or "REGRESSION" in output


def test_limits_are_decimal_relative_or_absolute_and_per_case(folder: Path) -> None:
    head(folder, saturated__overlap=noisy(6, noise=0.0005, slower=0.1, seed=9))
    rules = (ROOT / "perf" / "gate.toml").read_text()
    loose = '\n[[override]]\ncase = "saturated/*"\nmetric = "{}"\nrelative = 0.125\nvisible = 0.2\n'
    (folder / "mine.toml").write_text(rules + loose.format("ttft_mean_ns") + loose.format("throughput_rps"))
    assert compare(folder)[0] == 1
    assert compare(folder, "--rules", "mine.toml")[0] == 0


def test_output_that_cannot_be_written_is_one_line(folder: Path) -> None:
    head(folder)
    (folder / "file").write_text("")
    code, _, errors = compare(folder, "--markdown", "file/out.md")
    assert code == 2
    assert "file/out.md: not written: " in errors


def test_names_with_markup_are_escaped_in_markdown(folder: Path) -> None:
    cases = {"a|b`<script>/normal": [metrics()] * 6}
    write_run(folder / "base.json", cases)
    write_run(folder / "head.json", cases)
    assert compare(folder, "--markdown", "out.md")[0] == 0
    assert "a\\|b\\`&lt;script&gt;/normal" in (folder / "out.md").read_text()
    assert "<script>" not in (folder / "out.md").read_text()


def test_a_comment_has_room_on_github(folder: Path) -> None:
    cases = {f"experiment_{i}/normal": [metrics()] * 3 for i in range(200)}
    write_run(folder / "base.json", cases)
    write_run(folder / "head.json", cases)
    compare(folder, "--markdown", "out.md")
    text = (folder / "out.md").read_text()
    assert 50_000 < len(text) < 65_536
    assert "more, for which a comment has no room: see --json." in text
    assert text.endswith("</details>\n")


def test_exact_values_that_are_equal_are_counted_and_not_listed(folder: Path) -> None:
    for name in ("base", "head"):
        write_run(folder / f"{name}.json", {c: [metrics()] for c in CASES}, device="virtual")
    code, output, _ = compare(folder)
    assert code == 0
    assert output.startswith("48 rows are exact and equal"), "no table without rows"
    assert len(output.splitlines()) < 10
