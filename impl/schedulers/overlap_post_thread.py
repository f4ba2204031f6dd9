"""`overlap` with a thread of its own for post (article, section 14.2; vLLM does so)."""

from __future__ import annotations

from impl.core import Flight
from impl.engine import Engine
from impl.runtime.protocol import Queue
from impl.schedulers.loops import post_loop


def overlap_post_thread(engine: Engine) -> None:
    """Prepare and launch in one thread, at most two forwards in flight; a second thread delivers."""
    prepare, stream = engine.stream("scheduler"), engine.stream("engine")
    to_post: Queue[Flight] = engine.queue("to post")
    arrived: Queue[Flight] = engine.queue("arrived")
    engine.spawn(lambda: post_loop(engine, to_post, arrived), "post")
    num_in_flight = 0
    while (batch := engine.next_batch()) is not None:
        engine.pre(batch, prepare)
        stream.wait_stream(prepare)
        to_post.put(engine.launch(batch, stream))
        num_in_flight += 1
        if num_in_flight == 2:
            arrived.get()
            num_in_flight -= 1
    to_post.close()
