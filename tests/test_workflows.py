"""The workflows call commands and options that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reports.__main__ import make_parser

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
COMMAND = re.compile(r"-m reports (\S+)((?:\s+(?:\\\s+)?\S+)*?)(?=\n\s*- |\n\s*[a-z]+:|\Z)")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_command_can_be_parsed(path: Path) -> None:
    found = COMMAND.findall(path.read_text())
    assert found
    for command, rest in found:
        words = [word.strip("\"'") for word in rest.replace("\\", " ").split()]
        make_parser().parse_args([command, *words])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_the_gate_compares_with_where_the_branch_began(path: Path) -> None:
    text = path.read_text()
    assert 'BASE=$(git merge-base HEAD "$TARGET") &&' in text
    assert text.count("github.base_ref") == 1, "nothing else is compared with the target's newest commit"
    assert "fetch-depth: 0" in text


def test_there_is_one_for_every_push_and_one_for_the_gpu() -> None:
    assert [path.name for path in WORKFLOWS] == ["cpu.yml", "gpu.yml"]
    gpu = WORKFLOWS[1].read_text()
    assert "continue-on-error" not in gpu, "anything but 0 fails the job"
    assert "reports gate" in gpu
