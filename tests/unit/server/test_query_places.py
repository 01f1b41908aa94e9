"""Places for questions are shared fairly among the keys that ask."""

from __future__ import annotations

import asyncio

import pytest

from headwater.errors import TooMany
from headwater.server.http.query_places import ANYBODY, QueryPlaces
from tests.own_loop import in_own_loop


class Asking:
    """Questions that run until they are told to end."""

    def __init__(self, places: QueryPlaces) -> None:
        self.places = places
        self.began: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._ends: list[asyncio.Event] = []

    async def ask(self, *keys: str, seconds: float = 60.0) -> None:
        for key in keys:
            self._tasks.append(asyncio.create_task(self._one(key, seconds)))
        await self.settle()

    async def _one(self, key: str, seconds: float) -> None:
        async with self.places.taken(key, seconds):
            self.began.append(key)
            end = asyncio.Event()
            self._ends.append(end)
            await end.wait()

    async def end(self, place: int = 0) -> None:
        self._ends.pop(place).set()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def all(self) -> list[str]:
        """Let everything end; what each one came to."""
        while not all(task.done() for task in self._tasks):
            if self._ends:
                self._ends.pop().set()
            await self.settle()
        return ["" if task.exception() is None else str(task.exception()) for task in self._tasks]


def test_one_key_has_half_of_the_places_and_the_others_need_not_wait_for_it() -> None:
    async def shown() -> None:
        asking = Asking(QueryPlaces(4, "queries"))
        await asking.ask(*["greedy"] * 10)
        assert asking.began == ["greedy"] * 2

        await asking.ask("ada", "bob", "eve")

        assert asking.began == ["greedy", "greedy", "ada", "bob"]
        assert (asking.places.running, asking.places.waiting) == (4, 9)
        await asking.end()  # one of the greedy: eve has none, and goes before
        assert asking.began[-1] == "eve"
        assert set(await asking.all()) == {""}
        assert (asking.places.running, asking.places.waiting) == (0, 0)

    in_own_loop(shown())


def test_without_keys_everybody_has_all_of_them_in_the_order_of_coming() -> None:
    async def shown() -> None:
        asking = Asking(QueryPlaces(2, "queries", waiting_max=1))
        await asking.ask(ANYBODY, ANYBODY, ANYBODY, ANYBODY)

        assert len(asking.began) == 2
        said = await asking.all()
        assert said[:3] == ["", "", ""]
        assert said[3].startswith("1 queries wait already")

    in_own_loop(shown())


def test_a_full_queue_makes_room_for_a_key_that_has_less_of_it() -> None:
    async def shown() -> None:
        asking = Asking(QueryPlaces(2, "queries", waiting_max=4))
        await asking.ask("greedy", "other", *["greedy"] * 4)

        await asking.ask("ada", "bob", "eve", "zoe")  # the last one finds a queue of which each has the same

        await asking.end()  # of the greedy
        assert asking.began[-1] in ("greedy", "ada")
        said = await asking.all()
        refused = [place for place, text in enumerate(said) if "4 queries wait already" in text]
        assert refused == [3, 4, 5, 9]

    in_own_loop(shown())


def test_who_waits_too_long_or_leaves_takes_no_place() -> None:
    async def shown() -> None:
        places = QueryPlaces(1, "searches")
        async with places.taken("ada", 1.0):
            with pytest.raises(TooMany, match=r'1 searches of key "ada" run already, and none ended within 0.01 s'):
                async with places.taken("ada", 0.01):
                    pass
            gone = asyncio.create_task(_taken(places, "bob"))
            await asyncio.sleep(0)
            gone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gone
            assert places.waiting == 0
        late = asyncio.create_task(_taken(places, "bob"))
        async with places.taken("ada", 1.0):
            await asyncio.sleep(0)
            assert places.waiting == 1
        late.cancel()  # in the moment in which the place has become its
        await asyncio.wait([late])
        assert (places.running, places.waiting) == (0, 0)

    in_own_loop(shown())


async def _taken(places: QueryPlaces, key: str) -> None:
    async with places.taken(key, 60.0):
        pass
