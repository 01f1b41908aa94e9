"""Tables without a key: equal rows, several times; whoever takes one away takes one that is there."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import Misuse, RowRefused
from headwater.log.home import Log
from headwater.log.schema.normalization import normalize_schema
from headwater.log.schema.row_conversion import to_batches
from headwater.log.schema.row_identity import row_identities
from headwater.log.table import Table, declare_table, open_table
from headwater.testing import Crash, CrashingFiles

ROOT = Path(__file__).parents[3]
THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))


def counts(table: Table, column: str) -> Counter[Any]:
    """What the log says, added up; no prefix of it may hold less than nothing."""
    found: Counter[Any] = Counter()
    for row in table.topic.rows(columns=["_weight", column]):
        found[row[column]] += row["_weight"]
        assert found[row[column]] >= 0, f"{row[column]!r} was taken away when it was not there"
    return +found


def test_a_delete_takes_one_equal_row_away(log: Log) -> None:
    basket = declare_table(log, "basket", "fruit STRING")
    basket.insert([{"fruit": "apple"}, {"fruit": "apple"}, {"fruit": "pear"}])

    basket.delete([{"fruit": "apple"}])

    assert counts(basket, "fruit") == {"apple": 1, "pear": 1}


def test_a_row_that_is_not_there_is_named_and_nothing_is_done(log: Log) -> None:
    basket = declare_table(log, "basket", "fruit STRING")
    basket.insert([{"fruit": "apple"}, {"fruit": "apple"}])

    with pytest.raises(RowRefused) as absent:
        basket.delete([{"fruit": "apple"}, {"fruit": "pear"}])
    with pytest.raises(RowRefused) as too_many:
        basket.delete([{"fruit": "apple"}] * 3)

    assert "row 1 (counted from 0) is not in table \"basket\": {'fruit': 'pear'}" in str(absent.value)
    assert "row 2 (counted from 0) is there 2 times, and taken 3 times, in table" in str(too_many.value)
    assert counts(basket, "fruit") == {"apple": 2}


def test_upsert_is_refused_with_advice(log: Log) -> None:
    basket = declare_table(log, "basket", "fruit STRING")

    with pytest.raises(Misuse, match="Use insert"):
        basket.upsert([{"fruit": "apple"}])


@pytest.mark.parametrize(
    ("kind", "stored", "given"),
    [
        ("DOUBLE", math.nan, -math.nan),
        ("DOUBLE", -0.0, 0.0),
        ("FLOAT", 0.5, 0.5),
        ("STRING", None, None),
        ("DECIMAL(10,2)", "1.5", "1.50"),
        ("TIMESTAMP", "2026-01-01T12:00:00Z", "2026-01-01T13:00:00+01:00"),
        ("BINARY", b"\x00", b"\x00"),
        ("ARRAY<DOUBLE>", [math.nan, -0.0, None], [math.nan, 0.0, None]),
        ("STRUCT<a: DOUBLE, b: STRING>", {"a": -0.0, "b": None}, {"a": 0.0}),
        ("MAP<STRING, DOUBLE>", {"x": 1.0, "y": -0.0}, {"y": 0.0, "x": 1.0}),
    ],
)
def test_rows_are_equal_as_sql_groups_them(log: Log, kind: str, stored: Any, given: Any) -> None:
    from decimal import Decimal

    as_decimal = kind.startswith("DECIMAL")
    table = declare_table(log, "things", f"x {kind}")
    table.insert([{"x": Decimal(stored) if as_decimal else stored}])

    table.delete([{"x": Decimal(given) if as_decimal else given}])

    assert [row["_weight"] for row in table.topic.rows()] == [1, -1]


def test_rows_that_differ_have_other_identities() -> None:
    schema = normalize_schema("a STRING, b STRING, c DOUBLE")
    rows = [
        {"a": "x", "b": None, "c": 0.0},
        {"a": None, "b": "x", "c": 0.0},
        {"a": "x", "b": "", "c": 0.0},
        {"a": "None", "b": None, "c": 0.0},
        {"a": None, "b": None, "c": 0.0},
        {"a": "x', 'y", "b": "z", "c": 0.0},
        {"a": "x", "b": "y', 'z", "c": 0.0},
        {"a": "x", "b": None, "c": math.nan},
        {"a": "x", "b": None, "c": math.inf},
        {"a": "x", "b": None, "c": 5e-324},
    ]

    assert len(set(row_identities(to_batches(rows, schema)))) == len(rows)


def test_a_new_column_leaves_older_rows_findable(log: Log) -> None:
    basket = declare_table(log, "basket", "fruit STRING")
    basket.insert([{"fruit": "apple"}, {"fruit": "apple"}])
    basket.delete([{"fruit": "apple"}])

    wider = declare_table(log, "basket", "fruit STRING, ripe BOOLEAN")
    wider.insert([{"fruit": "apple", "ripe": True}])
    basket.delete([{"fruit": "apple"}])  # the older handle has counted under the older schema

    with pytest.raises(RowRefused):
        wider.delete([{"fruit": "apple"}])
    assert wider.schema.names == ["fruit", "ripe"]
    assert declare_table(log, "basket", "fruit STRING").topic.schema_version == 2


Steps = st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 3), max_size=4), st.booleans()), max_size=25)


@settings(max_examples=25 * THOROUGH, deadline=None)
@given(steps=Steps)
def test_a_bag_behaves_as_a_counter(tmp_path_factory: pytest.TempPathFactory, steps: Any) -> None:
    home = tmp_path_factory.mktemp("home")
    model: Counter[int] = Counter()
    with Log(home, maintenance_interval=None) as log, Log(home, maintenance_interval=None) as other:
        tables = [declare_table(each, "bag", "x INT", segment_bytes_max=2000, fsync="never") for each in (log, other)]
        for insert, numbers, which in steps:
            table = tables[which]
            rows = [{"x": number} for number in numbers]
            if insert:
                table.insert(rows)
                model.update(numbers)
            elif all(model[number] >= many for number, many in Counter(numbers).items()):
                table.delete(rows)
                model.subtract(numbers)
            else:
                with pytest.raises(RowRefused):
                    table.delete(rows)

        assert counts(tables[0], "x") == +model


def test_of_many_threads_that_take_the_last_row_one_succeeds(log: Log) -> None:
    basket = declare_table(log, "basket", "fruit STRING")
    basket.insert([{"fruit": "apple"}] * 3)

    def take(_: int) -> bool:
        try:
            basket.delete([{"fruit": "apple"}])
            return True
        except RowRefused:
            return False

    with ThreadPoolExecutor(8) as threads:
        taken = list(threads.map(take, range(16)))

    assert sum(taken) == 3
    assert counts(basket, "fruit") == {}


CLERK = """
import random, sys
from headwater.errors import RowRefused
from headwater.log.home import Log
from headwater.log.table import open_table

bag = open_table(Log(sys.argv[1]), "bag")
chance, taken = random.Random(int(sys.argv[2])), 0
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[3])):
    if sys.argv[4] == "mixed" and chance.random() < 0.5:
        bag.insert([{"x": chance.randrange(3)}])
    else:
        try:
            bag.delete([{"x": chance.randrange(3)}])
            taken += 1
        except RowRefused:
            pass
print(taken, flush=True)
"""


def clerks(home: Path, count: int, steps: int, kind: str) -> list[subprocess.Popen[str]]:
    """Processes that work on the bag, each waiting for a line before it begins."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", CLERK, str(home), str(seed), str(steps), kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )
        for seed in range(count)
    ]
    for clerk in started:
        assert clerk.stdout is not None
        assert clerk.stdout.readline() == "ready\n"
    return started


def test_processes_that_take_at_once_never_take_one_row_twice(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        bag = declare_table(log, "bag", "x INT")
        bag.insert([{"x": number % 3} for number in range(90)])

        working = clerks(tmp_path, 3, 60, "takers")
        taken = [int(clerk.communicate("go\n", timeout=60)[0]) for clerk in working]

        assert 90 - sum(taken) == sum(counts(bag, "x").values())


def test_processes_that_are_killed_leave_no_row_taken_that_was_not_there(tmp_path: Path) -> None:
    chance = random.Random(7)
    with Log(tmp_path) as log:
        bag = declare_table(log, "bag", "x INT")
        for _ in range(2 * THOROUGH):
            working = clerks(tmp_path, 3, 1_000_000, "mixed")
            before = bag.topic.end_offsets()[0]
            for clerk in working:
                assert clerk.stdin is not None
                clerk.stdin.write("go\n")
                clerk.stdin.flush()
            for clerk in working:
                before += chance.randrange(5, 60)
                bag.topic.wait({0: before}, timeout=60)
                clerk.send_signal(signal.SIGKILL)
            for clerk in working:
                clerk.communicate()
                assert clerk.returncode == -signal.SIGKILL

        # Whoever writes next takes up the row that a killed clerk had written whole and nobody could read yet.
        bag.insert([{"x": 0}])
        left = counts(bag, "x")
        bag.delete([{"x": number} for number in left.elements()])

        assert counts(bag, "x") == {}
        assert log.check().ok


@pytest.mark.parametrize("boundary", range(8))
def test_a_row_that_a_process_took_as_it_died_cannot_be_taken_again(tmp_path: Path, boundary: int) -> None:
    files = CrashingFiles()
    dying = Log(tmp_path, files=files)
    mine = declare_table(dying, "bag", "x INT", fsync="never")
    with Log(tmp_path) as log:
        bag = open_table(log, "bag")
        bag.insert([{"x": 1}])  # it has the table open, and has looked
        mine.insert([{"x": 2}])
        files.crash_at = len(files.boundaries) + boundary
        with suppress(Crash):
            mine.delete([{"x": 1}])
        for partition in mine.topic._partitions:
            partition.abandon()

        with suppress(RowRefused):
            bag.delete([{"x": 1}])

        assert counts(bag, "x") == {2: 1}
        assert list(bag.rows()) == [{"x": 2}]
    dying.closed = True
