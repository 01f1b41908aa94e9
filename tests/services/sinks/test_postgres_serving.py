"""Serving from PostgreSQL: all views of a tick at once, whoever is killed, and what readers find there."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import os
import random
import signal
import threading
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headwater.errors import Misuse
from headwater.log.home import Log
from headwater.log.schema.ddl import parse_view_ddl
from headwater.sinks.postgres.postgres_served_rows import PostgresServedRows
from headwater.sinks.postgres.postgres_serving import PostgresServing, ServingTask, SharedTarget
from headwater.sinks.runner.sink_status import SinkState
from headwater.views.privacy.hidden_columns import HiddenColumns
from headwater.views.privacy.row_rules import RowsShown
from headwater.views.serving.committed_changes import CommittedChanges
from headwater.views.serving.serving_queries import Bounds
from headwater.views.state.algebra import weighted_schema
from headwater.views.state.delta import Delta
from headwater.views.state.manifest import Manifest, Manifests
from headwater.views.state.trace import Trace
from tests.services.sinks.places import Servers

VIEWS = {"accounts": ("id BIGINT, amount BIGINT", ["id"]), "total": ("one INT, amount BIGINT", ["one"])}


class Bank:
    """Ticks over two views, committed as the engine does it: money moves between accounts, and their total."""

    def __init__(self, log: Log, app: str, views: dict[str, Any] | None = None) -> None:
        self.folder = log.home / "views" / app
        self.manifests = Manifests(log.catalog, app)
        self.epoch = self.manifests.take_over()
        self.committed = CommittedChanges(self.manifests, self.folder, log.files)
        self.views = views or VIEWS
        self.traces = {
            name: Trace(self.folder / f"{name}-first", weighted_schema(parse_view_ddl(ddl)), files=log.files)
            for name, (ddl, _) in self.views.items()
        }
        self.rows: dict[str, dict[Any, dict[str, Any]]] = {name: {} for name in self.views}
        self.past: dict[int, dict[str, dict[Any, Any]]] = {}

    def commit(self, changes: dict[str, list[dict[str, Any]]]) -> int:
        """One tick: these rows are there now, in the place of those with the same key."""
        tick = self.manifests.tick() + 1
        for name, rows in changes.items():
            weighted = []
            for row in rows:
                key = row[self.views[name][1][0]]
                if (old := self.rows[name].get(key)) is not None:
                    weighted.append({**old, "_weight": -1})
                weighted.append({**row, "_weight": 1})
                self.rows[name][key] = row
            moved = Delta.local(pa.Table.from_pylist(weighted, self.traces[name].schema))
            trace = self.traces[name]
            self.traces[name] = trace.with_run(trace.write(moved, tick=tick, epoch=self.epoch), moved)
        about = {
            name: {"columns": ddl, "key": key, "created_tick": 1, "fingerprint": "first"}
            for name, (ddl, key) in self.views.items()
        }
        relations = {
            name: {"identity": "first", "schema": ddl, "runs": [run.to_json() for run in self.traces[name].runs]}
            for name, (ddl, _) in self.views.items()
        }
        frontier = {"transfers": {0: tick}}
        self.manifests.commit(Manifest(tick, self.epoch, frontier, relations=relations, views=about))  # type: ignore[arg-type]
        self.past[tick] = {name: dict(rows) for name, rows in self.rows.items()}
        return tick

    def trade(self, chance: random.Random) -> int:
        moved = [{"id": number, "amount": chance.randrange(1000)} for number in chance.sample(range(20), 3)]
        after = {**self.rows["accounts"], **{row["id"]: row for row in moved}}
        total = sum(row["amount"] for row in after.values())
        return self.commit({"accounts": moved, "total": [{"one": 1, "amount": total}]})


@pytest.fixture
def app() -> str:
    return f"bank{uuid.uuid4().hex[:8]}"


@pytest.fixture
def serving(servers: Servers, app: str) -> PostgresServing:
    return PostgresServing(servers.postgres.dsn, app)


def task_of(bank: Bank, serving: PostgresServing, log: Log, epoch: int | None = None) -> ServingTask:
    at = bank.epoch if epoch is None else epoch
    return ServingTask("serving", serving.app, serving, bank.committed, log, views=list(bank.views), epoch=lambda: at)


def held(serving: PostgresServing) -> tuple[int, dict[str, dict[Any, Any]]]:
    """What anybody sees in one snapshot, by plain SQL: the tick and all rows."""
    with psycopg.connect(serving.dsn) as db:
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        (tick,) = db.execute(f'SELECT tick FROM "{serving.schema}"._headwater_tick').fetchone() or (0,)
        accounts = db.execute(f'SELECT id, amount FROM "{serving.schema}".accounts').fetchall()
        total = db.execute(f'SELECT one, amount FROM "{serving.schema}".total').fetchall()
    return tick, {
        "accounts": {number: {"id": number, "amount": amount} for number, amount in accounts},
        "total": {one: {"one": one, "amount": amount} for one, amount in total},
    }


def test_two_readers_see_whole_ticks_only_and_agree(serving: PostgresServing, log: Log) -> None:
    chance, bank = random.Random(7), Bank(log, serving.app)
    task = task_of(bank, serving, log)
    bank.trade(chance)
    assert task.catch_up().state is SinkState.FOLLOWING
    seen: list[tuple[int, str, dict[Any, Any]]] = []
    ended = threading.Event()

    def read() -> None:
        reader = PostgresServedRows(serving)
        while not ended.is_set():
            for view, key in (("accounts", "id"), ("total", "one")):
                tick, rows = reader.first(view, Bounds(rows=100))
                seen.append((tick, view, {row[key]: row for row in rows.to_pylist()}))
        reader.close()

    snapshots, readers = [], [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(60):
        bank.trade(chance)
        if number % 3:  # else two ticks are brought as one
            task.catch_up()
            snapshots.append(held(serving))
    ended.set()
    for reader in readers:
        reader.join()

    task.catch_up()
    assert held(serving) == (61, bank.past[61])
    assert all(rows == bank.past[tick] for tick, rows in snapshots)
    assert len({tick for tick, _, _ in seen}) > 3
    assert all(rows == bank.past[tick][view] for tick, view, rows in seen)


def test_a_process_that_is_killed_in_the_middle_of_the_transaction_leaves_the_tick_before(
    serving: PostgresServing, log: Log
) -> None:
    chance, bank = random.Random(8), Bank(log, serving.app)
    first = bank.trade(chance)
    task_of(bank, serving, log).catch_up()
    second = bank.trade(chance)

    context = multiprocessing.get_context("spawn")
    child = context.Process(target=dies_between_two_views, args=(log.home, serving, bank.epoch))
    child.start()
    child.join(60)

    assert child.exitcode == -signal.SIGKILL
    assert held(serving) == (first, bank.past[first])
    task_of(bank, serving, log).catch_up()
    assert held(serving) == (second, bank.past[second])


def dies_between_two_views(home: Path, serving: PostgresServing, epoch: int) -> None:
    applied: list[str] = []
    apply = SharedTarget.apply

    def mortal(self: SharedTarget, delivery: Any) -> Any:
        if applied:
            os.kill(os.getpid(), signal.SIGKILL)
        applied.append(self.context.view)
        return apply(self, delivery)

    SharedTarget.apply = mortal  # type: ignore[method-assign]
    with Log(home, maintenance_interval=None) as log:
        committed = CommittedChanges(Manifests(log.catalog, serving.app), home / "views" / serving.app, log.files)
        task = ServingTask("serving", serving.app, serving, committed, log, views=list(VIEWS), epoch=lambda: epoch)
        task.catch_up()


def test_a_process_that_was_replaced_brings_nothing_and_a_view_that_is_gone_goes(
    serving: PostgresServing, log: Log
) -> None:
    chance, bank = random.Random(9), Bank(log, serving.app)
    zombie = task_of(bank, serving, log)
    bank.trade(chance)
    zombie.catch_up()
    bank.epoch = bank.manifests.take_over()
    newer = task_of(bank, serving, log)
    bank.trade(chance)
    newer.catch_up()
    last = bank.trade(chance)

    status = zombie.catch_up()

    assert (status.state, (status.error or {})["code"]) == (SinkState.STOPPED, "fenced")
    assert held(serving)[0] == last - 1
    newer.catch_up()
    assert held(serving) == (last, bank.past[last])

    fewer = ServingTask(
        "serving", serving.app, serving, bank.committed, log, views=["accounts"], epoch=lambda: bank.epoch
    )
    fewer.catch_up()
    reader = PostgresServedRows(serving)
    assert list(reader.views()) == ["accounts"]
    with pytest.raises(Misuse, match='view "total" is not served'):
        reader.first("total", Bounds(rows=1))
    reader.close()


def test_values_of_every_type_are_read_as_they_were(serving: PostgresServing, log: Log) -> None:
    ddl = (
        "id BIGINT, price DECIMAL(20,2), at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, raw BINARY, ok BOOLEAN,"
        " small FLOAT, many ARRAY<DECIMAL(10,2)>, pair STRUCT<a: INT, b: STRING>, name STRING"
    )
    row = {
        "id": 1,
        "price": Decimal("123456789012345678.90"),
        "at": dt.datetime(2026, 1, 31, 10, 0, 0, 123456, tzinfo=dt.UTC),
        "local": dt.datetime(2026, 1, 31, 10, 0),
        "day": dt.date(1066, 10, 14),
        "raw": b"\x00\xff",
        "ok": True,
        "small": 0.5,
        "many": [Decimal("0.10"), None],
        "pair": {"a": 1, "b": 'x "y", z\n'},
        "name": 'it\'s "quoted", \n and long',
    }
    nothing = {**dict.fromkeys(row), "id": 2}
    bank = Bank(log, serving.app, {"odd": (ddl, ["id"])})
    bank.commit({"odd": [row, nothing]})
    assert task_of(bank, serving, log).catch_up().state is SinkState.FOLLOWING

    reader = PostgresServedRows(serving)
    tick, every = reader.first("odd", Bounds(rows=10))
    assert (tick, sorted(every.to_pylist(), key=lambda each: each["id"])) == (1, [row, nothing])
    assert every.schema.types == parse_view_ddl(ddl).types
    for name in ("id", "price", "at", "local", "day", "raw", "ok", "small", "name"):
        assert reader.found("odd", {name: row[name]}, Bounds(rows=10))[1].to_pylist() == [row], name
    assert reader.found("odd", {"name": None}, Bounds(rows=10))[1].to_pylist() == [nothing]
    assert str(reader.frontier) == "transfers:0=1"
    reader.close()


def test_a_reader_gets_the_rows_of_its_claims(serving: PostgresServing, log: Log) -> None:
    rows = [{"id": n, "tenant": tenant, "team": n % 2} for n, tenant in enumerate(["a'b", "other", "a'b", None, "a'b"])]
    bank = Bank(log, serving.app, {"deals": ("id BIGINT, tenant STRING, team INT", ["id"])})
    bank.commit({"deals": rows})
    assert task_of(bank, serving, log).catch_up().state is SinkState.FOLLOWING
    shown = RowsShown("deals", (("team", ("0", "7")), ("tenant", ("a'b",))))
    within = Bounds(rows=10, hidden={"deals": HiddenColumns(frozenset(), rows=shown)})

    reader = PostgresServedRows(serving)
    first = reader.first("deals", within)[1].to_pylist()
    found = [reader.found("deals", {"id": row["id"]}, within)[1].to_pylist() for row in rows]
    reader.close()

    own = [row for row in rows if row["tenant"] == "a'b" and row["team"] == 0]
    assert sorted(first, key=lambda row: row["id"]) == own
    assert found == [[row] if row in own else [] for row in rows]
