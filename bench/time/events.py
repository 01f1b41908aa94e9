"""The events, what must come out of them, and the files that the peers read.

What it is: ``Events``, seeded; ``answer``, the sums and counts by minute and country, made with numpy alone; and
``difference``, which says what is wrong with somebody's answer.
Invariants: events arrive a millisecond apart, so ten million are 2 h 47 min of event time; one in twenty happened up
to 30 s before it arrived. A smaller run has the first of the same events. Amounts are whole quarters: their sums are
exact, in whatever order they are added. In JSON the time is a number of milliseconds, the form that everybody parses
fastest.
Not here: the systems (``own.py``, ``streaming.py``, ``peers/``).
Read next: ``own.py``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

DDL = "event_id BIGINT, country STRING, amount DOUBLE, at TIMESTAMP"
COUNTRIES = tuple(first + second for first in "ABCDE" for second in "ABCDEFGHIJ")
START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
MINUTE_MS = 60_000
LATE_SHARE = 0.05
LATE_MS_MAX = 30_000
FILES = 20
CHUNK_ROWS = 50_000

Answer = dict[tuple[int, str], tuple[float, int]]  # (minute in ms, country): (amount, events)


@dataclass(frozen=True)
class Events:
    """So many events.

    >>> Events(3).table.column_names
    ['event_id', 'country', 'amount', 'at']
    >>> sum(events for _, events in Events(3).answer().values())
    3
    """

    count: int
    seed: int = 11

    @cached_property
    def _columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The country's number, the amount and the time in ms; each chunk has a seed of its own."""
        chunks = [self._chunk(number) for number in range(-(-self.count // CHUNK_ROWS))]
        country, amount, at_ms = (np.concatenate(column)[: self.count] for column in zip(*chunks, strict=True))
        return country, amount, at_ms

    def _chunk(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        random = np.random.default_rng((self.seed, number))
        arrived_ms = START_MS + number * CHUNK_ROWS + np.arange(CHUNK_ROWS)
        late = random.random(CHUNK_ROWS) < LATE_SHARE
        delays_ms = random.integers(1, LATE_MS_MAX, CHUNK_ROWS, endpoint=True)
        country = random.integers(0, len(COUNTRIES), CHUNK_ROWS)
        amount = random.integers(4, 4_000, CHUNK_ROWS) * 0.25
        return country, amount, arrived_ms - np.where(late, delays_ms, 0)

    @cached_property
    def table(self) -> pa.Table:
        """The events in the order of their arrival."""
        country, amount, at_ms = self._columns
        names = pa.DictionaryArray.from_arrays(pa.array(country, pa.int32()), pa.array(COUNTRIES)).cast(pa.string())
        at = pa.array(at_ms * 1_000).cast(pa.timestamp("us", tz="UTC"))
        return pa.table({"event_id": np.arange(self.count), "country": names, "amount": amount, "at": at})

    def answer(self) -> Answer:
        """The sums and counts by minute and country."""
        country, amount, at_ms = self._columns
        minute = at_ms // MINUTE_MS
        first = int(minute.min())
        group = (minute - first) * len(COUNTRIES) + country
        amounts, counts = np.bincount(group, weights=amount), np.bincount(group)
        return {
            ((first + number // len(COUNTRIES)) * MINUTE_MS, COUNTRIES[number % len(COUNTRIES)]): (
                float(amounts[number]),
                int(counts[number]),
            )
            for number in np.flatnonzero(counts).tolist()
        }

    def final_answer(self) -> Answer:
        """Only the minutes that ended at or before the watermark: the latest event, less the lateness."""
        watermark_ms = int(self._columns[2].max()) - LATE_MS_MAX
        return {key: entry for key, entry in self.answer().items() if key[0] + MINUTE_MS <= watermark_ms}

    def files(self) -> Iterable[pa.Table]:
        """The events cut into 20 pieces, one for each file."""
        ends = [self.count * number // FILES for number in range(FILES + 1)]
        return (self.table.slice(start, end - start) for start, end in pairwise(ends))


def write_parquet(events: Events, folder: Path) -> None:
    """Twenty files of Parquet."""
    folder.mkdir(parents=True)
    for number, piece in enumerate(events.files()):
        pyarrow.parquet.write_table(piece, folder / f"events-{number:02}.parquet")


def write_json(events: Events, folder: Path) -> None:
    """Twenty files of JSON lines."""
    folder.mkdir(parents=True)
    for number, piece in enumerate(events.files()):
        with (folder / f"events-{number:02}.json").open("w") as file:
            file.writelines(f"{line}\n" for line in json_lines(piece))


def json_lines(piece: pa.Table) -> Iterator[str]:
    """Events as JSON. Numbers and plain words only, so nothing needs escaping.

    >>> next(json_lines(Events(1).table))
    '{"event_id":0,"country":"AH","amount":73.75,"at":1767225600000}'
    """
    at_ms = piece["at"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    columns = [column.to_pylist() for column in (piece["event_id"], piece["country"], piece["amount"], at_ms)]
    for number, country, amount, at in zip(*columns, strict=True):
        yield f'{{"event_id":{number},"country":"{country}","amount":{amount},"at":{at}}}'


def answer_of(rows: pa.Table) -> Answer:
    """A table of ``minute``, ``country``, ``amount`` and ``events`` as an answer; no group may come twice."""
    found: Answer = {}
    minutes = rows["minute"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    columns = (minutes, rows["country"], rows["amount"], rows["events"])
    for minute, country, amount, events in zip(*(column.to_pylist() for column in columns), strict=True):
        if (minute, country) in found:
            raise AssertionError(f"{country} has the minute {_clock(minute)} twice; the time would mean nothing")
        found[minute, country] = (amount, events)
    return found


def difference(found: Answer, expected: Answer) -> str | None:
    """What is wrong with an answer, in one sentence; None when nothing is.

    >>> difference({(0, "AA"): (1.0, 1)}, {(0, "AA"): (1.5, 2)})
    'wrong answer: 1 of 1 groups differ, AA at 00:00 first; 1 of 2 events are counted'
    """
    wrong = sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))
    if not wrong:
        return None
    minute, country = wrong[0]
    counted, there = (sum(events for _, events in answer.values()) for answer in (found, expected))
    return (
        f"wrong answer: {len(wrong):,} of {len(expected):,} groups differ, {country} at {_clock(minute)} first; "
        f"{counted:,} of {there:,} events are counted"
    )


def check(found: Answer, expected: Answer) -> None:
    """A time counts only with the right answer."""
    wrong = difference(found, expected)
    if wrong is not None:
        raise AssertionError(wrong)


def _clock(minute_ms: int) -> str:
    return f"{dt.datetime.fromtimestamp(minute_ms / 1000, dt.UTC):%H:%M}"
