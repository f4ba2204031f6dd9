"""Loops of threads that several schedulers share."""

from __future__ import annotations

from impl.core import Batch, Flight
from impl.device.stream import Stream
from impl.engine import Engine
from impl.runtime.protocol import Queue


def launch_loop(
    engine: Engine, prepare: Stream, stream: Stream, to_launch: Queue[Batch], to_post: Queue[Flight]
) -> None:
    """Launch each batch on `stream`, behind the uploads on `prepare`, and hand its flight on."""
    for batch in to_launch:
        stream.wait_stream(prepare)
        to_post.put(engine.launch(batch, stream))
    to_post.close()


def post_loop(engine: Engine, to_post: Queue[Flight], arrived: Queue[Flight] | None = None) -> None:
    """Wait for each flight, report its arrival if somebody listens, then deliver its tokens."""
    for flight in to_post:
        engine.synchronize(flight)
        if arrived is not None:
            arrived.put(flight)
        engine.post(flight)
