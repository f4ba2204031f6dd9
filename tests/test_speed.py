"""What `compare` and `html` cost for two files of 200 entries with 30 rounds each, as benchmarks.

The goals are 2 s and 10 s for the whole command. Machines are shared and differ, so what is asserted is a ratio to the
time that Python takes to parse the same files.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from reports.__main__ import main
from tests.results import noisy, write_run

NUM_EXPERIMENTS = 100
NUM_ROUNDS = 30
MOST_PARSINGS = {"compare": 150, "html": 300}
"""A command may cost as much as parsing its files this many times."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("speed")
    names = [f"e{i}/{scheduler}" for i in range(NUM_EXPERIMENTS) for scheduler in ("normal", "overlap")]
    return [
        write_run(
            folder / f"{seed}.json",
            {name: noisy(NUM_ROUNDS, noise=0.001, seed=seed + i) for i, name in enumerate(names)},
        )
        for seed in (0, 1000)
    ]


@pytest.mark.parametrize("command", ["compare", "html"])
def test_reading_deciding_and_drawing_costs_little_more_than_parsing(
    command: str, sides: list[Path], tmp_path: Path, benchmark: BenchmarkFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    base, head = map(str, sides)
    arguments = {"compare": ["compare", base, head], "html": ["html", head, "--base", base, "-o", str(tmp_path)]}[
        command
    ]
    times_s = []

    def measure() -> None:
        start_s = time.perf_counter()
        assert main(arguments) == 0
        times_s.append(time.perf_counter() - start_s)
        capsys.readouterr()

    benchmark.pedantic(measure, rounds=2, warmup_rounds=1)
    parsings = min(times_s) / time_of(lambda: [json.loads(path.read_text()) for path in sides])
    benchmark.extra_info["parsings"] = parsings
    assert parsings <= MOST_PARSINGS[command], f"{min(times_s):.2f} s"


def time_of(call: Callable[[], object]) -> float:
    """Return the seconds of the fastest of three calls."""
    times_s = []
    for _ in range(3):
        start_s = time.perf_counter()
        call()
        times_s.append(time.perf_counter() - start_s)
    return min(times_s)
