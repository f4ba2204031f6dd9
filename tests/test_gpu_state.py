"""The GPU's state during runs, from samples made up here; and the process that samples, with an NVML made up here."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from impl.errors import RunInvalid
from impl.machines import CpuMachine, VirtualMachine
from impl.schedulers.normal import normal
from impl.schedulers.overlap import overlap
from reports.cases import Experiment
from reports.gpu_state import GpuState, Sample, Sampler, summarize, why_no_nvml
from reports.lab import Lab
from reports.measure import Rounds, measure_rounds
from reports.tools import missing_tools
from tests.build import scenario, stages

PAIR = {"normal": normal, "overlap": overlap}
CAP, IDLE = 0x04, 0x01
COOL = GpuState(100, 1980.0, 1980, 500.0, 0.0, {})
HOT = GpuState(100, 1500.0, 1200, 700.0, 0.4, {"software power cap": 0.4})
BRIEF = GpuState(100, 1979.0, 1900, 650.0, 0.05, {"software power cap": 0.05})

FAKE_NVML = """
class NVMLError(Exception):
    pass

NVML_CLOCK_SM = 1
count = 0
print("a notice of the library")
print()

def nvmlInit(): pass
def nvmlDeviceGetHandleByUUID(uuid):
    assert uuid == "GPU-1"
    return uuid
def nvmlDeviceGetClockInfo(gpu, kind):
    global count
    count += 1
    return 1000 + count
def nvmlDeviceGetPowerUsage(gpu): return 300_000
def nvmlDeviceGetCurrentClocksEventReasons(gpu): return 0x04
"""


class Planned:
    """A monitor that tells one planned state after the other."""

    def __init__(self, *states: GpuState | None) -> None:
        self.left = list(states)
        self.asked: list[tuple[int, int]] = []
        self.num_closed = 0

    def state(self, start_ns: int, end_ns: int) -> GpuState | None:
        self.asked.append((start_ns, end_ns))
        return self.left.pop(0)

    def why_ended(self) -> None:
        """It still samples."""

    def close(self) -> None:
        self.num_closed += 1


def measured(num_rounds: int, *states: GpuState | None) -> tuple[Rounds, Planned]:
    monitor, rounds = Planned(*states), Rounds(scenario())
    measure_rounds(rounds, PAIR, VirtualMachine(), num_rounds=num_rounds, monitor=monitor)
    return rounds, monitor


def test_samples_become_means_and_shares_of_reasons_that_slow_a_gpu_down() -> None:
    samples = [Sample(0, 1980, 400_000, IDLE), Sample(1, 1000, 600_000, CAP | 0x40), Sample(2, 1980, 500_000, CAP)]
    state = summarize(samples)
    assert state == GpuState(
        3,
        pytest.approx(1653.33, abs=0.01),
        1000,
        500.0,
        2 / 3,
        {"software power cap": 2 / 3, "hardware thermal slowdown": 1 / 3},
    )
    assert state is not None
    assert state.throttling == "software power cap in 67% and hardware thermal slowdown in 33% of 3 samples"
    assert summarize([]) is None
    idle = summarize(samples[:1])
    assert idle is not None
    assert idle.throttling is None, "an idle GPU lowers its clock without being slowed down"


def test_each_run_is_asked_for_by_its_own_times_and_keeps_its_state() -> None:
    rounds, monitor = measured(2, COOL, BRIEF, BRIEF, COOL)
    assert rounds.states == {"normal": [COOL, COOL], "overlap": [BRIEF, BRIEF]}, "the second round ran in reverse"
    assert not rounds.left_out
    for (start_ns, end_ns), name in zip(monitor.asked, ("normal", "overlap", "overlap", "normal"), strict=True):
        assert end_ns - start_ns == rounds.of(name)[0].metrics.summary.total_ns


def test_a_throttled_round_is_left_out_whole_and_repeated() -> None:
    rounds, _ = measured(2, COOL, COOL, COOL, HOT, COOL, COOL)
    assert [len(rounds.of(name)) for name in PAIR] == [2, 2]
    assert rounds.states == {"normal": [COOL] * 2, "overlap": [COOL] * 2}
    assert rounds.left_out == ["GPU throttled during normal: software power cap in 40% of 100 samples"]


def test_a_gpu_that_throttles_in_every_attempt_fails_the_experiment_with_the_reason() -> None:
    rounds, _ = measured(1, *[COOL, HOT] * 3)
    for name in PAIR:
        with pytest.raises(RunInvalid, match=r"software power cap in 40% .* in each of 3 attempts; cool the GPU"):
            rounds.of(name)


def test_shares_of_several_reasons_add_up_to_any() -> None:
    samples = [Sample(index, 1980, 0, 1 << (2 + index % 2)) for index in range(8)] + [Sample(9, 1980, 0, IDLE)] * 92
    state = summarize(samples)
    assert state is not None
    assert state.throttled == {"software power cap": 0.04, "hardware slowdown": 0.04}
    assert state.throttling == "software power cap in 4% and hardware slowdown in 4% of 100 samples"


@pytest.mark.parametrize(
    ("bit", "reason"),
    [
        (0x01, None),
        (0x02, None),
        (0x04, "software power cap"),
        (0x08, "hardware slowdown"),
        (0x10, None),
        (0x20, "software thermal slowdown"),
        (0x40, "hardware thermal slowdown"),
        (0x80, "hardware power brake"),
        (0x100, None),
    ],
)
def test_each_bit_has_the_meaning_that_nvml_gives_it(bit: int, reason: str | None) -> None:
    state = summarize([Sample(0, 1980, 0, bit)])
    assert state is not None
    assert state.throttled_share == (reason is not None)
    assert state.throttled == ({} if reason is None else {reason: 1.0})


def test_rounds_that_were_good_before_the_gpu_throttled_still_stand() -> None:
    rounds, _ = measured(2, *[COOL, COOL], *[COOL, HOT] * 3)
    assert [len(rounds.of(name)) for name in PAIR] == [1, 1]
    assert len(rounds.left_out) == 3


def test_a_short_run_with_a_sample_or_two_says_nothing_about_throttling() -> None:
    state = summarize([Sample(0, 1000, 0, CAP), Sample(1, 1000, 0, CAP)])
    assert state is not None
    assert state.throttled_share == 1.0
    assert state.throttling is None


def test_without_a_sample_a_run_counts_and_its_place_is_kept() -> None:
    rounds, _ = measured(2, None, COOL, COOL, COOL)
    assert len(rounds.of("normal")) == 2
    assert rounds.states == {"normal": [None, COOL], "overlap": [COOL, COOL]}


def test_the_sampling_process_tells_what_it_saw_between_two_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml.py").write_text(FAKE_NVML)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    sampler = Sampler("GPU-1")
    try:
        deadline_s = time.monotonic() + 30
        while sampler.state(0, time.perf_counter_ns()) is None:
            assert time.monotonic() < deadline_s, "no sample within 30 s"
            time.sleep(0.05)
        start_ns = time.perf_counter_ns()
        time.sleep(0.3)
        end_ns = time.perf_counter_ns()
        time.sleep(0.1)
        state = sampler.state(start_ns, end_ns)
        assert state is not None
        assert 3 <= state.num_samples <= 31, "0.3 s of one every 0.01 s or a little more"
        assert state.power_w == 300.0
        assert state.throttled == {"software power cap": 1.0}
        assert sampler.state(0, start_ns) is None, "what was before the last question is forgotten"
    finally:
        sampler.close()


def test_a_line_that_is_not_written_to_its_end_is_read_once_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml.py").write_text(f"""
import time
from pathlib import Path

print("10 1980 300000 0", "20 1000 500000 6", sep="\\n", end="", flush=True)
while not Path({str(tmp_path / "go on")!r}).exists():
    time.sleep(0.01)
print("4", flush=True)
time.sleep(99)
""")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    sampler = Sampler("GPU-1")
    try:
        assert sampler.state(0, 100) == GpuState(1, 1980.0, 1980, 300.0, 0.0, {})
        (tmp_path / "go on").touch()
        deadline_s = time.monotonic() + 30
        while (state := sampler.state(0, 100)) is not None and state.num_samples == 1:
            assert time.monotonic() < deadline_s, "no second sample within 30 s"
            time.sleep(0.01)
        assert state == GpuState(2, 1490.0, 1000, 400.0, 0.5, {"hardware thermal slowdown": 0.5}), "64, and never 6"
    finally:
        sampler.close()


def test_a_process_that_cannot_sample_gives_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('none here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    sampler = Sampler("GPU-1")
    deadline_s = time.monotonic() + 30
    while (reason := sampler.why_ended()) is None:
        assert time.monotonic() < deadline_s, "it still runs after 30 s"
        time.sleep(0.02)
    assert reason == "sampling ended with 1: ImportError: none here"
    assert sampler.state(0, time.perf_counter_ns()) is None
    sampler.close()


def test_what_is_missing_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "pip install nvidia-ml-py" in (why_no_nvml() or "")
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert missing_tools({"virtual"}, wants_cupti=False) == []
    assert missing_tools({"virtual"}, wants_cupti=True) == [
        "--torch-profiler recorded nothing: no case ran on a GPU (-m gpu)"
    ]
    told = missing_tools({"cuda", "virtual"}, wants_cupti=True)
    assert [line.split(":")[0] for line in told] == [
        "no NVTX ranges",
        "no SM clock, power and throttling",
        "--torch-profiler recorded nothing",
    ]


def test_a_lab_whose_sampler_has_died_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('none here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    told: list[str] = []
    lab = Lab({}, told.append)
    lab._sampler = Sampler("GPU-1")
    lab._sampler._process.wait(timeout=30)
    lab.close()
    assert told == ["no SM clock, power and throttling: sampling ended with 1: ImportError: none here"]


def test_a_process_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + FAKE_NVML
    (tmp_path / "pynvml.py").write_text(
        hanging.replace("return 300_000", "import time; print(flush=True); time.sleep(99)")
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("reports.gpu_state.MAX_END_S", 0.2)
    sampler = Sampler("GPU-1")
    started_s = time.monotonic()
    sampler.close()
    assert time.monotonic() - started_s < 10
    assert sampler._process.wait(timeout=10) != 0


def test_a_lab_samples_its_gpu_until_it_closes_and_every_entry_keeps_what_it_saw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Planned(*[COOL] * 4)
    monkeypatch.setattr("reports.lab.MACHINES", {"cuda": NamedCuda})
    monkeypatch.setattr("reports.lab.why_no_nvml", lambda: None)
    monkeypatch.setattr("reports.lab.gpu_uuid", lambda: "GPU-1")
    monkeypatch.setattr("reports.lab.Sampler", lambda uuid: made)
    told: list[str] = []
    lab = Lab({}, told.append, num_rounds=2)
    rounds = lab.rounds(Experiment(scenario(costs=stages(0.1, 0.2, 0.1)), PAIR, section="1", real_scale=1.0), "cuda")
    assert rounds.states == {"normal": [COOL] * 2, "overlap": [COOL] * 2}
    assert not made.left, "the warm-up is not asked about"
    assert made.num_closed == 0
    told.clear()
    lab.close()
    lab.close()
    assert made.num_closed == 1
    assert told == [], "it sampled to the end"


class NamedCuda(CpuMachine):
    """Real time, under the GPU's name."""

    name = "cuda"
