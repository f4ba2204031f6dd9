"""Which machines are alike enough for their times to be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.files import FileError
from reports.regression.results import ResultFile

IDENTITY: Mapping[str, tuple[str, ...]] = {
    "virtual": (),
    "cpu": ("processor", "system", "gil"),
    "cuda": ("gpu", "driver", "torch", "power_limit_w", "gil"),
}
"""Facts that must be equal, by device; momentary readings, such as a clock's, are not among them. Of the driver only
the major version counts."""


def identity(device: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that say which machine it is."""
    found = {name: facts.get(name) for name in IDENTITY.get(device, tuple(facts))}
    if found.get("driver"):
        found["driver"] = str(found["driver"]).partition(".")[0]
    return found


def differences(device: str, files: Sequence[ResultFile]) -> list[str]:
    """Return the facts in which runs differ, in words; empty if all are of like machines."""
    runs = [(file, identity(device, file.machines[device])) for file in files if device in file.machines]
    first_file, first = runs[0]
    return [
        f"{name}: {first[name]!r} in {first_file.path}, {other[name]!r} in {file.path}"
        for name in first
        for file, other in runs[1:]
        if other[name] != first[name]
    ]


def require_alike(
    files: Sequence[ResultFile], remedy: str = "--across-machines compares only ratios to normal"
) -> None:
    """Refuse runs of unlike machines; the remedy ends the message.

    Raises:
        FileError: naming the facts that differ.
    """
    for device in sorted({device for file in files for device in file.machines}):
        found = differences(device, files)
        if found:
            raise FileError(f"runs of unlike machines ({device}): {'; '.join(found[:3])}; {remedy}")


def require_known(files: Sequence[ResultFile]) -> None:
    """Refuse runs that do not say which GPU they are of: two unknown facts are not two equal ones.

    Raises:
        FileError: naming the fact.
    """
    for file in files:
        facts = identity("cuda", file.machines["cuda"]) if "cuda" in file.machines else {}
        unknown = [name for name, value in facts.items() if value is None]
        if unknown:
            raise FileError(
                f"{file.path}: field 'machine_info.overlap.cuda.{unknown[0]}' is unknown; record it again with "
                "nvidia-ml-py installed, or compare only ratios to normal with --across-machines"
            )
