"""Schedulers with a fault in them. They deliver every token, so only a claim on time or order can find them."""

from __future__ import annotations

from impl.core import Batch, Flight
from impl.engine import Engine
from impl.runtime.protocol import Queue
from impl.schedulers.loops import launch_loop
from impl.schedulers.overlap_just_in_time import overlap_just_in_time


def overlap_that_synchronizes(engine: Engine) -> None:
    """`overlap` with a stray wait behind the launch: nothing overlaps any more."""
    prepare, stream = engine.stream("scheduler"), engine.stream("engine")
    last: Flight | None = None
    while True:
        ongoing = None
        batch = engine.next_batch(wait=last is None)
        if batch is not None:
            engine.pre(batch, prepare)
            stream.wait_stream(prepare)
            ongoing = engine.launch(batch, stream)
            engine.synchronize(ongoing)
        if last is not None:
            engine.post(last)
        if ongoing is None and last is None:
            return
        last = ongoing


def overlap_that_waits_before_launch(engine: Engine) -> None:
    """`overlap` that waits for the last forward before it launches the next: pre overlaps, the launch does not."""
    prepare, stream = engine.stream("scheduler"), engine.stream("engine")
    last: Flight | None = None
    while True:
        ongoing = None
        batch = engine.next_batch(wait=last is None)
        if batch is not None:
            engine.pre(batch, prepare)
            stream.wait_stream(prepare)
        if last is not None:
            engine.synchronize(last)
        if batch is not None:
            ongoing = engine.launch(batch, stream)
        if last is not None:
            engine.post(last)
        if ongoing is None and last is None:
            return
        last = ongoing


def overlap_that_posts_first(engine: Engine) -> None:
    """`overlap` with post before the next launch although a forward is in flight: the launch lead is gone."""
    prepare, stream = engine.stream("scheduler"), engine.stream("engine")
    last: Flight | None = None
    while True:
        batch = engine.next_batch(wait=last is None)
        if batch is not None:
            engine.pre(batch, prepare)
        if last is not None:
            engine.synchronize(last)
            engine.post(last)
        if batch is None and last is None:
            return
        last = None
        if batch is not None:
            stream.wait_stream(prepare)
            last = engine.launch(batch, stream)


def overlap_that_waits_for_arrivals(engine: Engine) -> None:
    """`overlap` that waits for a next batch although a forward is in flight: a result waits for the next arrival."""
    prepare, stream = engine.stream("scheduler"), engine.stream("engine")
    last: Flight | None = None
    while True:
        ongoing = None
        batch = engine.next_batch()
        if batch is not None:
            engine.pre(batch, prepare)
            stream.wait_stream(prepare)
            ongoing = engine.launch(batch, stream)
        if last is not None:
            engine.synchronize(last)
            engine.post(last)
        if ongoing is None and last is None:
            return
        last = ongoing


def overlap_that_posts_late(engine: Engine) -> None:
    """`overlap` one step deeper: each result waits for two further launches."""
    prepare, stream = engine.stream("scheduler"), engine.stream("engine")
    flights: list[Flight] = []
    while True:
        batch = engine.next_batch(wait=not flights)
        if batch is not None:
            engine.pre(batch, prepare)
            stream.wait_stream(prepare)
            flights.append(engine.launch(batch, stream))
        elif not flights:
            return
        if len(flights) > 2 or batch is None:
            engine.synchronize(flights[0])
            engine.post(flights.pop(0))


def three_threads_that_take_turns(engine: Engine) -> None:
    """`overlap_three_thread` whose pre waits for the post of the batch before: the threads buy nothing."""
    prepare, stream = engine.stream("scheduler"), engine.stream("engine")
    to_launch: Queue[Batch] = engine.queue("to launch")
    to_post: Queue[Flight] = engine.queue("to post")
    posted: Queue[Flight] = engine.queue("posted")

    def post_loop() -> None:
        for flight in to_post:
            engine.synchronize(flight)
            engine.post(flight)
            posted.put(flight)

    engine.spawn(lambda: launch_loop(engine, prepare, stream, to_launch, to_post), "launch")
    engine.spawn(post_loop, "post")
    while (batch := engine.next_batch()) is not None:
        engine.pre(batch, prepare)
        to_launch.put(batch)
        posted.get()
    to_launch.close()


def just_in_time_told_a_second(engine: Engine) -> None:
    """`overlap_just_in_time` told that every forward takes a second: batches close when the GPU is idle."""
    overlap_just_in_time(engine, forward_time=lambda batch: 1_000_000_000)
