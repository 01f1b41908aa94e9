"""One view's table in the serving store that cannot take its changes.

What it is: a table that lacks the row that is to leave, beside one that is sound, with and without ``on_broken``.
Invariants: the sound view has the tick; the damaged one cannot be read, in any process, until it was refilled.
Not here: refilling (``tests/spark/test_paused_views.py``).
Read next: ``views/serving/serving_damage.py``.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.errors import Corruption, Misuse, Unavailable
from headwater.views.serving.serving_store import ServingStore

COLUMNS = [("id", "BIGINT"), ("n", "BIGINT")]


def changes(*rows: tuple[int, int, int]) -> pa.Table:
    return pa.table(dict(zip(("id", "n", "_weight"), map(list, zip(*rows, strict=True)), strict=True)))


@pytest.fixture
def store(tmp_path: Path) -> ServingStore:
    """Two views at tick 1, of which one has lost its row."""
    store = ServingStore(tmp_path / "serving.sqlite")
    for view in ("sound", "damaged"):
        store.declare(view, COLUMNS, ["id"])
    store.apply(1, 1, {}, {"sound": changes((1, 5, 1)), "damaged": changes((1, 5, 1))})
    with sqlite3.connect(store.path) as db:
        db.execute('DELETE FROM "damaged@2"')
    db.close()
    return store


def test_the_damaged_view_alone_misses_the_tick_and_nobody_reads_it_until_it_is_filled(store: ServingStore) -> None:
    told: list[str] = []
    second = {"damaged": changes((1, 5, -1), (1, 6, 1)), "sound": changes((1, 5, -1), (1, 6, 1))}
    third = {"damaged": changes((1, 6, -1), (1, 7, 1)), "sound": changes((1, 6, -1), (1, 7, 1))}

    store.apply(2, 1, {}, second, on_broken=lambda view, _: told.append(view))
    store.apply(3, 1, {}, third, on_broken=lambda view, _: told.append(view))

    assert told == ["damaged"]
    with ServingStore(store.path) as other:  # a process that starts after a crash
        assert other.tick == 3
        assert other.get("sound", 1) == [{"id": 1, "n": 7}]
        assert list(other.broken()) == ["damaged"]
        with pytest.raises(Unavailable, match='view "damaged" cannot be read from the serving store'):
            other.get("damaged", 1)
        with pytest.raises(Misuse, match="damaged"):
            other.query("SELECT * FROM damaged")
        other.reset("damaged", pa.table({"id": [1], "n": [7]}).to_reader(), tick=3)
        assert other.broken() == {}
    assert store.get("damaged", 1) == store.query("SELECT * FROM damaged").to_pylist() == [{"id": 1, "n": 7}]


def test_without_a_callback_the_whole_tick_is_refused(store: ServingStore) -> None:
    with pytest.raises(Corruption, match='a row that leaves view "damaged" is not in the serving store'):
        store.apply(2, 1, {}, {"sound": changes((1, 5, -1)), "damaged": changes((1, 5, -1))})

    assert store.tick == 1
    assert store.get("sound", 1) == [{"id": 1, "n": 5}]
