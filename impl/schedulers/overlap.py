"""One CPU thread, two streams: while batch N runs, prepare and launch N+1 (article, sections 2 to 4).

Source: the step order of mini-sglang's overlap loop, as the article describes it.
"""

from __future__ import annotations

from impl.core import Flight
from impl.device.stream import Stream
from impl.engine import Engine


def overlap(engine: Engine) -> None:
    """Post-process each batch one step late, behind the launch of the next."""
    prepare, stream = engine.stream("scheduler"), engine.stream("engine")
    last: Flight | None = None
    while True:
        ongoing = step(engine, prepare, stream, last)
        if ongoing is None and last is None:
            return
        last = ongoing


def step(engine: Engine, prepare: Stream, stream: Stream, last: Flight | None) -> Flight | None:
    """Launch the next batch if there is one, then finish the last; return what is in flight now."""
    ongoing = None
    batch = engine.next_batch(wait=last is None)
    if batch is not None:
        engine.pre(batch, prepare)
        stream.wait_stream(prepare)
        ongoing = engine.launch(batch, stream)
    if last is not None:
        engine.synchronize(last)
        engine.post(last)
    return ongoing
