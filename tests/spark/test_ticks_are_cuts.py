"""Ticks over several partitions and topics: whole appends, and no effect without its cause.

What it is: bookings of two rows over eight partitions, with limits on a tick's rows, and causes and effects in two
topics; each published tick is judged by the view's own rows.
Invariants: money is neither made nor lost in any tick; a post is never shown without the block before it.
Not here: cuts without Spark (``tests/unit/log/commits/test_consistent_cut.py``).
Read next: ``log/commits/consistent_cut.py``.
"""

from __future__ import annotations

import itertools
import random
import threading
from pathlib import Path

import pytest

import headwater as hw
from headwater.log.storage.partition_reader import PartitionReader


@pytest.mark.usefixtures("spark")
def test_no_tick_shows_half_of_a_booking_whatever_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.log.commits.cut_numbers.CUT_ROWS_MAX", 16)
    chance = random.Random(3)
    with hw.App("bank", home=tmp_path / "home") as app:
        bookings = app.topic(
            "bookings", "id BIGINT, account BIGINT, amount BIGINT", key="id", partitions=8, segment_bytes_max=8000
        )
        app.view("total", "SELECT sum(amount) AS money, count(*) AS bookings FROM bookings")
        for number in range(100):
            amount, (one, other) = chance.randrange(1, 100), chance.sample(range(50), 2)
            bookings.append(
                [
                    {"id": 2 * number, "account": one, "amount": -amount},
                    {"id": 2 * number + 1, "account": other, "amount": amount},
                ]
            )

        ticks, rows = 0, 0
        while True:
            report = app.tick(rows_max=30)
            [row] = app.get_view("total").rows()
            assert row["money"] == 0
            assert row["bookings"] - rows <= 30
            rows, ticks = row["bookings"], ticks + 1
            if not report.behind:
                break
        assert (rows, ticks >= 7) == (200, True)


@pytest.mark.usefixtures("spark")
def test_no_tick_shows_an_effect_without_its_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time that a tick has read the end of the causes, a cause and, when that has returned, an effect is added."""
    with hw.App("friends", home=tmp_path / "home") as app:
        causes, effects = app.topic("a_blocks", "n BIGINT"), app.topic("b_posts", "n BIGINT", partitions=4)
        app.view("leaks", "SELECT p.n FROM b_posts p WHERE NOT EXISTS (SELECT 1 FROM a_blocks b WHERE b.n = p.n)")
        numbers, plain_end = itertools.count(), PartitionReader.end_offset
        inside = threading.Event()

        def end_and_then_more(reader: PartitionReader) -> int:
            end = plain_end(reader)
            if reader.topic().name == "a_blocks" and not inside.is_set():
                inside.set()
                number = next(numbers)
                causes.append([{"n": number}])
                effects.append([{"n": number}])
                inside.clear()
            return end

        monkeypatch.setattr(PartitionReader, "end_offset", end_and_then_more)
        for _ in range(5):
            app.tick()
            assert list(app.get_view("leaks").rows()) == []
        monkeypatch.undo()
        assert next(numbers) > 5


@pytest.mark.usefixtures("spark")
def test_every_row_of_an_ordered_stream_is_an_event(tmp_path: Path) -> None:
    with hw.App("payments", home=tmp_path / "home") as app:
        payments = app.topic("payments", "account_id BIGINT, cents BIGINT", ordered_by="account_id", partitions=4)
        app.view("balance", "SELECT account_id, sum(cents) AS cents, count(*) AS n FROM payments GROUP BY account_id")
        for cents in (5, 7):
            payments.append([{"account_id": account, "cents": cents} for account in range(20)])
            app.tick()

        assert {tuple(row.values()) for row in app.get_view("balance").rows()} == {(n, 12, 2) for n in range(20)}
        places = {}
        for row in payments.rows(columns=["account_id", "_partition"]):
            assert places.setdefault(row["account_id"], row["_partition"]) == row["_partition"]
