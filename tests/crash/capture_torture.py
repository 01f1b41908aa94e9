"""Torture for a capture: writers that never stop, and what must hold of the log in the end.

What it is: ``Writer`` runs random transactions over several tables and remembers what it committed; ``judge`` compares
the log with that and with the database.
Invariants: a writer whose connection broke in a commit asks the database whether the transaction is there. Every
transaction keeps the sum of all money at zero. Every change of a row has a number.
Not here: the faults (``test_capture_torture.py``).
Read next: ``test_capture_torture.py``.
"""

from __future__ import annotations

import contextlib
import random
import string
import threading
import time
from collections import Counter
from math import inf
from typing import Any

from headwater.log.contract import EventTopic
from headwater.log.event_time.capture_markers import Markers
from tests.crash.captured_databases import DATABASES

TABLES = ("accounts", "entries", "notes", "lines", "labels")
MONEY = ("accounts", "entries")
KEYS = 900  # each writer's own
WRITERS = 2
GONE = -1


def prepare(kind: str, dsn: str) -> None:
    """Tables, with some rows to backfill."""
    words = DATABASES[kind]
    with words.connect(dsn) as connection:
        connection.execute("CREATE TABLE writers (id INT PRIMARY KEY, done BIGINT)")
        for number in range(WRITERS):
            connection.execute(f"INSERT INTO writers VALUES ({number}, 0)")
        for name in MONEY:
            numbers = words.numbers.format(count=KEYS)
            connection.execute(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, amount BIGINT, change BIGINT)")
            connection.execute(f"INSERT INTO {name} SELECT {words.number}, 0, 0 FROM {numbers}")
        connection.execute("CREATE TABLE notes (id INT PRIMARY KEY, body TEXT, likes INT, change BIGINT)")
        connection.execute("CREATE TABLE lines (line TEXT, n INT)")
        connection.execute("CREATE TABLE labels (id VARCHAR(20) PRIMARY KEY, n INT)")
        if words.after_create:
            connection.execute(words.after_create)
        numbers = words.numbers.format(count=200)
        connection.execute(f"INSERT INTO lines SELECT {words.text}, {words.number} % 3 FROM {numbers}")
        connection.execute(f"INSERT INTO labels SELECT CAST({words.number} AS CHAR(20)), 0 FROM {numbers}")
        connection.commit()


class Writer(threading.Thread):
    """Random transactions, one after the other, over any number of broken connections."""

    def __init__(self, kind: str, dsn: str, number: int, seed: int) -> None:
        super().__init__(daemon=True, name=f"writer-{number}")
        self.words = DATABASES[kind]
        self.dsn = dsn
        self.number = number
        self.chance = random.Random(seed)
        self.change = number  # its changes have numbers of their own: every WRITERS-th
        self.turn = 0
        self.history: dict[tuple[str, int], list[int]] = {}  # of each row: the numbers of its changes, in order
        self.stopping = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        connection = None
        try:
            while not self.stopping.is_set():
                try:
                    if connection is None or connection.closed:
                        connection = self.words.connect(self.dsn)
                    self.transaction(connection)
                except self.words.broken:
                    connection = None
                    time.sleep(0.01)  # the server is on its way up
        except BaseException as error:
            self.error = error

    def transaction(self, connection: Any) -> None:
        self.turn += 1
        made: list[tuple[str, int, int]] = []
        try:
            for _ in range(self.chance.choice((1, 1, 2, 3, 60))):
                self.step(connection, made)
            connection.execute("UPDATE writers SET done = %s WHERE id = %s", (self.turn, self.number))
            if self.chance.random() < 0.1:
                connection.rollback()
                return
            connection.commit()
        except self.words.error:
            # MariaDB takes back only the statement that waited too long for a lock, not its transaction.
            with contextlib.suppress(self.words.error, OSError):
                connection.rollback()
            if not self.committed():
                return
        for table, key, change in made:
            self.history.setdefault((table, key), []).append(change)

    def committed(self) -> bool:
        """Whether the transaction that broke is there after all."""
        while not self.stopping.is_set():
            try:
                with self.words.connect(self.dsn) as connection:
                    row = connection.execute("SELECT done FROM writers WHERE id = %s", (self.number,)).fetchone()
                    return bool(row[0] == self.turn)
            except self.words.broken:
                time.sleep(0.02)
        return False

    def own(self, count: int) -> int:
        return self.chance.randrange(1, count + 1) * WRITERS + self.number

    def next_change(self) -> int:
        self.change += WRITERS
        return self.change

    def step(self, connection: Any, made: list[tuple[str, int, int]]) -> None:
        kind = self.chance.randrange(10)
        if kind < 5:
            self.transfer(connection, made)
        elif kind < 8:
            self.note(connection, made)
        elif kind < 9:
            self.line(connection)
        else:
            self.label(connection)

    def transfer(self, connection: Any, made: list[tuple[str, int, int]]) -> None:
        """Money from a row of one table to a row of the other; what there was of both is carried along."""
        amount = self.chance.randrange(1, 100)
        kept = 0
        for name, sign in zip(MONEY, (1, -1), strict=True):
            key = self.own(KEYS // 3)
            change = self.next_change()
            fate = self.chance.random()
            if fate < 0.2:  # the row goes, its money moves on
                row = connection.execute(f"DELETE FROM {name} WHERE id = %s RETURNING amount", (key,)).fetchone()
                if row is not None:
                    made.append((name, key, GONE))
                    kept += row[0]
                key, change = self.own(KEYS // 3), self.next_change()
            elif fate < 0.3:  # a key changes
                new = self.own(KEYS // 3)
                there = connection.execute(f"SELECT 1 FROM {name} WHERE id = %s", (new,)).fetchone()
                if there is None:
                    moved = connection.execute(
                        f"UPDATE {name} SET id = %s, change = %s WHERE id = %s", (new, change, key)
                    ).rowcount
                    if moved:
                        made += [(name, key, GONE), (name, new, change)]
                    change = self.next_change()
            sql = self.words.upsert(name, "id, amount, change", {"amount": "{old} + {new}", "change": "{new}"})
            connection.execute(sql, (key, sign * amount + kept, change))
            made.append((name, key, change))
            kept = 0

    def note(self, connection: Any, made: list[tuple[str, int, int]]) -> None:
        key, change = self.own(20), self.next_change()
        fate = self.chance.random()
        if fate < 0.3:
            body = "".join(self.chance.choices(string.ascii_letters, k=self.chance.choice((10, 5000))))
            sql = self.words.upsert("notes", "id, body, likes, change", {"body": "{new}", "change": "{new}"})
            connection.execute(sql, (key, body, 0, change))
            made.append(("notes", key, change))
        elif fate < 0.9:
            sql = "UPDATE notes SET likes = likes + 1, change = %s WHERE id = %s"
            if connection.execute(sql, (change, key)).rowcount:
                made.append(("notes", key, change))
        elif connection.execute("DELETE FROM notes WHERE id = %s", (key,)).rowcount:
            made.append(("notes", key, GONE))

    def line(self, connection: Any) -> None:
        text, number = f"line {self.own(5)}", self.chance.randrange(3)
        fate = self.chance.random()
        if fate < 0.5:
            connection.execute("INSERT INTO lines (line, n) VALUES (%s, %s)", (text, number))
        elif fate < 0.8:
            connection.execute("UPDATE lines SET n = (n + 1) %% 3 WHERE line = %s", (text,))
        else:
            connection.execute("DELETE FROM lines WHERE line = %s", (text,))

    def label(self, connection: Any) -> None:
        """A table with a text for its key, which is emptied at times and gets columns that have a default."""
        key = self.chance.choice(("{}", "k{}", "é{}")).format(self.own(30))
        if self.chance.random() < 0.7:
            connection.execute(self.words.upsert("labels", "id, n", {"n": "{old} + 1"}), (key, 0))
        else:
            connection.execute("DELETE FROM labels WHERE id = %s", (key,))

    def stop(self) -> None:
        self.stopping.set()
        self.join()
        if self.error is not None:
            raise self.error


# Judging


def judge(
    kind: str, dsn: str, topics: dict[str, EventTopic], markers: Markers, writers: list[Writer]
) -> dict[str, int]:
    """Compare the log with the database and with what the writers know; how much was compared."""
    found = {name: _records(topic) for name, topic in topics.items()}
    for name in TABLES:
        here, there = _state(topics[name], found[name]), _source(kind, dsn, name)
        only = [[str(row)[-300:] for row in list(rows)[:5]] for rows in (here - there, there - here)]
        assert here == there, f"{name}: only here {only[0]}, only there {only[1]}"
    compared = 0
    for name in (*MONEY, "notes"):
        compared += _each_change_once(name, found[name], writers)
    seen = _markers_whole(markers, found)
    return {"changes": compared, "markers": seen, "records": sum(map(len, found.values()))}


def _records(topic: EventTopic) -> list[dict[str, Any]]:
    topic.refresh()
    extra = [] if topic.row().is_multiset else ["_deleted"]
    return list(topic.rows(columns=[*topic.schema.names, *extra, "_offset"]))


def _state(topic: EventTopic, rows: list[dict[str, Any]]) -> Counter[str]:
    if topic.row().is_multiset:
        bag: Counter[str] = Counter()
        for row in rows:
            bag[_text(row)] += row["_weight"]
            assert bag[_text(row)] >= 0
        return +bag
    live = {}
    for row in rows:
        live[row["id"]] = None if row["_deleted"] else row
    return Counter(_text(row) for row in live.values() if row is not None)


def _text(row: dict[str, Any]) -> str:
    hidden = ("_weight", "_deleted", "_offset")
    return repr(sorted((name, value) for name, value in row.items() if name not in hidden))


def _source(kind: str, dsn: str, table: str) -> Counter[str]:
    return Counter(map(_text, DATABASES[kind].rows(dsn, table)))


def _each_change_once(name: str, rows: list[dict[str, Any]], writers: list[Writer]) -> int:
    """What the log has of a row is the end of what was committed to it: nothing twice, nothing between missing.

    But a table that got a column while it was read is read again (``capture/backfill.py``): of a row that was read
    before, what was committed between the two readings is not in the log.
    """
    added = sum(column.startswith("extra") for column in (rows[0] if rows else ()))
    logged: dict[int, list[int]] = {}
    last = dict.fromkeys(range(WRITERS), 0)
    for row in rows:
        logged.setdefault(row["id"], []).append(GONE if row["_deleted"] else row["change"])
    for key, changes in logged.items():
        written = writers[key % WRITERS].history.get((name, key), [])
        whole = [0, *written] if name in MONEY and key <= KEYS else written
        assert gaps(changes, whole) <= added, f"{name} {key}: {changes} of {whole}"
    streamed = [row["change"] for row in rows if not row["_deleted"]]
    for change in streamed[_backfilled(rows) :]:
        assert change > last[change % WRITERS], f"{name}: change {change} after {last[change % WRITERS]}"
        last[change % WRITERS] = change
    return sum(map(len, logged.values()))


def gaps(changes: list[int], whole: list[int]) -> float:
    """Between how many of the changes some are missing, if they are in order in the whole and at its end.

    >>> gaps([3, 4], [1, 2, 3, 4]), gaps([1, 3, 4], [1, 2, 3, 4]), gaps([3], [3, 4]), gaps([3, 3], [3])
    (0, 1, inf, inf)
    """
    left, found = list(whole), 0
    for place, change in enumerate(reversed(changes)):
        if not left or left[-1] != change:
            found += 1
            if place == 0:
                return inf
        while left and left[-1] != change:
            left.pop()
        if not left:
            return inf
        left.pop()
    return found


def _backfilled(rows: list[dict[str, Any]]) -> int:
    """How many rows the backfill had: up to the first key that comes again, or tombstone, or more than enough."""
    seen: set[int] = set()
    for place, row in enumerate(rows):
        if row["_deleted"] or row["id"] in seen:
            return place
        seen.add(row["id"])
    return len(rows)


def _markers_whole(markers: Markers, found: dict[str, list[dict[str, Any]]]) -> int:
    """At every marker there is as much money as ever: none of them shows half a transaction."""
    reached = dict.fromkeys(MONEY, 0)
    held: dict[str, dict[int, int]] = {name: {} for name in MONEY}
    total = count = 0
    marker = markers.at(markers.topic.start_offsets()[0])
    while marker is not None:
        count += 1
        for name in MONEY:
            end = marker.ends.get(name, 0)
            assert end >= reached[name]
            for row in (row for row in found[name] if reached[name] <= row["_offset"] < end):
                total -= held[name].pop(row["id"], 0)
                if not row["_deleted"]:
                    held[name][row["id"]] = row["amount"]
                    total += row["amount"]
            reached[name] = end
        if all(name in marker.ends for name in MONEY):
            assert total == 0, f"marker {marker.offset} shows {total}"
        marker = markers.at(marker.offset + 1)
    return count
