"""The hub by itself, step by step: what threads and sockets would decide by chance is decided here by the test."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.app_file import app_of
from headwater.server.realtime.broker import Broadcast, SubscriberMessage
from headwater.server.server_settings import ServerSettings
from headwater.server.server_state import ServerState
from headwater.views.privacy.personal_data import SEES_ALL
from tests.own_loop import in_own_loop
from tests.services.server.processes import APP
from tests.services.server.ticks_by_hand import HandTicks

QUEUE = 5


@pytest.fixture
def state(tmp_path: Path) -> Iterator[ServerState]:
    os.environ["SERVED_SHOP_HOME"] = str(tmp_path / "home")
    with app_of(APP) as app:
        yield ServerState(app, ServerSettings(subscription_queue_max=QUEUE))


@pytest.fixture
def hand(state: ServerState) -> Iterator[HandTicks]:
    ticks = HandTicks(state.log)
    yield ticks
    ticks.close()


def in_loop(work: Callable[[], Awaitable[None]]) -> None:
    in_own_loop(asyncio.wait_for(work(), 60))


async def next_of(messages: AsyncGenerator[SubscriberMessage]) -> dict[str, Any]:
    message = await anext(messages)
    assert message.data is not None
    return json.loads(message.data)


def reader_that_stands_still(state: ServerState) -> Broadcast:
    """The view's reader, moved by the test alone."""
    broadcast = state.broker._broadcasts["revenue", SEES_ALL] = Broadcast(state, "revenue", SEES_ALL)
    broadcast.task = asyncio.ensure_future(asyncio.sleep(0))
    return broadcast


def step(broadcast: Broadcast) -> None:
    """Let the reader tell the next ticks."""
    for view_message in broadcast._next() or ():
        broadcast._tell(view_message)


def test_a_reader_that_is_behind_a_subscriber_tells_it_nothing_twice(state: ServerState, hand: HandTicks) -> None:
    async def work() -> None:
        hand.commit({"DE": 1})
        broadcast = reader_that_stands_still(state)
        step(broadcast)  # it stands at tick 1
        for total in (2, 3):
            hand.commit({"DE": total})
        messages = state.broker.subscribe("revenue", None, SEES_ALL)
        assert (await next_of(messages))["tick"] == 3
        following = asyncio.ensure_future(next_of(messages))
        while not broadcast.subscribers:
            await asyncio.sleep(0.001)

        hand.commit({"DE": 4})
        step(broadcast)

        assert (await following)["tick"] == 4
        await messages.aclose()

    in_loop(work)


def test_a_subscriber_whose_queue_is_full_is_told_where_to_go_on(state: ServerState, hand: HandTicks) -> None:
    async def work() -> None:
        hand.commit({"DE": 0})
        broadcast = reader_that_stands_still(state)
        step(broadcast)
        messages = state.broker.subscribe("revenue", None, SEES_ALL)
        token = (await next_of(messages))["token"]
        waiting = asyncio.ensure_future(next_of(messages))
        while not broadcast.subscribers:
            await asyncio.sleep(0.001)
        (subscriber,) = broadcast.subscribers

        for number in range(QUEUE + 2):  # nobody takes anything meanwhile
            hand.commit({"DE": number + 1})
            step(broadcast)

        end = await waiting
        assert (end["type"], end["reason"], end["token"]) == ("end", "too slow", token)
        assert (state.broker.dropped, len(subscriber._waiting), broadcast.subscribers) == (1, 0, set())
        with pytest.raises(StopAsyncIteration):
            await anext(messages)
        assert state.broker.open == 0

    in_loop(work)


def test_what_waits_for_a_subscriber_is_bounded_in_bytes_too(state: ServerState, hand: HandTicks) -> None:
    async def work() -> None:
        hand.commit({"DE": 0})
        broadcast = reader_that_stands_still(state)
        step(broadcast)
        messages = state.broker.subscribe("revenue", None, SEES_ALL)
        await next_of(messages)
        waiting = asyncio.ensure_future(next_of(messages))
        while not broadcast.subscribers:
            await asyncio.sleep(0.001)

        for _ in range(3):
            hand.commit({f"{number}{'x' * 3000}": hand.manifests.tick() for number in range(900)})
            step(broadcast)

        assert (await waiting)["type"] == "end"
        await messages.aclose()

    in_loop(work)


def test_a_server_that_stops_says_so_with_the_token(state: ServerState, hand: HandTicks) -> None:
    async def work() -> None:
        hand.commit({"DE": 0})
        step(reader_that_stands_still(state))
        messages = state.broker.subscribe("revenue", None, SEES_ALL)
        token = (await next_of(messages))["token"]
        waiting = asyncio.ensure_future(next_of(messages))
        await asyncio.sleep(0)

        state.close_soon()

        assert await waiting == {"type": "end", "reason": "the server stops", "tick": 1, "token": token}

    in_loop(work)
