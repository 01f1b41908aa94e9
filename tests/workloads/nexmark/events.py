"""Nexmark: people, their auctions and the bids on them, made up by rule and seed.

What it is: ``Events``, a generator of Arrow tables in Nexmark's proportions (of 50 events one is a person, three are
auctions, 46 are bids), and the streams' and tables' schemas.
Invariants: event number n is the same whatever ranges are asked for, and its time is n intervals after the start, so
no two events have the same time and every ORDER BY on it is total. People and auctions are tables with a key, for
they may be corrected later; bids are a stream.
Not here: the queries (``catalogue.py``), corrections (``corrections.py``).
Read next: ``catalogue.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tests.workloads.tables import Table

PERSON = Table(
    "person",
    "id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, state STRING, at TIMESTAMP, "
    "extra STRING",
    ("id",),
)
AUCTION = Table(
    "auction",
    "id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT, at TIMESTAMP, "
    "expires TIMESTAMP, seller BIGINT, category BIGINT, extra STRING",
    ("id",),
)
BID = Table(
    "bid", "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, at TIMESTAMP, extra STRING"
)
SIDE_INPUT = Table("side_input", "key BIGINT, value STRING", ("key",))
TABLES = (PERSON, AUCTION, BID, SIDE_INPUT)

EPOCH_EVENTS, AUCTIONS_EACH = 50, 3  # of each 50 events the first is a person, the next three are auctions
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1_000, 10, 5
ACTIVE_PEOPLE, OPEN_AUCTIONS = 1_000, 100
HOT_EVERY = 100  # one auction in a hundred gets half of the bids, one bidder in a hundred makes three quarters of them
START_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z

STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS = 10_000
WORDS = ("abc", "citrus", "iron", "quartz", "cactus", "piano", "cocoa", "zebra", "window", "scenic", "lilac", "basic")


@dataclass(frozen=True)
class Events:
    """All events there will ever be; ``people``, ``auctions`` and ``bids`` give those with numbers in a range.

    >>> events = Events()
    >>> [table.num_rows for table in (events.people(0, 100), events.auctions(0, 100), events.bids(0, 100))]
    [2, 6, 92]
    >>> events.bids(0, 100).slice(46).equals(events.bids(50, 100))
    True
    """

    seed: int = 1
    interval_us: int = 1_000

    def people(self, start: int, stop: int) -> pa.Table:
        numbers = _numbers(start, stop, lambda place: place == 0)
        draw = self._draw(numbers, "person")
        ids = FIRST_ID + numbers // EPOCH_EVENTS
        state = draw(len(STATES))
        names = [f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]
        columns = [
            pa.array(ids),
            _texts(draw(len(names)), names),
            pa.array([f"{number}@example.com" for number in ids.tolist()]),
            pa.array([f"{number:016d}" for number in draw(10**16).tolist()]),
            _texts(draw(len(CITIES)), CITIES),
            _texts(state, STATES),
            self._at(numbers),
            _texts(draw(len(WORDS)), WORDS),
        ]
        return pa.Table.from_arrays(columns, schema=PERSON.schema)

    def auctions(self, start: int, stop: int) -> pa.Table:
        numbers = _numbers(start, stop, lambda place: (place >= 1) & (place <= AUCTIONS_EACH))
        draw = self._draw(numbers, "auction")
        price = _prices(draw(10**6))
        # An auction is open for as long as it takes to open another hundred, give or take half.
        span = OPEN_AUCTIONS * EPOCH_EVENTS // AUCTIONS_EACH
        expires = numbers + span // 2 + draw(span)
        people = numbers // EPOCH_EVENTS + 1
        columns = [
            pa.array(_auction_id(numbers)),
            _texts(draw(len(WORDS)), WORDS),
            _texts(draw(len(WORDS)), [f"a {word} of good make" for word in WORDS]),
            pa.array(price),
            pa.array(price + _prices(draw(10**6))),
            self._at(numbers),
            self._at(expires),
            pa.array(FIRST_ID + people - 1 - draw(10**9) % np.minimum(people, ACTIVE_PEOPLE)),
            pa.array(FIRST_CATEGORY + draw(CATEGORIES)),
            _texts(draw(len(WORDS)), WORDS),
        ]
        return pa.Table.from_arrays(columns, schema=AUCTION.schema)

    def bids(self, start: int, stop: int) -> pa.Table:
        numbers = _numbers(start, stop, lambda place: place > AUCTIONS_EACH)
        draw = self._draw(numbers, "bid")
        auctions, people = AUCTIONS_EACH * (numbers // EPOCH_EVENTS + 1), numbers // EPOCH_EVENTS + 1
        hot_auction = (auctions - 1) // HOT_EVERY * HOT_EVERY
        auction = np.where(draw(2) == 0, hot_auction, auctions - 1 - draw(10**9) % np.minimum(auctions, OPEN_AUCTIONS))
        hot_bidder = (people - 1) // HOT_EVERY * HOT_EVERY
        bidder = np.where(draw(4) > 0, hot_bidder, people - 1 - draw(10**9) % np.minimum(people, ACTIVE_PEOPLE))
        channel = np.where(draw(2) == 0, draw(len(HOT_CHANNELS)), len(HOT_CHANNELS) + draw(CHANNELS))
        columns = [
            pa.array(FIRST_ID + auction),
            pa.array(FIRST_ID + bidder),
            pa.array(_prices(draw(10**6))),
            _texts(channel, [*HOT_CHANNELS, *(f"channel-{number}" for number in range(CHANNELS))]),
            _texts(channel, _URLS),
            self._at(numbers),
            _texts(draw(len(WORDS)), WORDS),
        ]
        return pa.Table.from_arrays(columns, schema=BID.schema)

    def side_input(self, count: int) -> pa.Table:
        """The table that query 13 joins with."""
        keys = np.arange(count)
        return pa.Table.from_arrays(
            [pa.array(keys), pa.array([f"value {key}" for key in keys])], schema=SIDE_INPUT.schema
        )

    def _draw(self, numbers: np.ndarray, kind: str):  # type: ignore[no-untyped-def]
        """Numbers below a bound that depend on the event's number alone: each call gives the next of them."""
        salt = np.uint64(self.seed * 1_000_003 + sum(kind.encode()))
        turn = 0

        def draw(below: int) -> np.ndarray:
            nonlocal turn
            turn += 1
            with np.errstate(over="ignore"):
                mixed = _mix(_mix(numbers.astype(np.uint64) + salt) + np.uint64(turn) * np.uint64(0x9E3779B97F4A7C15))
            return (mixed % np.uint64(below)).astype(np.int64)

        return draw

    def _at(self, numbers: np.ndarray) -> pa.Array:
        return pa.array(START_US + numbers * self.interval_us).cast(pa.timestamp("us", tz="UTC"))


def _mix(value: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64: every bit of the result depends on every bit of the value."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _numbers(start: int, stop: int, wanted) -> np.ndarray:  # type: ignore[no-untyped-def]
    numbers = np.arange(start, stop, dtype=np.int64)
    return numbers[wanted(numbers % EPOCH_EVENTS)]


def _auction_id(numbers: np.ndarray) -> np.ndarray:
    return FIRST_ID + AUCTIONS_EACH * (numbers // EPOCH_EVENTS) + numbers % EPOCH_EVENTS - 1


def _prices(draws: np.ndarray) -> np.ndarray:
    """From 100 to 100 million cents, each power of ten as likely as the next."""
    return np.round(10 ** (draws / 10**6 * 6) * 100).astype(np.int64)


def _texts(places: np.ndarray, texts) -> pa.Array:  # type: ignore[no-untyped-def]
    return pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int32)), pa.array(list(texts))).cast(pa.string())


def _url(number: int) -> str:
    page = f"https://example.com/{WORDS[number % 7]}/{WORDS[number % 5]}/{WORDS[number % 11]}/item.htm?query=1"
    return page if number < len(HOT_CHANNELS) or number % 10 == 0 else f"{page}&channel_id={number * 7919 % CHANNELS}"


_URLS = [_url(number) for number in range(len(HOT_CHANNELS) + CHANNELS)]
