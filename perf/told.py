"""Schedulers that are told what a real one can only estimate; they are yardsticks, not proposals."""

from __future__ import annotations

from impl.core import Flight
from impl.engine import Engine, Scheduler
from impl.runtime.protocol import Queue
from impl.schedulers.loops import post_loop
from impl.schedulers.overlap_just_in_time import overlap_just_in_time


def overlap_just_in_time_oracle(engine: Engine) -> None:
    """`overlap_just_in_time` told the true time of every forward."""
    overlap_just_in_time(engine, forward_time=engine.costs.forward)


def fixed_lead(share_of_pre: float) -> Scheduler:
    """Return a scheduler that closes each batch a fixed time before the last launched forward ends.

    The time is `share_of_pre` times what pre takes: 1 launches exactly at the end; less leaves a bubble (below 0 the
    batch is closed only after the end); more lets batches pile up on the GPU, as deep as it takes.
    """

    def scheduler(engine: Engine) -> None:
        prepare, stream = engine.stream("scheduler"), engine.stream("engine")
        to_post: Queue[Flight] = engine.queue("to post")
        timer: Queue[None] = engine.queue("timer")
        engine.spawn(lambda: post_loop(engine, to_post), "post")
        end_ns: int | None = None
        lead_ns = 0
        while True:
            if end_ns is not None:
                timer.get(max(0, end_ns - lead_ns - engine.now_ns()))
            batch = engine.next_batch()
            if batch is None:
                break
            lead_ns = round(share_of_pre * engine.costs.pre(batch))
            engine.pre(batch, prepare)
            stream.wait_stream(prepare)
            flight = engine.launch(batch, stream)
            to_post.put(flight)
            end_ns = max(end_ns or 0, flight.launched_ns) + engine.costs.forward(batch)
        to_post.close()

    return scheduler
