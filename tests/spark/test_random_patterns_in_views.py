"""Random patterns in views: after every tick each view shows what the enumeration of all mappings finds.

What it is: dozens of random clauses, each a view of one app, over one table whose rows come late, change and go; and
over a topic, with absences and timed-out matches, whose watermark passes.
Invariants: the oracle is ``brute_force.py``, over the rows that are there; what happens to them is decided first, so
that clauses that may not be skipped from (``SkipRefused``) are left out. A seed decides everything.
Not here: the matcher without Spark, thousands of cases (``tests/unit/patterns/test_random_patterns.py``); views by hand
(``test_pattern_views.py``). Read next: those two.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.errors import InvalidPattern
from headwater.views import thresholds
from tests.crash.ledger import many
from tests.unit.patterns.brute_force import Recognition, SkipRefused, output_rows
from tests.unit.patterns.random_patterns import SECOND, compiled, random_case

pytestmark = pytest.mark.usefixtures("spark")

COLUMNS = "seq BIGINT, k BIGINT, t TIMESTAMP, x BIGINT, y BIGINT"
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
NEVER = 10**12  # a watermark behind everything
VIEWS, TIMED_VIEWS, TICKS = 20, 12, 10

Row = dict[str, Any]
Answer = list[tuple[Any, ...]]


@dataclass(frozen=True)
class RandomView:
    """A clause as a view, and what it shows after each tick."""

    sql: str
    clause: Recognition
    shown: list[Answer]


def answer(clause: Recognition, rows: list[Row], watermark: int | None) -> Answer:
    """What a clause gives over some rows."""
    found: Answer = []
    for key in {row["k"] for row in rows}:
        own = sorted((row for row in rows if row["k"] == key), key=lambda row: (row["t"], row["seq"]))
        for each in output_rows(clause, own, watermark):
            place = (key,) if clause.mode == "one" else (key, own[each["row"]]["seq"])
            found.append((*place, *(each[name] for name in clause.measures)))
    return sorted(found, key=repr)


def random_views(states: list[list[Row]], watermark: int | None, *, timed: bool) -> Iterator[RandomView]:
    """Clauses that can be skipped from whatever the rows are; ``timed``: each with an absence or timed-out matches."""
    for seed in range(10_000):
        case = random_case(seed, history=seed % 2 == 0, timed=timed or seed % 3 == 0)
        if bool(case.clause.absent or case.clause.timed_out) != timed:
            continue
        if timed and ("NEXT(" in case.sql or "$" in case.sql):  # they wait for rows behind the deadline, however long
            continue
        with suppress(InvalidPattern, SkipRefused):
            compiled(case.sql)
            shown = [answer(case.clause, rows, watermark) for rows in states]
            names = ["k", *([] if case.clause.mode == "one" else ["seq"]), *case.clause.measures]
            yield RandomView(f"SELECT {', '.join(names)} FROM {case.sql}", case.clause, shown)


def taken(views: Iterator[RandomView], count: int) -> list[RandomView]:
    """So many of them; at most every fourth shows nothing."""
    found, silent = [], 0
    while len(found) < count:
        view = next(views)
        if not any(view.shown):
            silent += 1
            if silent > count // 4:
                continue
        found.append(view)
    return found


def stored(row: Row) -> Row:
    return {**row, "t": EPOCH + dt.timedelta(microseconds=row["t"])}


def random_row(chance: random.Random, seq: int, t: int) -> Row:
    return {
        "seq": seq,
        "k": chance.randrange(4),
        "t": t,
        "x": chance.randint(0, 4),
        "y": chance.choice([None, 0, 1, 2]),
    }


def shown(app: hw.App, name: str) -> Answer:
    return sorted((tuple(row.values()) for row in app.get_view(name).rows()), key=repr)


@pytest.mark.timeout(300 * many(1))
@pytest.mark.parametrize("seed", range(many(1)))
def test_random_patterns_follow_rows_that_come_late_change_and_go(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    rows: dict[int, Row] = {}
    changes: list[tuple[list[Row], list[Row]]] = []
    states: list[list[Row]] = []
    for tick in range(TICKS):
        come, gone = {}, {}
        for _ in range(chance.choice((1, 4, 8))):
            seq = chance.randrange(24)
            if seq in rows and chance.random() < 0.3:
                gone[seq] = rows.pop(seq)
                come.pop(seq, None)
            else:
                late = chance.random() < 0.4
                t = chance.randint(0, 30 if late else 4) + (0 if late else 5 * tick)
                rows[seq] = come[seq] = random_row(chance, seq, t * SECOND)
                gone.pop(seq, None)
        changes.append((list(come.values()), list(gone.values())))
        states.append(list(rows.values()))
    views = taken(random_views(states, None, timed=False), VIEWS)

    with hw.App("random", home=tmp_path / "home") as app:
        table = app.table("t", COLUMNS, key="seq")
        for number, view in enumerate(views):
            app.view(f"v{number}", view.sql)
        for tick, (come, gone) in enumerate(changes):
            if come:
                table.upsert(map(stored, come))
            if gone:
                table.delete([{"seq": row["seq"]} for row in gone])
            app.tick()
            for number, view in enumerate(views):
                assert shown(app, f"v{number}") == view.shown[tick], (tick, view.sql, states[tick])
        monkeypatch.setattr(thresholds, "TASK_ROWS_MAX", 0)  # executors match
        for number in chance.sample(range(VIEWS), 1):
            app.rebuild(f"v{number}")
            assert shown(app, f"v{number}") == views[number].shown[-1], views[number].sql
            assert app.get_view(f"v{number}").verify().equal, views[number].sql


@pytest.mark.timeout(300 * many(1))
@pytest.mark.parametrize("seed", range(many(1)))
def test_what_is_absent_or_out_of_time_is_shown_once_and_stays(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    batches: list[list[Row]] = []
    for tick in range(TICKS // 2):
        times = sorted(chance.randint(0, 5) + 6 * tick for _ in range(chance.choice((2, 5))))
        batches.append([random_row(chance, 100 * tick + at, t * SECOND) for at, t in enumerate(times)])
    rows = [row for batch in batches for row in batch]
    views = taken(random_views([rows], NEVER, timed=True), TIMED_VIEWS)

    with hw.App("random", home=tmp_path / "home") as app:
        topic = app.topic("t", COLUMNS, event_time="t")
        for number, view in enumerate(views):
            app.view(f"v{number}", view.sql, emit="final")
        before: list[Answer] = [[] for _ in views]
        for batch in [*batches, [{"seq": 9999, "k": 99, "t": 1000 * SECOND, "x": 0, "y": 0}]]:
            topic.append(map(stored, batch))
            app.tick()
            for number, view in enumerate(views):
                now = [row for row in shown(app, f"v{number}") if row[0] != 99]
                assert all(now.count(row) >= before[number].count(row) for row in before[number]), view.sql
                assert all(view.shown[0].count(row) >= now.count(row) for row in now), (view.sql, rows)
                before[number] = now
        for view, now in zip(views, before, strict=True):
            assert now == view.shown[0], (view.sql, rows)
