"""Current rows: the state of a captured table, read from its topic.

What it is: the live keys of a keyed table, or the live rows of a multiset, as the rows that would delete them.
Invariants: the topic is read up to a given offset, so the result is the same after a crash.
Not here: its use for TRUNCATE and a repeated backfill (``table_follower.py``, ``backfill.py``).
Read next: ``table_follower.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from headwater.log.contract import EventTopic
from headwater.log.schema.normalization import WEIGHT
from headwater.log.schema.row_identity import row_identities


def nullable(schema: pa.Schema) -> pa.Schema:
    """The same columns, all nullable, as in a tombstone."""
    return pa.schema([field.with_nullable(True) for field in schema])


def rows_to_delete(
    topic: EventTopic,
    stop: int,
    more: Iterable[tuple[pa.RecordBatch, Any]] = (),
    counts: Callable[[Any], bool] | None = None,
) -> pa.RecordBatch:
    """Rows that delete the topic's state at ``stop``, followed by ``more`` (rows and their delete marks).

    With ``counts``, of a topic with a key: only the keys for which it is true.

    >>> import headwater as hw, tempfile
    >>> users = hw.Log(tempfile.mkdtemp()).topic("users", "id BIGINT, name STRING", key="id")
    >>> _ = users.append([{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}])
    >>> _ = users.delete([{"id": 1}])
    >>> rows_to_delete(users, 3).to_pylist()
    [{'id': 2, 'name': None}]
    """
    return _rows(topic, stop, more) if topic.row().is_multiset else _keys(topic, stop, more, counts)


def live_keys(
    topic: EventTopic, stop: int, more: Iterable[tuple[pa.RecordBatch, Any]] = (), start: int = 0
) -> dict[Any, bool]:
    """Every key of the topic, and whether it is live."""
    key = list(topic.settings.key)
    found: dict[Any, bool] = {}
    for batch in topic.read_partition(0, max(start, topic.start_offsets()[0]), stop=stop, columns=[*key, "_deleted"]):
        if batch.num_rows:
            columns = [batch.data.column(name).to_pylist() for name in key]
            for each, gone in zip(zip(*columns, strict=True), batch.data.column("_deleted").to_pylist(), strict=True):
                found[each] = not gone
    for rows, gone_of in more:
        columns = [rows.column(name).to_pylist() for name in key]
        for each, gone in zip(zip(*columns, strict=True), list(gone_of), strict=True):
            found[each] = not gone
    return found


def tombstones(topic: EventTopic, keys: list[Any]) -> pa.RecordBatch:
    """A row for each key; all other columns are null."""
    names, schema = list(topic.settings.key), nullable(topic.schema)
    arrays = []
    for field in schema:
        if field.name in names:
            place = names.index(field.name)
            arrays.append(pa.array([key[place] for key in keys], field.type))
        else:
            arrays.append(pa.nulls(len(keys), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _keys(
    topic: EventTopic, stop: int, more: Iterable[tuple[pa.RecordBatch, Any]], counts: Callable[[Any], bool] | None
) -> pa.RecordBatch:
    live = [key for key, there in live_keys(topic, stop, more).items() if there]
    return tombstones(topic, live if counts is None else list(filter(counts, live)))


def _rows(topic: EventTopic, stop: int, more: Iterable[tuple[pa.RecordBatch, Any]]) -> pa.RecordBatch:
    schema = nullable(topic.schema)
    names = [name for name in schema.names if name != WEIGHT]
    counts: dict[bytes, int] = {}
    rows: dict[bytes, pa.RecordBatch] = {}

    def add(batch: pa.RecordBatch) -> None:
        shown = batch.select(names)
        weights = batch.column(WEIGHT).to_pylist()
        for place, (identity, weight) in enumerate(zip(row_identities(shown), weights, strict=True)):
            counts[identity] = counts.get(identity, 0) + weight
            rows.setdefault(identity, shown.slice(place, 1))

    for batch in topic.read_partition(0, topic.start_offsets()[0], stop=stop, columns=schema.names):
        if batch.num_rows:
            add(batch.data)
    for each, _ in more:
        add(each)
    there = [rows[identity] for identity, count in counts.items() for _ in range(count)]
    if not there:
        return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    joined = pa.Table.from_batches([pa.RecordBatch.from_arrays(row.columns, names=names) for row in there])
    joined = joined.combine_chunks()
    arrays = [
        pa.array([-1] * len(there), pa.int64()) if name == WEIGHT else joined.column(name).combine_chunks()
        for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
