"""Places: each other system as the conformance suite sees it.

What it is: for every sink, how one is declared in a fresh place, and how the rows that are there are read back with the
view's types, by other means than the sink's own.
Invariants: reading back is independent of the sink's code, except for the documented form of values.
Not here: what must hold (``test_conformance.py``).
Read next: ``test_conformance.py``.
"""

from __future__ import annotations

import base64
import json
import sqlite3
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as kinds

from headwater.log.home import Log
from headwater.log.schema.far_times import far_json_lines
from headwater.log.schema.row_conversion import to_batches
from headwater.sinks import SQLite
from headwater.sinks.sink import Sink
from headwater.testing.local_server import LocalServer
from headwater.testing.postgres_server import PostgresServer
from headwater.views.serving.serving_columns import column_of_declaration, quoted
from headwater.views.state.algebra import consolidate, expand
from tests.services.kafka_broker import KafkaBroker
from tests.services.redis_server import RedisServer
from tests.services.sinks.receiver import Receiver
from tests.services.sinks.synthetic import SyntheticView

Read = Callable[[SyntheticView], pa.Table]


@dataclass
class Servers:
    """What runs for the whole session."""

    postgres: PostgresServer
    redis: RedisServer
    start_kafka: Callable[[], KafkaBroker]

    @cached_property
    def kafka(self) -> KafkaBroker:
        """Started when the first test asks for it."""
        return self.start_kafka()


@dataclass
class Place:
    """A sink in a fresh place."""

    sink: Sink
    read: Read
    atomic: bool = True  # a delivery is there whole or not at all
    server: LocalServer | Receiver | None = None  # that can be stopped
    nul: bool = True  # whether texts may have NULs
    migrates: bool = True  # whether other columns can take the place of those there are
    rows_many: int = 100_000


def sqlite_place(folder: Path, _: Servers) -> Place:
    path = folder / "copy.db"

    def read(view: SyntheticView) -> pa.Table:
        with sqlite3.connect(path) as db:
            declared = {name: kind for _, name, kind, *_ in db.execute('PRAGMA table_info("the view")')}
            names = [name for name in declared if name != "_hw_row"]
            columns = ", ".join(map(quoted, names))
            rows = db.execute(f'SELECT {columns} FROM "the view"').fetchall()
        values = list(zip(*rows, strict=True)) if rows else [[] for _ in names]
        arrays = []
        for name, listed in zip(names, values, strict=True):
            column = column_of_declaration(name, declared[name])
            assert column is not None
            arrays.append(column.loaded(list(listed)))
        assert names == view.schema.names
        return pa.Table.from_arrays(arrays, names=names)

    return Place(SQLite(path, table="the view"), read)


def postgres_place(_: Path, servers: Servers) -> Place:
    import psycopg

    from headwater.sinks import Postgres

    schema = f"s{uuid.uuid4().hex[:8]}"

    def read(view: SyntheticView) -> pa.Table:
        with psycopg.connect(servers.postgres.dsn) as db:
            db.execute("SET timezone = 'UTC'")
            names = [
                name
                for (name,) in db.execute(
                    "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
                    " ORDER BY ordinal_position",
                    (schema, "The View"),
                )
                if name != "_hw_row"
            ]
            assert sorted(names) == sorted(view.schema.names)
            columns = ", ".join(map(quoted, view.schema.names))
            rows = db.execute(f'SELECT {columns} FROM "{schema}"."The View"').fetchall()
        return typed([dict(zip(view.schema.names, row, strict=True)) for row in rows], view.schema)

    return Place(
        Postgres(servers.postgres.dsn, schema=schema, table="The View", nul="\N{SYMBOL FOR NULL}"),
        read,
        server=servers.postgres,
        nul=False,
    )


def redis_place(form: str) -> Callable[[Path, Servers], Place]:
    def made(_: Path, servers: Servers) -> Place:
        from headwater.sinks import Redis

        prefix = uuid.uuid4().hex[:8]

        def read(view: SyntheticView) -> pa.Table:
            import redis

            with redis.Redis.from_url(servers.redis.url) as client:
                keys = list(client.scan_iter(f"{prefix}:*", count=10_000))
                with client.pipeline(transaction=False) as pipe:
                    for key in keys:
                        pipe.hgetall(key) if form == "hash" else pipe.get(key)
                    found = pipe.execute()
            if form == "json":
                return of_counted_lines([text.decode() for text in found], view.schema)
            rows = [{name.decode(): value for name, value in row.items()} for row in found]
            return of_texts([row for row in rows for _ in range(int(row.pop("_count", 1)))], view.schema)

        many = 100_000 if form == "hash" else 20_000  # they differ in how a row is written only
        return Place(Redis(servers.redis.url, prefix=prefix, form=form), read, server=servers.redis, rows_many=many)

    return made


def topic_place(folder: Path, _: Servers) -> Place:
    from headwater.sinks import Topic

    home = folder / "other home"

    def read(view: SyntheticView) -> pa.Table:
        names = view.schema.names
        with Log(home, maintenance_interval=None) as log:
            batches = [batch.data for batch in log.get_topic("changes").read()]
        every = pa.Table.from_batches(batches) if batches else None
        if every is None:
            return view.schema.empty_table()
        resets = pc.indices_nonzero(pc.equal(every.column("change"), "reset"))
        since = every.slice(resets[-1].as_py() + 1)
        weights = pc.if_else(pc.equal(since.column("change"), "insert"), 1, -1).cast(pa.int64())
        return expand(consolidate(since.select(names).cast(view.schema).append_column("_weight", weights)))

    return Place(Topic("changes", home=home), read, migrates=False)


def parquet_place(folder: Path, _: Servers) -> Place:
    from headwater.sinks import Parquet

    sink = Parquet(folder / "copy", kept=3)

    def read(view: SyntheticView) -> pa.Table:
        stored = json.loads((folder / "copy" / "_progress.json").read_text())["ticks"][-1]
        files = [folder / "copy" / name for names in stored["files"].values() for name in names]
        return pa.concat_tables([pq.read_table(file, partitioning=None) for file in files]).cast(view.schema)

    return Place(sink, read)


def delta_place(folder: Path, _: Servers) -> Place:
    from headwater.sinks import Delta

    sink = Delta(folder / "copy")

    def read(view: SyntheticView) -> pa.Table:
        from deltalake import DeltaTable

        table = pa.table(DeltaTable(folder / "copy").to_pyarrow_table())
        if "_hw_count" in table.column_names:
            weights = table.column("_hw_count")
            return expand(table.select(view.schema.names).cast(view.schema).append_column("_weight", weights))
        assert table.column_names == view.schema.names
        return table.cast(view.schema)

    return Place(sink, read)


def search_place(folder: Path, _: Servers) -> Place:
    from headwater.sinks import Search

    def read(view: SyntheticView) -> pa.Table:
        import tantivy

        current = json.loads((folder / "copy" / "_current.json").read_text())
        searcher = tantivy.Index.open(str(folder / "copy" / current["index"])).searcher()
        hits = searcher.search(tantivy.Query.all_query(), 1_000_000, count=False).hits
        documents = [searcher.doc(place) for _, place in hits]
        lines = [
            bytes(each.get_first("_hw_json")).decode()
            for each in documents
            for _ in range(each.get_first("_hw_count") or 0)
        ]
        return pa.Table.from_batches([far_json_lines(lines, view.schema)])

    return Place(Search(folder / "copy", text=[]), read)


def webhook_place(_: Path, __: Servers) -> Place:
    from headwater.sinks import Webhook

    receiver = Receiver(secret="s3cret")

    def read(view: SyntheticView) -> pa.Table:
        return pa.Table.from_batches([far_json_lines(list(receiver.rows.elements()), view.schema)])

    return Place(Webhook(receiver.url, secret="s3cret"), read, atomic=False, server=receiver, rows_many=4_000)


def kafka_place(_: Path, servers: Servers) -> Place:
    from headwater.sinks import Kafka

    topic = f"the-view-{uuid.uuid4().hex[:8]}"

    def read(view: SyntheticView) -> pa.Table:
        if view.key:
            lines = list(servers.kafka.latest(topic).values())
            return pa.Table.from_batches([far_json_lines(lines, view.schema)])
        counts: dict[int, Counter[str]] = {}
        for message in servers.kafka.read(topic):
            said = json.loads(message.value())
            rows = counts.setdefault(message.partition(), Counter())
            if said.get("op") == "reset":
                rows.clear()
            elif "op" in said:  # else a row of the view that had a key, before the reset
                row = json.dumps(said["after"] or said["before"])
                rows[row] += said["count"] if said["after"] else -said["count"]
        lines = [line for rows in counts.values() for line, count in rows.items() for _ in range(count)]
        return pa.Table.from_batches([far_json_lines(lines, view.schema)])

    sink = Kafka(servers.kafka.servers, topic=topic, partitions=2)
    return Place(sink, read, server=servers.kafka, rows_many=20_000)


PLACES: dict[str, Callable[[Path, Servers], Place]] = {
    "sqlite": sqlite_place,
    "postgres": postgres_place,
    "redis hash": redis_place("hash"),
    "redis json": redis_place("json"),
    "topic": topic_place,
    "parquet": parquet_place,
    "delta": delta_place,
    "search": search_place,
    "kafka": kafka_place,
    "webhook": webhook_place,
}


def typed(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows as a client gives them, with nested values from JSON, as an Arrow table of the view's types."""
    nested = [field for field in schema if kinds.is_nested(field.type)]
    flat = pa.schema([field for field in schema if field not in nested])
    table = pa.Table.from_batches([to_batches([{name: row[name] for name in flat.names} for row in rows], flat)])
    for field in nested:
        table = table.append_column(field, from_json([row[field.name] for row in rows], field))
    return table.select(schema.names)


def from_json(values: list[Any], field: pa.Field) -> pa.Array:
    """A column of values that were JSON."""
    lines = [json.dumps({"v": value}) for value in values]
    return (
        far_json_lines(lines, pa.schema([pa.field("v", field.type)])).column(0) if lines else pa.array([], field.type)
    )


def of_counted_lines(lines: list[str], schema: pa.Schema) -> pa.Table:
    """Lines of JSON, each perhaps with a count at its end."""
    rows = []
    for line in lines:
        text, comma, count = line.partition(',"_count":')
        rows += [text + "}" if comma else line] * int(count.rstrip("}") or 1)
    return pa.Table.from_batches([far_json_lines(rows, schema)])


def of_texts(rows: list[dict[str, bytes]], schema: pa.Schema) -> pa.Table:
    """Rows whose values are plain text, a column that is missing being null."""
    lines = []
    for row in rows:
        parts = []
        for field in schema:
            if field.name in row:
                parts.append(f"{json.dumps(field.name)}: {json_of_text(row[field.name], field.type)}")
        lines.append("{" + ", ".join(parts) + "}")
    return pa.Table.from_batches([far_json_lines(lines, schema)])


def json_of_text(text: bytes, arrow: pa.DataType) -> str:
    if kinds.is_binary(arrow):
        return json.dumps(base64.b64encode(text).decode())
    word = text.decode()
    number = kinds.is_integer(arrow) or kinds.is_decimal(arrow) or kinds.is_boolean(arrow)
    number |= kinds.is_temporal(arrow) and word.lstrip("-").isdigit()  # a length of time, or a time far away
    if number or kinds.is_nested(arrow) or (kinds.is_floating(arrow) and not word.endswith(("NaN", "Infinity"))):
        return word
    return json.dumps(word)
