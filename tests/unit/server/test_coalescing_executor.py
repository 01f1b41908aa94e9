"""Short jobs of many requests: done in order, each with its own end, and none held up by a slow one.

What it is: ``server/http/coalescing_executor.py``, with real threads and a real event loop.
Not here: what the server does in them (``tests/services/server``).
Read next: ``server/http/coalescing_executor.py``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headwater.server.http import coalescing_executor
from headwater.server.http.coalescing_executor import CoalescingExecutor
from tests.own_loop import in_own_loop


def inside(work: Callable[[CoalescingExecutor], Awaitable[Any]], threads: int = 4) -> Any:
    """What ``work`` finds in a lane of its own."""

    async def all_of_it() -> Any:
        lane = CoalescingExecutor(threads, "test")
        try:
            return await asyncio.wait_for(work(lane), 30)
        finally:
            lane.close()

    return in_own_loop(all_of_it())


def test_jobs_are_done_in_the_order_in_which_they_came_and_in_few_turns(monkeypatch: pytest.MonkeyPatch):
    # However busy the machine is: no second thread because the first one seems stuck.
    monkeypatch.setattr(coalescing_executor, "PATIENCE_S", 60.0)
    done: list[int] = []
    at_work, most_at_once = set[int](), 0

    def job(number: int) -> int:
        nonlocal most_at_once
        at_work.add(threading.get_ident())
        most_at_once = max(most_at_once, len(at_work))
        done.append(number)
        at_work.discard(threading.get_ident())
        return -number

    async def work(lane: CoalescingExecutor) -> list[int]:
        found = await asyncio.gather(*(lane.do(job, number) for number in range(1000)))
        assert lane._turns < 100
        return found

    assert inside(work) == [-number for number in range(1000)]
    assert done == sorted(done)
    assert most_at_once == 1


def test_each_has_its_own_error():
    async def work(lane: CoalescingExecutor) -> list[Any]:
        jobs = (lane.do(divmod, 7, number % 2) for number in range(4))
        return await asyncio.gather(*jobs, return_exceptions=True)

    zero, one, again, last = inside(work)
    assert isinstance(zero, ZeroDivisionError)
    assert isinstance(again, ZeroDivisionError)
    assert zero is not again
    assert one == last == (7, 0)


@pytest.mark.parametrize("stuck", [1, 3])
def test_jobs_that_are_stuck_do_not_keep_the_others(stuck: int):
    let_go = threading.Event()

    async def work(lane: CoalescingExecutor) -> list[int]:
        waiting = [asyncio.create_task(lane.do(let_go.wait, 30)) for _ in range(stuck)]
        await asyncio.sleep(0)
        try:
            # Neither those that come at once nor those that come one after the other.
            found = await asyncio.gather(*(lane.do(abs, -number) for number in range(10)))
            for number in range(10, 20):
                found.append(await lane.do(abs, -number))
            assert not any(task.done() for task in waiting)
        finally:
            let_go.set()
        assert all(await asyncio.gather(*waiting))
        return found

    assert inside(work) == list(range(20))


def test_what_was_done_before_a_job_that_is_stuck_is_told():
    begin, let_go = threading.Event(), threading.Event()

    async def work(lane: CoalescingExecutor) -> int:
        first = asyncio.create_task(lane.do(begin.wait, 30))
        await asyncio.sleep(0)
        second, stuck = asyncio.create_task(lane.do(abs, -1)), asyncio.create_task(lane.do(let_go.wait, 30))
        await asyncio.sleep(0)
        begin.set()  # one thread takes the other two, one after the other
        try:
            await first
            return await second
        finally:
            assert not stuck.done()
            let_go.set()
            await stuck

    assert inside(work, threads=1) == 1


def test_when_every_thread_is_stuck_the_rest_waits_and_is_done_then():
    let_go = threading.Event()

    async def work(lane: CoalescingExecutor) -> int:
        waiting = [asyncio.create_task(lane.do(let_go.wait, 30)) for _ in range(2)]
        last = asyncio.create_task(lane.do(abs, -1))
        await asyncio.sleep(0.2)
        assert not last.done()
        let_go.set()
        await asyncio.gather(*waiting)
        return await last

    assert inside(work, threads=2) == 1


def test_who_has_gone_is_not_told_and_the_lane_goes_on():
    let_go = threading.Event()

    async def work(lane: CoalescingExecutor) -> int:
        gone = asyncio.create_task(lane.do(let_go.wait, 30))
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        let_go.set()
        return await lane.do(abs, -1)

    assert inside(work) == 1


def test_what_has_not_begun_is_cancelled_at_the_end():
    begun, let_go = threading.Event(), threading.Event()

    def first() -> bool:
        begun.set()
        return let_go.wait(30)

    async def work(lane: CoalescingExecutor) -> tuple[bool, bool]:
        running = asyncio.create_task(lane.do(first))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        waiting = asyncio.create_task(lane.do(abs, -1))
        await asyncio.sleep(0)
        shutdown = lane._pool.shutdown
        # Only when the queue has been emptied may the running job end: its thread would take the next one.
        lane._pool.shutdown = lambda wait: (let_go.set(), shutdown(wait=wait))
        lane.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return await running

    assert inside(work, threads=1) is True
