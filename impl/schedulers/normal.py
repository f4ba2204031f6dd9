"""One step after the other: pre, launch, wait, post (article, section 4)."""

from __future__ import annotations

from impl.engine import Engine


def normal(engine: Engine) -> None:
    """Run every batch to its end before the next one is taken."""
    stream = engine.stream("engine")
    while (batch := engine.next_batch()) is not None:
        engine.pre(batch, stream)
        flight = engine.launch(batch, stream)
        engine.synchronize(flight)
        engine.post(flight)
