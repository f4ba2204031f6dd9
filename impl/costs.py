"""How long each stage of a step takes, as a function of the batch, and what the host does meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from impl.checks import nanoseconds, require_positive, require_whole
from impl.core import Batch

BatchTime = Callable[[Batch], int]
"""Nanoseconds that a batch takes."""


class WorkKind(Enum):
    """What a host stage does while it lasts."""

    SLEEP = "sleep"
    """Waits (input, output); needs neither a core nor the GIL."""
    SPIN = "spin"
    """Computes in Python; holds the GIL."""
    NATIVE = "native"
    """Computes in a library that releases the GIL."""


@dataclass(frozen=True, slots=True)
class Cost:
    """A time linear in the batch: fixed + per_request · size + per_token · tokens, in nanoseconds."""

    fixed_ns: int = 0
    per_request_ns: int = 0
    per_token_ns: int = 0

    def __post_init__(self) -> None:
        for name in ("fixed_ns", "per_request_ns", "per_token_ns"):
            require_whole(name, getattr(self, name), at_least=0, unit="nanoseconds")

    def __call__(self, batch: Batch) -> int:
        return self.fixed_ns + self.per_request_ns * len(batch.items) + self.per_token_ns * batch.num_tokens

    def scaled(self, factor: float) -> Cost:
        """Return this cost with every term multiplied by `factor`."""
        return Cost(
            round(self.fixed_ns * factor), round(self.per_request_ns * factor), round(self.per_token_ns * factor)
        )


def cost_ms(fixed: float = 0.0, *, per_request: float = 0.0, per_token: float = 0.0) -> Cost:
    """Make a cost from milliseconds.

    Raises:
        SettingError: for negative or non-finite values.
    """
    return Cost(
        nanoseconds("fixed", fixed), nanoseconds("per_request", per_request), nanoseconds("per_token", per_token)
    )


ZERO = Cost()


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of every stage of a step.

    `launch` is modelled host time inside the launch, in addition to what a real device's launch takes.
    """

    pre: Cost = ZERO
    launch: Cost = ZERO
    forward: Cost = ZERO
    copy: Cost = ZERO
    post: Cost = ZERO
    host_work: WorkKind = WorkKind.SLEEP
    """Kind of work that pre and post do."""

    def scaled(self, factor: float) -> Costs:
        """Return these costs with every time multiplied by `factor` (no unit, above 0)."""
        require_positive("scale", factor, unit="times the original time")
        return replace(
            self,
            pre=self.pre.scaled(factor),
            launch=self.launch.scaled(factor),
            forward=self.forward.scaled(factor),
            copy=self.copy.scaled(factor),
            post=self.post.scaled(factor),
        )
