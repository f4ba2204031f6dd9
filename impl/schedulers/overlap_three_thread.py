"""Pre, launch and post each in a thread, joined by queues (article, section 10)."""

from __future__ import annotations

from impl.core import Batch, Flight
from impl.engine import Engine
from impl.runtime.protocol import Queue


def overlap_three_thread(engine: Engine) -> None:
    """Run every stage as soon as its input is there; nothing limits how far pre runs ahead."""
    prepare, stream = engine.stream("scheduler"), engine.stream("engine")
    to_launch: Queue[Batch] = engine.queue("to launch")
    to_post: Queue[Flight] = engine.queue("to post")

    def launch_loop() -> None:
        for batch in to_launch:
            stream.wait_stream(prepare)
            to_post.put(engine.launch(batch, stream))
        to_post.close()

    def post_loop() -> None:
        for flight in to_post:
            engine.synchronize(flight)
            engine.post(flight)

    engine.spawn(launch_loop, "launch")
    engine.spawn(post_loop, "post")
    while (batch := engine.next_batch()) is not None:
        engine.pre(batch, prepare)
        to_launch.put(batch)
    to_launch.close()
