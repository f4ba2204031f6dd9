"""One stream and a worker thread that launches (article, section 13: early SGLang)."""

from __future__ import annotations

from impl.core import Batch, Flight
from impl.engine import Engine
from impl.runtime.protocol import Queue


def overlap_worker_thread(engine: Engine, *, wait_for_launch: bool = True) -> None:
    """Hand each batch to the worker; with `wait_for_launch`, go on only when its launch has returned."""
    stream = engine.stream("engine")
    to_launch: Queue[Batch] = engine.queue("to launch")
    launch_done: Queue[Batch] = engine.queue("launch done")
    flights: Queue[Flight] = engine.queue("flights")

    def worker() -> None:
        for batch in to_launch:
            flights.put(engine.launch(batch, stream))
            launch_done.put(batch)
        flights.close()

    engine.spawn(worker, "worker")
    is_last_in_flight = False
    while True:
        batch = engine.next_batch(wait=not is_last_in_flight)
        if batch is None and not is_last_in_flight:
            break
        if batch is not None:
            engine.pre(batch, stream)
            to_launch.put(batch)
            if wait_for_launch:
                launch_done.get()
        if is_last_in_flight and (last := flights.get()) is not None:
            engine.synchronize(last)
            engine.post(last)
        is_last_in_flight = batch is not None
    to_launch.close()


def overlap_worker_thread_no_wait(engine: Engine) -> None:
    """Let the worker launch while the scheduler goes on."""
    overlap_worker_thread(engine, wait_for_launch=False)
