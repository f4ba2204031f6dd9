"""The lab of a session: machines, and each experiment measured once however many tests ask for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil

from impl.costs import Cost
from impl.device.protocol import DeviceSettings
from impl.engine import Scheduler
from impl.errors import RunFailed
from impl.machines import CpuMachine, CudaMachine, Machine, VirtualMachine, why_no_cuda
from impl.workload import NS_PER_S, Workload
from reports.cases import Experiment
from reports.claims import Claim, Evidence
from reports.gpu_state import Sampler, why_no_nvml
from reports.machine import gpu_uuid, has_gil
from reports.measure import Rounds, measure_rounds
from reports.prediction import Prediction, predict
from reports.verdict import Verdict

MACHINES: dict[str, Callable[[], Machine]] = {"virtual": VirtualMachine, "cpu": CpuMachine, "cuda": CudaMachine}
MARKS = {"cpu": "cpu", "cuda": "gpu"}
"""Devices that -m has to ask for, and the pytest marker that does; without one, only virtual tests run."""
NUM_WARM_UP_REQUESTS = 3
WORTH_SAYING_S = 5
"""From so many seconds on, an experiment is announced with the time that its arrivals alone take."""
EXTENSIONS = (1 / 3, 2 / 3, 1.0)
"""An undecided claim gets rounds one step after the other: so many times its own number, rounded up. One more round
after two or three narrows the interval most.
"""
DISAGREEMENT = 0.05
"""If an experiment has two rounds, and a scheduler's total or mean TTFT differ by more, it gets a third: the median of
two is their mean, and takes half of what a process beside added to one of them.
"""


class Lab:
    """Runs experiments and judges claims.

    Args:
        user_schedulers: schedulers that join every experiment that is open to them.
        progress: called with a line of text before long work.
        num_rounds: paired rounds where time is real, in place of each experiment's own number.
    """

    def __init__(
        self,
        user_schedulers: Mapping[str, Scheduler],
        progress: Callable[[str], None],
        *,
        num_rounds: int | None = None,
    ) -> None:
        self._user_schedulers = user_schedulers
        self._progress = progress
        self._num_rounds = num_rounds
        self._machines: dict[str, Machine] = {}
        self._sampler: Sampler | None = None
        self._rounds: dict[tuple[str, str], Rounds] = {}
        self._warmed_up: set[tuple[str, DeviceSettings, Cost]] = set()
        """Machine, device settings and copy cost of the warm-ups done: what decides which resources a device makes."""

    def machine(self, device: str) -> Machine:
        """Return a device's machine; the first call makes it.

        Raises:
            DeviceUnavailable: if the device cannot be used here.
        """
        if device not in self._machines:
            if device == "cuda" and why_no_cuda() is None:
                self._progress("calibrating forwards on the GPU")
            self._machines[device] = MACHINES[device]()
            if device == "cuda" and why_no_nvml() is None:
                self._sampler = Sampler(gpu_uuid())
        return self._machines[device]

    def close(self) -> None:
        """End what runs beside the lab, and tell if it had ended before."""
        if self._sampler is not None:
            reason = self._sampler.why_ended()
            if reason is not None:
                self._progress(f"no SM clock, power and throttling: {reason}")
            self._sampler.close()
            self._sampler = None

    def predictions(self, experiment: Experiment, device: str) -> tuple[list[Prediction], dict[str, RunFailed]]:
        """Return what the virtual device predicts for an experiment on a real one, beside the measurement, and the
        errors of schedulers that failed in it.
        """
        return predict(self.rounds(experiment, device), self.schedulers(experiment), self.machine(device))

    def rounds(self, experiment: Experiment, device: str) -> Rounds:
        """Return an experiment's rounds, measured at the first call."""
        key = experiment.id, device
        if key not in self._rounds:
            machine = self.machine(device)
            if not machine.is_exact:
                self._progress(f"{experiment.id} on {device}: {self._announced(experiment)}")
                self._warm_up(experiment, machine)
            rounds = Rounds(experiment.on(machine))
            self._extend(rounds, experiment, machine, 1 if machine.is_exact else self._real_rounds(experiment))
            if self._num_rounds is None and _disagree(rounds):
                self._progress(f"{experiment.id} on {device}: its two rounds disagree, a third decides")
                self._extend(rounds, experiment, machine, 1)
            self._rounds[key] = rounds  # only once it is complete
        return self._rounds[key]

    def _announced(self, experiment: Experiment) -> str:
        """Say how much will be measured where time is real, and how long it takes at least if that is long."""
        num_rounds, scale = self._real_rounds(experiment), experiment.real_scale
        last_ns = scale * experiment.scenario.workload.requests[-1].arrival_ns
        least_s = last_ns / NS_PER_S * len(self.schedulers(experiment)) * num_rounds
        parts = [f"{num_rounds} paired rounds"]
        if scale != 1:
            parts.append(f"all times × {scale:g}")
        if least_s >= WORTH_SAYING_S:
            parts.append(f"at least {least_s:.0f} s")
        return ", ".join(parts)

    def _warm_up(self, experiment: Experiment, machine: Machine) -> None:
        """Run an experiment's first requests once and discard the result, unless settings and copy were used before: a
        device makes streams, kernels and copy buffers at first use.
        """
        scenario = experiment.on(machine)
        needs = machine.name, scenario.settings, scenario.costs.copy
        if needs in self._warmed_up:
            return
        few = replace(scenario, workload=Workload(scenario.workload.requests[:NUM_WARM_UP_REQUESTS]))
        name, scheduler = next(iter(experiment.schedulers.items()))
        rounds = Rounds(few)
        measure_rounds(rounds, {name: scheduler}, machine, num_rounds=1)
        if not rounds.failures:
            self._warmed_up.add(needs)

    def schedulers(self, experiment: Experiment) -> dict[str, Scheduler]:
        """Return an experiment's schedulers by name, with the users' that join it."""
        users = self._user_schedulers if experiment.is_open_to_users else {}
        return {**experiment.schedulers, **users}

    def _real_rounds(self, experiment: Experiment) -> int:
        return self._num_rounds or experiment.real_rounds

    def _extend(self, rounds: Rounds, experiment: Experiment, machine: Machine, num_rounds: int) -> None:
        """Add rounds to those of an experiment."""
        monitor = self._sampler if machine.name == "cuda" else None
        measure_rounds(rounds, self.schedulers(experiment), machine, num_rounds=num_rounds, monitor=monitor)

    def judge(self, claim: Claim, device: str) -> Evidence:
        """Judge a claim; where time is real, it gets two rounds at least, and an undecided one more."""
        if self.machine(device).is_exact:
            return self._judge_once(claim, device)
        for experiment in claim.experiments:
            if self.rounds(experiment, device).num_rounds < 2:
                own = self._real_rounds(experiment)
                self._extend(self.rounds(experiment, device), experiment, self.machine(device), own)
        evidence = self._judge_once(claim, device)
        for share in EXTENSIONS:
            if evidence.verdict is not Verdict.UNDECIDED:
                break
            for experiment in claim.experiments:
                more = ceil(share * self._real_rounds(experiment))
                self._extend(self.rounds(experiment, device), experiment, self.machine(device), more)
            evidence = self._judge_once(claim, device)
        return evidence

    def _judge_once(self, claim: Claim, device: str) -> Evidence:
        rounds = {experiment.id: self.rounds(experiment, device) for experiment in claim.experiments}
        evidence = Evidence(device, rounds, has_gil=device == "virtual" or has_gil())
        claim.judge(evidence)
        return evidence


def _disagree(rounds: Rounds) -> bool:
    """Return whether there are two rounds, and some scheduler's differ by more than `DISAGREEMENT`."""
    if rounds.num_rounds != 2:
        return False
    pairs = [rounds.metric(name, each) for each in rounds.results for name in ("total_ns", "ttft_mean_ns")]
    return any(max(pair) > (1 + DISAGREEMENT) * min(pair) for pair in pairs)


def judge_broken(claim: Claim, device: str) -> Evidence:
    """Judge a claim with its planted fault in place."""
    experiments = [claim.broken.apply(experiment) for experiment in claim.experiments]
    lab = Lab({}, lambda text: None)
    return lab.judge(replace(claim, experiments=tuple(experiments)), device)
