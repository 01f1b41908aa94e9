"""Patterns in views: after every tick the matches are those of all rows at once.

What it is: views with MATCH_RECOGNIZE over a table whose rows come late, change and go, in ticks of a few rows. Each is
compared with a search by hand (``SEARCHES``) that knows nothing of the matcher, and with one batch run by ``verify``.
Invariants: the seed decides everything. Not here: the grammar, against an enumeration of all matches
(``test_random_patterns_in_views.py``, ``tests/unit/patterns``). Read next: ``src/headwater/views/stages/match_run.py``.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.errors import InvalidDeclaration, InvalidView
from headwater.views import thresholds
from headwater.views.stages.match_expiry import _Restricted
from headwater.views.state.delta import Delta
from headwater.views.state.state_trace import StateTrace
from tests.crash.ledger import many

pytestmark = pytest.mark.usefixtures("spark")

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
Row = dict[str, Any]

VIEWS = {
    "rises": """
        SELECT symbol, first_id, last_id, steps FROM trades MATCH_RECOGNIZE (
          PARTITION BY symbol ORDER BY at
          MEASURES FIRST(a.id) AS first_id, LAST(b.id) AS last_id, count(b.id) AS steps
          PATTERN (a b{2,}) DEFINE b AS price > PREV(price))""",
    "soon": """
        SELECT * FROM trades MATCH_RECOGNIZE (
          PARTITION BY symbol ORDER BY at MEASURES a.id AS low, b.id AS high, b.price - a.price AS gain
          AFTER MATCH SKIP TO NEXT ROW
          PATTERN (a x*? b) WITHIN INTERVAL '10' MINUTE
          DEFINE a AS price < 3, b AS price > a.price + 4)""",
    "marked": """
        SELECT id, symbol, variable, number, mid FROM (SELECT * FROM trades WHERE price <> 5) MATCH_RECOGNIZE (
          PARTITION BY symbol ORDER BY at
          MEASURES CLASSIFIER() AS variable, MATCH_NUMBER() AS number, FINAL percentile(u.price, 0.5) AS mid
          ALL ROWS PER MATCH WITH UNMATCHED ROWS
          PATTERN (u d) SUBSET w = (u, d) DEFINE u AS price < NEXT(price), d AS d.price > u.price)""",
    "together": """
        WITH cheap AS (SELECT id, price, at FROM trades WHERE price < 7)
        SELECT m.total, t.symbol FROM cheap MATCH_RECOGNIZE (
          ORDER BY at MEASURES sum(a.price) AS total, LAST(a.id) AS id
          PATTERN (a{3}) DEFINE a AS true) AS m JOIN trades t ON t.id = m.id""",
    "by_number": """
        SELECT * FROM trades MATCH_RECOGNIZE (
          PARTITION BY symbol ORDER BY id DESC MEASURES FIRST(id) AS newest, LAST(id) AS oldest
          PATTERN (a a) DEFINE a AS price >= 4)""",
}


def _of(rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    for symbol in sorted({row["symbol"] for row in rows}):
        yield symbol, sorted((row for row in rows if row["symbol"] == symbol), key=lambda row: (row["at"], row["id"]))


def rises(rows: list[Row]) -> list[tuple[Any, ...]]:
    found = []
    for symbol, own in _of(rows):
        at = 0
        while at < len(own):
            end = at + 1
            while end < len(own) and own[end]["price"] > own[end - 1]["price"]:
                end += 1
            if end - at >= 3:
                found.append((symbol, own[at]["id"], own[end - 1]["id"], end - at - 1))
                at = end
            else:
                at += 1
    return found


def soon(rows: list[Row], minutes: int = 10) -> list[tuple[Any, ...]]:
    found = []
    for symbol, own in _of(rows):
        for at, first in enumerate(own):
            for last in own[at + 1 :] if first["price"] < 3 else []:
                if last["at"] - first["at"] > dt.timedelta(minutes=minutes):
                    break
                if last["price"] > first["price"] + 4:
                    found.append((symbol, first["id"], last["id"], last["price"] - first["price"]))
                    break
    return found


def marked(rows: list[Row]) -> list[tuple[Any, ...]]:
    found = []
    for symbol, own in _of([row for row in rows if row["price"] != 5]):
        at, number = 0, 0
        while at < len(own):
            if at + 1 < len(own) and own[at]["price"] < own[at + 1]["price"]:
                number += 1
                middle = float(own[at]["price"])
                found += [(own[at + n]["id"], symbol, "ud"[n], number, middle) for n in range(2)]
                at += 2
            else:
                found.append((own[at]["id"], symbol, None, None, None))
                at += 1
    return found


def together(rows: list[Row]) -> list[tuple[Any, ...]]:
    own = sorted((row for row in rows if row["price"] < 7), key=lambda row: (row["at"], row["id"]))
    parts = [own[at : at + 3] for at in range(0, len(own) - 2, 3)]
    return [(sum(row["price"] for row in part), part[-1]["symbol"]) for part in parts]


def by_number(rows: list[Row]) -> list[tuple[Any, ...]]:
    found = []
    for symbol, own in _of(rows):
        backwards, at = sorted(own, key=lambda row: -row["id"]), 0
        while at + 1 < len(backwards):
            if backwards[at]["price"] >= 4 and backwards[at + 1]["price"] >= 4:
                found.append((symbol, backwards[at]["id"], backwards[at + 1]["id"]))
                at += 2
            else:
                at += 1
    return found


SEARCHES: dict[str, Callable[[list[Row]], list[tuple[Any, ...]]]] = {
    "rises": rises,
    "soon": soon,
    "marked": marked,
    "together": together,
    "by_number": by_number,
}


def declared(home: Path) -> hw.App:
    app = hw.App("market", home=home)
    app.table("trades", "id BIGINT, symbol STRING, price INT, at TIMESTAMP", key="id")
    for name, sql in VIEWS.items():
        app.view(name, sql)
    return app


def shown(app: hw.App, name: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in app.get_view(name).rows()), key=repr)


@pytest.mark.parametrize("seed", range(many(1)))
def test_matches_are_those_of_all_rows_after_every_tick(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    kept: dict[int, Row] = {}
    with declared(tmp_path / "home") as app:
        trades = app.get_table("trades")
        for number in range(many(8)):
            for _ in range(chance.choice((1, 3, 20))):
                id = chance.randrange(60)
                if id in kept and chance.random() < 0.3:
                    del kept[id]
                    trades.delete([{"id": id}])
                    continue
                minute = chance.uniform(0, 30) if number < 2 or chance.random() < 0.2 else 30 + number * 5 + id / 60
                at = BEGIN + dt.timedelta(seconds=round(minute * 60))
                row = {"id": id, "symbol": chance.choice("xyz"), "price": chance.randrange(10), "at": at}
                kept[id] = row
                trades.upsert([row])
            app.tick()
            for name, search in SEARCHES.items():
                assert shown(app, name) == sorted(search(list(kept.values())), key=repr), (name, number)
        monkeypatch.setattr(thresholds, "TASK_ROWS_MAX", 0)  # the executors' way
        app.rebuild("soon")
        assert shown(app, "soon") == sorted(soon(list(kept.values())), key=repr)
        for name in VIEWS:
            found = app.get_view(name).verify()
            assert found.equal, found


@pytest.mark.parametrize("times", [1, 3])
def test_executors_match_equal_rows_as_often_as_they_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    for name in ("TASK_ROWS_MAX", "LOCAL_ROWS_MAX"):
        monkeypatch.setattr(thresholds, name, 0)
    with hw.App("market", home=tmp_path / "home") as app:
        ticks = app.topic("ticks", "symbol STRING, at TIMESTAMP", event_time="at")
        ticks.append([{"symbol": symbol, "at": BEGIN} for symbol in "xyy" for _ in range(times)])
        hours = [BEGIN + dt.timedelta(hours=number) for number in range(12)]  # one match among many entries
        ticks.append([{"symbol": "z", "at": at} for at in hours for _ in range(times)])
        app.view(
            "runs",
            """SELECT * FROM ticks MATCH_RECOGNIZE (
              PARTITION BY symbol ORDER BY at MEASURES count(*) AS rows PATTERN (a+) DEFINE a AS true)""",
        )

        app.tick()

        assert shown(app, "runs") == [("x", times), ("y", 2 * times), ("z", 12 * times)]


def test_one_new_row_of_a_long_partition_reads_the_rows_since_the_last_clean_place(tmp_path: Path) -> None:
    with hw.App("market", home=tmp_path / "home") as app:
        ticks = app.topic("ticks", "symbol STRING, price INT, at TIMESTAMP", event_time="at")
        app.view("rises", VIEWS["rises"].replace("trades", "ticks").replace(".id", ".price"))
        prices = [number % 7 for number in range(20_000)]
        rows = [
            {"symbol": "x", "price": price, "at": BEGIN + dt.timedelta(seconds=5 * number)}
            for number, price in enumerate(prices)
        ]
        ticks.append(rows)
        app.tick()
        before = len(shown(app, "rises"))

        ticks.append([{"symbol": "x", "price": 1, "at": BEGIN + dt.timedelta(days=3)}])
        report = app.tick()

        (progress,) = report.views
        assert progress.rows_read <= 500
        assert len(shown(app, "rises")) == before == 20_000 // 7
        assert app.get_view("rises").verify().equal


def found_in_both_ways(counts: list[int]) -> Callable[..., Delta]:
    """What leaves, as Spark finds it; the driver must find the same. ``counts`` gets how many rows."""
    leaving = _Restricted.leaving

    def found(self: _Restricted, own: StateTrace, *given: Any) -> Delta:
        here = leaving(self, own, *given)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(thresholds, "SETTLED_ROWS_MAX", 0)
            there = leaving(self, own, *given)
        one, other = (sorted(map(repr, each.read().select(own.schema.names).to_pylist())) for each in (here, there))
        assert one == other
        counts.append(len(other))
        return there

    return found


def test_rows_that_no_match_can_need_leave_the_state_and_what_was_shown_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, horizon = random.Random(7), dt.timedelta(minutes=4)
    sql = VIEWS["soon"].replace("trades", "ticks").replace("'10'", "'3'")
    taken: list[Row] = []
    left_by_spark: list[int] = []
    late = 0
    with hw.App("market", home=tmp_path / "home") as app:
        ticks = app.topic("ticks", "id BIGINT, symbol STRING, price INT, at TIMESTAMP", event_time="at")
        app.view("soon", sql, horizon=horizon)
        rises = VIEWS["rises"].replace("trades", "(SELECT at AS moment, * EXCEPT (at) FROM ticks)")
        app.view("rises", rises.replace("ORDER BY at", "ORDER BY moment"), horizon=horizon)
        searches = {"soon": lambda rows: soon(rows, minutes=3), "rises": SEARCHES["rises"]}
        most = dict.fromkeys(searches, 0)
        watermark = None
        for number in range(many(10)):
            if number == 7:  # too many changes to be looked up: in batches
                monkeypatch.setattr(thresholds, "TASK_ROWS_MAX", 3)
            if number == 6:  # Spark finds the rows that leave a large state
                monkeypatch.setattr(_Restricted, "leaving", found_in_both_ways(left_by_spark))
            if number == 8:
                monkeypatch.setattr(thresholds, "SETTLED_ROWS_MAX", 0)
            rows = []
            for id in range(number * 20, number * 20 + 20):
                minute = number * 5 + chance.uniform(0, 5) - chance.choice((0, 0, 0, 3, 8))
                symbol = chance.choice(("x", "y", f"only{number}"))
                at = BEGIN + dt.timedelta(minutes=60, seconds=round(minute * 60))
                rows.append({"id": id, "symbol": symbol, "price": chance.randrange(10), "at": at})
            in_time = [row for row in rows if watermark is None or row["at"] >= watermark - horizon]
            taken, late = taken + in_time, late + len(rows) - len(in_time)
            watermark = max(row["at"] for row in taken)
            ticks.append(rows)
            app.tick()
            monkeypatch.undo()
            for name in most:
                assert shown(app, name) == sorted(searches[name](taken), key=repr), (name, number)
                traces = app._runtime.engine.traces
                held = [traces[f"{name}$open$match1{part}"].content().num_rows for part in ("", ".rows")]
                most[name] = max(most[name], *held) if number > 4 else most[name]
        assert late > 10
        assert sum(left_by_spark) > 10
        assert most["soon"] < len(taken) // 3  # rows of about twelve minutes
        for name in most:
            found = app.get_view(name).verify()
            assert found.equal, found
        app.rebuild("soon")
        assert shown(app, "soon") == sorted(soon(taken, minutes=3), key=repr)
        assert app.get_view("soon").verify().equal


def test_what_did_not_come_in_time_is_told_when_the_watermark_has_passed(tmp_path: Path) -> None:
    with hw.App("plant", home=tmp_path / "home") as app:
        beats = app.topic("beats", "machine STRING, at TIMESTAMP", event_time="at")
        silent = app.view(
            "silent",
            hw.pattern("a [^b]")
            .over(beats, by="machine", order="at")
            .define(b="true")
            .measures(last_seen="a.at")
            .within("10 minutes")
            .skip("to next row"),
            emit="final",
        )

        def beat(machine: str, minute: float) -> None:
            beats.append([{"machine": machine, "at": BEGIN + dt.timedelta(minutes=minute)}])
            app.tick()

        def told() -> list[tuple[str, float]]:
            return [(row["machine"], (row["last_seen"] - BEGIN).total_seconds() / 60) for row in silent.rows()]

        beat("press", 0)
        beat("saw", 4)
        beat("press", 9)
        assert told() == []
        beat("press", 14.5)
        assert told() == [("saw", 4)]
        beat("saw", 40)
        assert told() == [("saw", 4), ("press", 14.5)]
        assert silent.verify().equal


def test_aggregates_of_the_variables_of_a_match_s_rows(tmp_path: Path) -> None:
    of_names = {
        "how_many": ("count(CLASSIFIER(b))", 2),
        "last": ("max(CLASSIFIER())", "C"),
        "first": ("min(CLASSIFIER())", "A"),
        "different": ("count(DISTINCT CLASSIFIER())", 3),
        "which": ("array_sort(collect_set(CLASSIFIER()))", ["A", "B", "C"]),
        "together": ("sum(v) + count(CLASSIFIER())", 8),
    }
    measures = ", ".join(f"{sql} AS {name}" for name, (sql, _) in of_names.items())
    with hw.App("shop", home=tmp_path / "home") as app:
        steps = app.topic("steps", "t BIGINT, v BIGINT")
        matches = app.view(
            "matches",
            f"SELECT * FROM steps MATCH_RECOGNIZE (ORDER BY t MEASURES {measures} PATTERN (A B+ C) "
            "DEFINE B AS v > 1, C AS v < 0)",
        )
        steps.append([{"t": t, "v": v} for t, v in enumerate([0, 2, 3, -1])])
        app.tick()

        assert list(matches.rows()) == [{name: value for name, (_, value) in of_names.items()}]


def test_a_table_of_rules_gives_the_parameters(tmp_path: Path) -> None:
    with hw.App("bank", home=tmp_path / "home") as app:
        payments = app.topic("payments", "card STRING, amount INT, at TIMESTAMP", event_time="at")
        limits = app.table("limits", "limit_id STRING, most INT", key="limit_id")
        stolen = app.view(
            "stolen",
            hw.pattern("small{2,} large")
            .over(payments, by="card", order="at")
            .for_each(limits, id="limit_id", parameters=["most"])
            .define(small="amount < 5", large="amount > most")
            .measures(amount="large.amount"),
        )
        moments = [BEGIN + dt.timedelta(minutes=minute) for minute in range(6)]
        amounts = [1, 2, 150, 3, 4, 90]
        payments.append([{"card": "c", "amount": a, "at": at} for a, at in zip(amounts, moments, strict=True)])
        limits.upsert([{"limit_id": "low", "most": 50}])
        app.tick()
        assert shown(app, "stolen") == [("low", "c", 150), ("low", "c", 90)]

        limits.upsert([{"limit_id": "high", "most": 100}])
        limits.delete([{"limit_id": "low"}])
        app.tick()

        assert shown(app, "stolen") == [("high", "c", 150)]
        assert {each.topic for each in stolen.why(limit_id="high", card="c").inputs} == {"payments", "limits"}


def test_rows_are_ordered_by_their_place_in_the_log_where_a_query_names_it(tmp_path: Path) -> None:
    with hw.App("market", home=tmp_path / "home") as app:
        jobs = app.topic("jobs", "worker STRING, state STRING")
        app.view(
            "retried",
            """
            SELECT worker, tries FROM (SELECT worker, state, _offset AS place FROM jobs) MATCH_RECOGNIZE (
              PARTITION BY worker ORDER BY place MEASURES count(f.*) AS tries
              PATTERN (f+ d) DEFINE f AS state = 'failed', d AS state = 'done')""",
        )
        for state in ("failed", "failed", "done", "done", "failed"):
            jobs.append([{"worker": "w", "state": state}])
            app.tick()
        assert shown(app, "retried") == [("w", 2)]
        assert app.get_view("retried").verify().equal


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT * FROM trades t MATCH_RECOGNIZE (PATTERN (a) DEFINE a AS true)", "stands behind an alias"),
        ("SELECT * FROM nothing MATCH_RECOGNIZE (ORDER BY at PATTERN (a) DEFINE a AS true)", "nothing"),
        ("SELECT * FROM trades MATCH_RECOGNIZE (ORDER BY at PATTERN (a b) DEFINE c AS true)", "c"),
        (
            "SELECT wrong FROM trades MATCH_RECOGNIZE (ORDER BY at MEASURES a.id AS x PATTERN (a) DEFINE a AS true)",
            "wrong",
        ),
        (
            "SELECT * FROM trades MATCH_RECOGNIZE (ORDER BY at MEASURES a.id AS x PATTERN (a [^b]) "
            "WITHIN INTERVAL '1' MINUTE DEFINE b AS true)",
            'emit="final"',
        ),
        (
            "SELECT * FROM trades MATCH_RECOGNIZE (ORDER BY id PATTERN (a b) WITHIN INTERVAL '1' MINUTE)",
            "the first ORDER BY item is a BIGINT, at line 1, column 48",
        ),
        ("SELECT * FROM trades MATCH_RECOGNIZE (ORDER BY more PATTERN (a))", "rows cannot be ordered by a MAP"),
        ("SELECT * FROM trades MATCH_RECOGNIZE (PARTITION BY more ORDER BY at PATTERN (a))", "parted by more, a MAP"),
        (
            "SELECT * FROM trades MATCH_RECOGNIZE (ORDER BY at MEASURES sum(symbol) AS x PATTERN (a))",
            "sum cannot be taken of symbol, a STRING",
        ),
        (
            "SELECT * FROM trades MATCH_RECOGNIZE (ORDER BY at MEASURES max(a.more) AS x PATTERN (a))",
            "max cannot be taken of more, a MAP",
        ),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_declared(tmp_path: Path, sql: str, said: str) -> None:
    with hw.App("market", home=tmp_path / "home") as app:
        app.table("trades", "id BIGINT, symbol STRING, price INT, at TIMESTAMP, more MAP<STRING, INT>", key="id")
        with pytest.raises((InvalidDeclaration, InvalidView)) as refused:
            app.view("v", sql)
        assert said in str(refused.value)
        assert "v" not in [view.name for view in app.views]
