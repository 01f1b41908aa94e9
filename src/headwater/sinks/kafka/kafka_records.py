"""Kafka records: the rows and changes of a view as keys and values of messages.

What it is: ``row_records``, the latest row of each key and a tombstone for one that is gone;
``change_records``, an envelope for each change; ``full_copy_records``, the rows of a full copy in either form.
Invariants: keys are JSON as the log writes it (``log/schema/json_lines.py``), so different keys have different bytes,
and a key has the same bytes each time. Values are JSON too; those of rows are what ``values`` makes of them. A view
without a key has envelopes, each with how many equal rows it stands for, under a key that is the same for equal rows.
Not here: the transaction (``kafka_transactions.py``). Read next: ``kafka_sink.py``; ``docs/kafka.md``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from headwater.kafka.kafka_transactions import KafkaRecord
from headwater.log.schema.json_lines import json_line
from headwater.log.schema.normalization import WEIGHT
from headwater.log.schema.row_conversion import to_rows
from headwater.sinks.text_values import json_rows
from headwater.views.serving.deliveries import deletes, row_names, upserts

ROWS, CHANGES = "rows", "changes"
CREATE, UPDATE, DELETE, READ, RESET = "c", "u", "d", "r", "reset"
RESET_KEY = b'"reset"'

RowValues = Callable[[pa.Table], list[bytes]]


def json_values(rows: pa.Table) -> list[bytes]:
    """Rows as JSON objects."""
    return [text.encode() for text in json_rows(rows)]


def row_records(changes: pa.Table, key: Sequence[str], values: RowValues = json_values) -> Iterator[KafkaRecord]:
    """Changes of a view with a key: tombstones, then rows.

    >>> changes = pa.table({"id": [1, 1, 2], "n": [5, 6, 7], "_weight": [-1, 1, -1]})
    >>> [(record.key, record.value) for record in row_records(changes, ["id"])]
    [(b'{"id":2}', None), (b'{"id":1}', b'{"id":1,"n":6}')]
    """
    for name in _keys(deletes(changes, key), key):
        yield KafkaRecord(name, None)
    yield from _rows(upserts(changes), key, values)


def change_records(changes: pa.Table, key: Sequence[str], tick: int) -> Iterator[KafkaRecord]:
    """An envelope for each change: ``op``, ``before``, ``after`` and ``tick``; without a key also ``count``.

    >>> changes = pa.table({"id": [1, 1], "n": [5, 6], "_weight": [-1, 1]})
    >>> [record.value for record in change_records(changes, ["id"], 7)]
    [b'{"op":"u","before":{"id":1,"n":5},"after":{"id":1,"n":6},"tick":7}']
    >>> [record.value for record in change_records(changes.slice(1), [], 7)]
    [b'{"op":"c","before":null,"after":{"id":1,"n":6},"tick":7,"count":1}']
    """
    rows, weights = changes.drop_columns([WEIGHT]), changes.column(WEIGHT).to_pylist()
    listed = _listed(rows)
    if not key:
        for name, weight, row in zip(_names(rows), weights, listed, strict=True):
            come = weight > 0
            yield _envelope(name, None if come else row, row if come else None, tick, count=abs(weight))
        return
    names = _keys(rows, key)
    before = {name: row for name, weight, row in zip(names, weights, listed, strict=True) if weight < 0}
    after = {name: row for name, weight, row in zip(names, weights, listed, strict=True) if weight > 0}
    for name in dict.fromkeys(names):
        yield _envelope(name, before.get(name), after.get(name), tick)


def full_copy_records(
    rows: pa.Table, key: Sequence[str], form: str, tick: int, values: RowValues = json_values
) -> Iterator[KafkaRecord]:
    """Rows of a full copy."""
    if form == ROWS:
        yield from _rows(rows, key, values)
    elif key:
        for name, row in zip(_keys(rows, key), _listed(rows), strict=True):
            yield _envelope(name, None, row, tick, op=READ)
    else:
        names = _names(rows)
        counts, told = Counter(names), set()
        for name, row in zip(names, _listed(rows), strict=True):
            if name not in told:
                told.add(name)
                yield _envelope(name, None, row, tick, op=READ, count=counts[name])


def reset_record(partition: int, tick: int) -> KafkaRecord:
    """The first record of a full copy in envelopes, in each partition: what was before it is void."""
    value = {"op": RESET, "before": None, "after": None, "tick": tick}
    return KafkaRecord(RESET_KEY, json_line(value).encode(), partition)


def _rows(rows: pa.Table, key: Sequence[str], values: RowValues) -> Iterator[KafkaRecord]:
    for name, value in zip(_keys(rows, key), values(rows), strict=True):
        yield KafkaRecord(name, value)


def _envelope(
    name: bytes, before: Any, after: Any, tick: int, *, op: str | None = None, count: int | None = None
) -> KafkaRecord:
    kind = op or (CREATE if before is None else UPDATE if after is not None else DELETE)
    value = {"op": kind, "before": before, "after": after, "tick": tick}
    return KafkaRecord(name, json_line(value if count is None else {**value, "count": count}).encode())


def _keys(rows: pa.Table, key: Sequence[str]) -> list[bytes]:
    return json_values(rows.select(list(key)))


def _names(rows: pa.Table) -> list[bytes]:
    return [f'"{name.hex()}"'.encode() for name in row_names(rows)]


def _listed(rows: pa.Table) -> list[dict[str, Any]]:
    return [row for batch in rows.to_batches() for row in to_rows(batch)]
