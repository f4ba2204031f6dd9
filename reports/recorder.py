"""Collects the records of a session: writes baselines, completes the benchmark JSON, prints the tables."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pytest

from impl.machines import why_no_cuda
from reports.article import read_article
from reports.baselines import Baselines, file_for
from reports.files import FileError
from reports.lab import MARKS
from reports.machine import commit, describe
from reports.records import NOTE, CaseRecord, ClaimRecord, PredictionRecord
from reports.summary import claim_table, prediction_table, user_table
from reports.tools import missing_tools
from reports.verdict import Verdict
from reports.wording import counted


class Recorder:
    """Registered as a plugin of its own; in an xdist run the main process's one sees all reports."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._failed: set[str] = set()
        self._cases: dict[tuple[str, str], CaseRecord] = {}
        self._claims: dict[tuple[str, str], ClaimRecord] = {}
        self._predictions: dict[tuple[str, str, str], PredictionRecord] = {}
        self._notes: list[str] = []
        self._is_interrupted = False
        self._has_failed_outside = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)
        if report.when != "teardown":
            return
        for name, value in report.user_properties:
            if name == CaseRecord.KEY:
                case = CaseRecord(**value)  # type: ignore[arg-type] # user properties are typed as objects
                self._cases[case.case, case.device] = case
            elif name == ClaimRecord.KEY:
                claim = ClaimRecord(**value)  # type: ignore[arg-type] # as above
                self._claims[claim.claim, claim.device] = claim
            elif name == PredictionRecord.KEY:
                made = PredictionRecord(**value)  # type: ignore[arg-type] # as above
                self._predictions[made.experiment, made.scheduler, made.device] = made
            elif name == NOTE:
                self._notes.append(str(value))

    def note(self, text: str) -> None:
        """Take a line for the end of the summary."""
        self._notes.append(text)

    def fail(self, text: str) -> None:
        """Take a line of something that failed outside of all tests: what they measured stands, and is written."""
        self.note(text)
        self._has_failed_outside = True

    def pytest_keyboard_interrupt(self) -> None:
        self._is_interrupted = True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Iterator[None]:
        # A wrapper, and the first: pytest-benchmark writes its files in a wrapper of its own, and fails in one.
        is_interrupted = exitstatus == pytest.ExitCode.INTERRUPTED or self._is_interrupted
        if is_interrupted:
            self._withhold_benchmark_files(session.config)
        yield
        is_worker = hasattr(session.config, "workerinput")
        if self._config.getoption("--update-baselines") is not None and not is_interrupted and not is_worker:
            self._finish_baselines(session)
        if self._has_failed_outside and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _finish_baselines(self, session: pytest.Session) -> None:
        # Only now is it known how the session ends; the summary has been printed already.
        is_complete, notes = self._update_baselines(session.exitstatus)
        if not is_complete and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            for note in notes:
                terminal.write_line(note)

    def _withhold_benchmark_files(self, config: pytest.Config) -> None:
        """Keep pytest-benchmark from writing half a result over a whole one; it has no switch for that."""
        benchmarks = getattr(config, "_benchmarksession", None)
        if benchmarks is not None and (benchmarks.json or benchmarks.save or benchmarks.autosave):
            benchmarks.json = benchmarks.save = benchmarks.autosave = None
            self._notes.append("interrupted: no benchmark JSON was written")

    def _update_baselines(self, status: int) -> tuple[bool, list[str]]:
        """Write what ran if all of the session went well.

        Returns:
            Whether everything that should be written was, and what to tell the user.
        """
        if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            what = f"{counted(len(self._failed), 'test')} failed" if self._failed else f"pytest ends with {int(status)}"
            return False, [f"baselines not updated: {what}, and a failing run never becomes a baseline"]
        notes = []
        devices = self._devices()
        is_complete = True
        for device in sorted(devices):
            try:
                notes.append(self._update_device(device))
            except FileError as error:
                notes.append(f"baseline not updated: {error}")
                is_complete = False
        if not devices:
            notes.append("baselines not updated: no case and no claim ran")
        return is_complete, notes

    def _devices(self) -> set[str]:
        """Return the devices on which anything ran."""
        ran = (record for record in self._claims.values() if record.verdict != Verdict.NOT_RUN.value)
        return {case.device for case in self._cases.values()} | {claim.device for claim in ran}

    def _update_device(self, device: str) -> str:
        facts = describe(device)
        baselines = Baselines.read(file_for(device, facts.get("gpu")))
        cases = {r.case: r.metrics for r in self._cases.values() if r.device == device and not r.is_user}
        claims = {r.claim: r.value for r in self._claims.values() if r.device == device and r.value is not None}
        changed = sum(metrics != baselines.cases.get(name) for name, metrics in cases.items())
        changed_claims = sum(value != baselines.claims.get(name) for name, value in claims.items())
        if changed or changed_claims:
            baselines.machine = facts
            baselines.cases.update(cases)
            baselines.claims.update(claims)
            baselines.history.append(
                {
                    "date": datetime.now(UTC).date().isoformat(),
                    "commit": commit(),
                    "reason": self._config.getoption("--update-baselines"),
                    "cases": changed,
                    "claims": changed_claims,
                }
            )
            baselines.write()
        return (
            f"{baselines.path.name}: {len(cases)} cases and {len(claims)} claims ran and passed, "
            f"{changed} and {changed_claims} of them new or changed"
        )

    def pytest_benchmark_update_machine_info(self, config: pytest.Config, machine_info: dict[str, Any]) -> None:
        # Asked at the start too, to compare with saved runs: so it must not depend on what has run.
        asked = [device for device, mark in MARKS.items() if mark in config.option.markexpr] or ["virtual"]
        # The words of -m may leave a device out as well as ask for it; a GPU that is not there has no facts.
        devices = [device for device in asked if device != "cuda" or why_no_cuda() is None]
        machine_info["overlap"] = {device: describe(device) for device in devices}

    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        """Put the outcome of every claim beside the cases that it rests on, failures and predictions at the end."""
        output_json["overlap_failed"] = sorted(self._failed)
        output_json["overlap_predictions"] = [asdict(record) for record in self._predictions.values()]
        for benchmark in output_json["benchmarks"]:
            info = benchmark["extra_info"]
            info["claims"] = [
                {
                    "claim": r.claim,
                    "section": r.section,
                    "verdict": r.verdict,
                    "reason": r.reason,
                    "figure": r.value,
                    "figure_name": r.figure,
                    "unit": r.unit,
                }
                for r in self._claims.values()
                if r.device == info.get("device") and info.get("experiment") in r.experiments
            ]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        keys = (*self._claims, *self._cases, *self._predictions)
        for device in sorted({device for *_, device in keys}):
            self._print_device(terminalreporter, device)
        devices = self._devices()
        missing = missing_tools(devices, wants_cupti=self._config.option.torch_profiler)
        for note in dict.fromkeys((*self._notes, *missing)):
            terminalreporter.write_line(note)

    def _print_device(self, terminal: pytest.TerminalReporter, device: str) -> None:
        claims = [record for record in self._claims.values() if record.device == device]
        cases = [record for record in self._cases.values() if record.device == device]
        gpu = describe(device).get("gpu") if any(r.verdict != Verdict.NOT_RUN.value for r in claims) or cases else None
        try:
            baselines = Baselines.read(file_for(device, gpu))
            article = read_article().claims
        except FileError as error:
            terminal.write_line(str(error), red=True)
            return
        terminal.ensure_newline()
        width = max(100, shutil.get_terminal_size().columns)
        predictions = [record for record in self._predictions.values() if record.device == device]
        text = claim_table(device, claims, article, baselines, width) if claims else ""
        if predictions:
            text += "\n" + prediction_table(device, predictions, width)
        users = [record for record in cases if record.is_user]
        if users:
            text += "\n" + user_table(device, users, width)
        for line in text.splitlines():
            terminal.write_line(line.rstrip())
        verdicts = Counter(record.verdict for record in claims)
        compared = Counter(record.baseline for record in cases)
        for title, counts in (("claims", verdicts), ("cases against the baseline", compared)):
            if counts:
                terminal.write_line(
                    f"{title}: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
                )
        if cases and baselines.is_empty and device != "cpu":
            terminal.write_line(f"no baseline for {gpu or device}: claims were asserted, cases were not compared")
