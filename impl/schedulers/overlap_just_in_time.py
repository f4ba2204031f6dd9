"""Three threads, but each batch is closed as late as possible (article, section 12.2)."""

from __future__ import annotations

from impl.core import Batch, Flight
from impl.costs import BatchTime
from impl.engine import Engine
from impl.pacing import Pacer
from impl.runtime.protocol import Queue
from impl.schedulers.loops import launch_loop, post_loop


def overlap_just_in_time(engine: Engine, *, forward_time: BatchTime | None = None) -> None:
    """Close a batch when the running forward is about to end; an idle GPU gets its batch at once.

    Args:
        forward_time: the true time of a batch's forward; by default it is learned from finished forwards.
    """
    prepare, stream = engine.stream("scheduler"), engine.stream("engine")
    to_launch: Queue[Batch] = engine.queue("to launch")
    to_post: Queue[Flight] = engine.queue("to post")
    arrived: Queue[Flight] = engine.queue("arrived")
    engine.spawn(lambda: launch_loop(engine, prepare, stream, to_launch, to_post), "launch")
    engine.spawn(lambda: post_loop(engine, to_post, arrived), "post")
    pacer = Pacer(forward_time)
    while True:
        await_close_time(engine, pacer, arrived)
        batch = engine.next_batch()
        if batch is None:
            break
        closed_ns = engine.now_ns()
        engine.pre(batch, prepare)
        pacer.handed(batch, closed_ns=closed_ns, now_ns=engine.now_ns())
        to_launch.put(batch)
    to_launch.close()


def await_close_time(engine: Engine, pacer: Pacer, arrived: Queue[Flight]) -> None:
    """Return when the next batch is due: at most one forward may be queued behind the running one."""
    while pacer.num_in_flight > 0:
        timeout_ns = None
        if pacer.num_in_flight == 1 and (close_ns := pacer.close_ns()) is not None:
            timeout_ns = close_ns - engine.now_ns()
            if timeout_ns <= 0:
                return
        flight = arrived.get(timeout_ns)
        if flight is None:
            return
        pacer.finished(flight)
