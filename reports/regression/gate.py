"""Base and head run alternately, pair by pair, until the data decides or the plan ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from impl.errors import RunInvalid
from reports.cases import split_case_id
from reports.files import FileError
from reports.regression.comparison import Comparison
from reports.regression.looks import Looks, is_over, undecided
from reports.regression.results import Key, ResultFile
from reports.regression.rules import Plan, Rules
from reports.regression.suite import Suite
from reports.wording import counted

MAX_ATTEMPTS = 3
"""Of a process whose runs are invalid because the machine is too busy."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Cases:
    """Node ids of both sides."""

    common: tuple[str, ...]
    """What is measured: on both sides, and of the plan's experiments."""
    only_base: tuple[str, ...]
    only_head: tuple[str, ...]


def match_cases(base: Sequence[str], head: Sequence[str], plan: Plan) -> Cases:
    """Match the cases of both sides; those outside the plan must match too, but are not measured.

    Raises:
        FileError: if an experiment of the plan is on neither side, or no case is on both.
    """
    experiments = {_experiment(node) for node in (*base, *head)}
    unknown = [name for name in plan.experiments if name not in experiments]
    if unknown:
        raise FileError(f"the gate's plan has the experiment {unknown[0]!r}, which neither commit has")
    on_both = set(base) & set(head)
    wanted = set(plan.experiments) or experiments
    common = tuple(node for node in head if node in on_both and _experiment(node) in wanted)
    if not common:
        raise FileError(f"no case of {', '.join(sorted(wanted))} is in both commits: nothing to compare")
    return Cases(
        common, tuple(node for node in base if node not in on_both), tuple(node for node in head if node not in on_both)
    )


def _name(node: str) -> str:
    """Return a case's node id without file and function."""
    return node.partition("[")[2].removesuffix("]")


def _experiment(node: str) -> str:
    return _name(node).partition("-")[0]


def run_gate(base: Suite, head: Suite, rules: Rules, folder: Path, progress: Progress) -> Comparison:
    """Measure both sides and decide.

    Args:
        base, head: the commits, checked out.
        rules: plan and thresholds.
        folder: where each process leaves its JSON.
        progress: called with a line of text.

    Raises:
        CasesFailed: if a case fails; see its message for the side.
        FileError: if a side cannot be measured.
    """
    plan = rules.plan(base.device)
    cases = match_cases(base.collect(), head.collect(), plan)
    progress(
        f"{len(cases.common)} cases on {base.device}, paired rounds a process: {plan.rounds}, "
        f"pairs of processes before each look: {' and '.join(map(str, plan.pairs))}"
    )
    pairs = _Pairs(base, head, plan.rounds, folder, progress)
    looks = Looks(rules, plan)
    nodes = cases.common
    for num_pairs in plan.pairs:
        pairs.extend(num_pairs, nodes)
        found = looks.look(pairs.base_files, pairs.head_files)
        progress(f"after {counted(num_pairs, 'pair')}: {found.sentence(allow_changed_cases=True)}")
        if is_over(found):
            break
        nodes = _nodes_of(cases.common, undecided(found))
    only_base, only_head = ([_name(node) for node in nodes] for nodes in (cases.only_base, cases.only_head))
    return replace(found, only_base=[*only_base, *found.only_base], only_head=[*only_head, *found.only_head])


def _nodes_of(nodes: Sequence[str], keys: set[Key]) -> tuple[str, ...]:
    """Return every case of the experiments that the keys belong to."""
    experiments = {split_case_id(key.case)[0] for key in keys}
    return tuple(node for node in nodes if _experiment(node) in experiments)


class _Pairs:
    """The pairs measured so far; in every second one head runs first."""

    def __init__(self, base: Suite, head: Suite, rounds: int, folder: Path, progress: Progress) -> None:
        self._suites = base, head
        self._rounds = rounds
        self._folder = folder
        self._progress = progress
        self.base_files: list[ResultFile] = []
        self.head_files: list[ResultFile] = []

    def extend(self, num_pairs: int, nodes: Sequence[str]) -> None:
        """Measure until there are so many pairs."""
        while len(self.base_files) < num_pairs:
            index = len(self.base_files)
            files = {}
            started = time.monotonic()
            for suite in self._suites if index % 2 == 0 else reversed(self._suites):
                output = self._folder / f"pair-{index + 1:02}-{suite.side}.json"
                files[suite.side] = self._measure(suite, nodes, output)
            self.base_files.append(files["base"])
            self.head_files.append(files["head"])
            took_s = time.monotonic() - started
            left = num_pairs - len(self.base_files)
            more = f", about {left * took_s:.0f} s to the next look" if left else ""
            self._progress(f"pair {index + 1} took {took_s:.1f} s{more}")

    def _measure(self, suite: Suite, nodes: Sequence[str], output: Path) -> ResultFile:
        """Measure one side; an invalid run is repeated, as it says nothing about the commit."""
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return suite.measure(nodes, self._rounds, output)
            except RunInvalid as error:
                self._progress(f"invalid, not slow; once more: {error}")
        try:
            return suite.measure(nodes, self._rounds, output)
        except RunInvalid as error:
            raise FileError(f"{error}; {MAX_ATTEMPTS} attempts were invalid; free the machine of other work") from error
