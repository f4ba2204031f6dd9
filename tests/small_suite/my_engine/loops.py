"""A user's schedulers."""

from __future__ import annotations

from impl.engine import Engine
from impl.schedulers.normal import normal
from impl.schedulers.overlap import overlap  # noqa: F401 - a name that is taken


def mine(engine: Engine) -> None:
    """Serve every request."""
    normal(engine)


def loses(engine: Engine) -> None:
    """Forget every batch but the first."""
    stream = engine.stream("engine")
    while (batch := engine.next_batch()) is not None:
        if batch.id == 0:
            engine.pre(batch, stream)
            flight = engine.launch(batch, stream)
            engine.synchronize(flight)
            engine.post(flight)
