"""Pre, launch and post each in a thread, joined by queues (article, section 10)."""

from __future__ import annotations

from impl.core import Batch, Flight
from impl.engine import Engine
from impl.runtime.protocol import Queue
from impl.schedulers.loops import launch_loop, post_loop


def overlap_three_thread(engine: Engine) -> None:
    """Run every stage as soon as its input is there; nothing limits how far pre runs ahead."""
    prepare, stream = engine.stream("scheduler"), engine.stream("engine")
    to_launch: Queue[Batch] = engine.queue("to launch")
    to_post: Queue[Flight] = engine.queue("to post")
    engine.spawn(lambda: launch_loop(engine, prepare, stream, to_launch, to_post), "launch")
    engine.spawn(lambda: post_loop(engine, to_post), "post")
    while (batch := engine.next_batch()) is not None:
        engine.pre(batch, prepare)
        to_launch.put(batch)
    to_launch.close()
