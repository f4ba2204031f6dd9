"""What each test leaves for the summary, the baselines and the benchmark JSON, as plain data.

Records travel as pytest's user properties, so that they reach the main process from xdist's workers too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

CASE, CLAIM, PREDICTION, NOTE = "overlap_case", "overlap_claim", "overlap_prediction", "overlap_note"


@dataclass(frozen=True, slots=True)
class CaseRecord:
    """One scheduler on one experiment and device."""

    case: str
    device: str
    baseline: str
    """What the comparison with the baseline said, in a word or two."""
    is_user: bool
    throughput_gain: float | None
    ttft_change: float
    """Against the experiment's reference scheduler, as means over paired rounds."""
    metrics: dict[str, float | None]
    machine: dict[str, Any]

    def as_property(self) -> tuple[str, dict[str, Any]]:
        """Return the record as a user property."""
        return CASE, asdict(self)


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """One claim on one device."""

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

    def as_property(self) -> tuple[str, dict[str, Any]]:
        """Return the record as a user property."""
        return CLAIM, asdict(self)


@dataclass(frozen=True, slots=True)
class PredictionRecord:
    """The virtual device's prediction for one experiment and scheduler on a real device."""

    experiment: str
    scheduler: str
    device: str
    throughput_rps: float
    throughput_measured_rps: float
    throughput_error: float
    ttft_ns: float
    ttft_measured_ns: float
    ttft_error: float

    def as_property(self) -> tuple[str, dict[str, Any]]:
        """Return the record as a user property."""
        return PREDICTION, asdict(self)
