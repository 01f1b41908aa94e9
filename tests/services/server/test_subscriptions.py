"""Subscriptions: a copy that is made of them is the view, at every tick they report, whatever happens in between."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headwater.log.home import Log
from tests.services.server.conftest import declared
from tests.services.server.followers import Copy, EventFollower, Follower, SocketFollower
from tests.services.server.processes import ServerProcess
from tests.services.server.ticks_by_hand import HandTicks
from tests.waiting import eventually

COUNTRIES = [f"country-{number}" for number in range(40)]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Log]:
    with declared(tmp_path / "home") as log:
        yield log


@pytest.fixture
def hand(home: Log) -> Iterator[HandTicks]:
    ticks = HandTicks(home)
    yield ticks
    ticks.close()


def some_changes(chance: random.Random, hand: HandTicks) -> dict[str, int | None]:
    chosen = chance.sample(COUNTRIES, chance.randrange(6))
    return {name: None if name in hand.rows and chance.random() < 0.3 else chance.randrange(1000) for name in chosen}


def check(copy: Copy, hand: HandTicks) -> None:
    """The copy was the view at every tick it reported."""
    assert copy.past
    assert {tick: rows for tick, rows in copy.past.items() if rows != hand.past[tick]} == {}


def test_two_subscribers_have_the_view_at_every_tick_through_stops_and_kills_of_the_server(
    home: Log, hand: HandTicks
) -> None:
    chance = random.Random(11)
    hand.commit({"country-0": 1})
    server = ServerProcess(home.home)
    followers: list[Follower] = [EventFollower(server.address), SocketFollower(server.address)]
    for follower in followers:
        follower.wait_for(1)

    for end in (None, server.stop, None, server.kill, None):
        for _ in range(20):
            hand.commit(some_changes(chance, hand))
        if end is not None:
            end()
            for _ in range(20):  # while nobody serves
                hand.commit(some_changes(chance, hand))
            server.start()
        for follower in followers:
            follower.wait_for(hand.manifests.tick())

    for follower in followers:
        check(follower.copy, hand)
        assert follower.copy.rows == hand.rows
        assert (follower.copy.snapshots, follower.copy.resets) == (1, 0), "they went on where they were"
        assert set(follower.copy.ends) == {"the server stops"}  # again, when it comes back before the server is gone
        follower.stop()
    server.stop()


def test_a_place_that_is_no_longer_kept_and_a_changed_query_give_a_fresh_snapshot(home: Log, hand: HandTicks) -> None:
    hand.commit({"DE": 1})
    hand.commit({"FR": 2})
    server = ServerProcess(home.home)
    follower = EventFollower(server.address)
    follower.wait_for(2)

    hand.declare_anew()
    hand.commit({"IT": 7})
    copy = follower.wait_for(3)
    assert (copy.rows, copy.resets) == ({"IT": 7}, 1)

    server.stop()
    for number in range(5):
        hand.commit({"IT": number}, first_kept=hand.manifests.tick())
    server.start()
    copy = follower.wait_for(8)
    assert (copy.rows, copy.resets) == ({"IT": 4}, 2)
    check(copy, hand)
    follower.stop()
    server.stop()


def test_a_large_view_comes_in_parts_and_so_does_a_large_tick(server: ServerProcess, ticks: HandTicks) -> None:
    many = {f"row-{number}": number for number in range(25_000)}
    follower = EventFollower(server.address)
    follower.wait_for(1)

    last = ticks.commit(many)
    late = SocketFollower(server.address)
    for each in (follower, late):
        each.wait_for(last)
        check(each.copy, ticks)
    last = ticks.commit(dict.fromkeys(many))
    for each in (follower, late):
        assert each.wait_for(last).rows == ticks.rows
        each.stop()


def test_ticks_that_change_nothing_move_the_place_to_go_on_from(server: ServerProcess, ticks: HandTicks) -> None:
    follower = EventFollower(server.address)
    follower.wait_for(ticks.manifests.tick())

    for _ in range(3):
        last = ticks.commit()

    copy = follower.wait_for(last)
    assert copy.token is not None
    assert copy.token.startswith(f"{last}.")
    assert copy.snapshots == 1
    follower.stop()


def test_from_tick_goes_on_with_changes_alone(server: ServerProcess, ticks: HandTicks) -> None:
    begin = ticks.manifests.tick()
    ticks.commit({"XX": 5})

    url = f"{server.address}/v1/views/revenue/subscribe?from_tick={begin + 1}"
    with httpx.stream("GET", url, timeout=20) as answer:
        data = next(line for line in answer.iter_lines() if line.startswith("data: "))

    message = json.loads(data.removeprefix("data: "))
    assert (message["type"], message["tick"]) == ("changes", begin + 1)
    assert [change["_change_type"] for change in message["changes"]] == ["insert"]


@pytest.mark.parametrize(
    "query", ["from_tick=0", "from_tick=x", "token=..%2f", "token=-1", "from_tick=99999999999999999999"]
)
def test_a_place_that_makes_no_sense_is_refused(server: ServerProcess, query: str) -> None:
    assert server.get(f"/v1/views/revenue/subscribe?{query}", status=400)["error"]["code"] in (
        "misuse",
        "invalid_declaration",
    )


def test_a_tick_that_is_still_to_come_gives_a_snapshot(server: ServerProcess, ticks: HandTicks) -> None:
    with httpx.stream("GET", f"{server.address}/v1/views/revenue/subscribe?token=9999.abcd", timeout=20) as answer:
        data = next(line for line in answer.iter_lines() if line.startswith("data: "))

    message = json.loads(data.removeprefix("data: "))
    assert (message["type"], message["reset"], message["tick"]) == ("snapshot", True, ticks.manifests.tick())


def test_an_unknown_view_is_told(server: ServerProcess) -> None:
    assert server.get("/v1/views/nothing/subscribe", status=404)["error"]["code"] == "unknown_view"


def test_a_subscriber_that_takes_nothing_is_dropped_and_the_others_go_on(home: Log, hand: HandTicks) -> None:
    hand.commit({"DE": 0})
    server = ServerProcess(home.home, "--send-timeout", "1s")
    good = EventFollower(server.address)
    good.wait_for(1)
    host, _, port = server.address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(f"GET /v1/views/revenue/subscribe HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        assert slow.recv(16) == b"HTTP/1.1 200 OK\r"

        def dropped() -> bool:
            last = hand.commit({f"{name}-{'x' * 300}": hand.manifests.tick() for name in range(100)})
            good.wait_for(last)
            return bool(server.get("/v1/status")["server"]["dropped_subscriptions"])

        eventually(dropped)
        status = server.get("/v1/status")["server"]

    assert status["dropped_subscriptions"] == 1
    check(good.copy, hand)
    good.stop()
    server.stop()


def test_more_subscriptions_than_allowed_are_refused(home: Log, hand: HandTicks) -> None:
    hand.commit({"DE": 0})
    server = ServerProcess(home.home, "--subscriptions", "1")
    first = EventFollower(server.address)
    first.wait_for(1)

    refused = server.get("/v1/views/revenue/subscribe", status=429)

    assert refused["error"]["code"] == "too_many"
    first.stop()
    eventually(lambda: server.get("/v1/status")["server"]["subscriptions"] == 0)
    server.stop()
