"""What each test leaves for the summary, the baselines and the benchmark JSON, as plain data.

Records travel as pytest's user properties, so that they reach the main process from xdist's workers too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

NOTE = "overlap_note"
"""Key of a line of text for the end of the session."""


@dataclass(frozen=True, slots=True)
class Record:
    """What all records share: the key of their user property."""

    KEY: ClassVar[str]

    def as_property(self) -> tuple[str, dict[str, Any]]:
        """Return the record as a user property."""
        return self.KEY, asdict(self)


@dataclass(frozen=True, slots=True)
class CaseRecord(Record):
    """One scheduler on one experiment and device."""

    KEY = "overlap_case"

    case: str
    device: str
    baseline: str
    """What the comparison with the baseline said, in a word or two."""
    is_user: bool
    throughput_gain: float | None
    ttft_change: float
    """Against the experiment's reference scheduler, as means over paired rounds."""
    metrics: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class ClaimRecord(Record):
    """One claim on one device."""

    KEY = "overlap_claim"

    claim: str
    device: str
    section: str
    verdict: str
    reason: str
    figure: str
    """Name of the figure that the table shows."""
    unit: str
    value: float | None
    experiments: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PredictionRecord(Record):
    """The virtual device's prediction for one experiment and scheduler on a real device."""

    KEY = "overlap_prediction"

    experiment: str
    scheduler: str
    device: str
    throughput_rps: float
    throughput_measured_rps: float
    throughput_spread: float
    throughput_error: float
    ttft_ns: float
    ttft_measured_ns: float
    ttft_spread: float
    ttft_error: float
