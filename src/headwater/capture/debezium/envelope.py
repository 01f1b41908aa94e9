"""Debezium envelope: the message format, read and written.

What it is: ``change_of`` reads one message (JSON, with or without its schema) into a ``Change``; ``envelopes`` writes
the records of a captured table as messages.
Invariants: any other message is an error that names its offset, never a row. Values become the texts that a database
would write, so they share the last conversion step with captured ones.
Not here: the topic of messages (``debezium_topic.py``). Read next: ``debezium_topic.py``, ``docs/debezium.md``.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from headwater.errors import CaptureBlocked, InvalidDeclaration
from headwater.log.contract import EventTopic

UNAVAILABLE = "__debezium_unavailable_value"  # a large value that an update did not change
EPOCH = dt.date(1970, 1, 1)
PUT, GONE, EMPTIED, NOTHING = "put", "gone", "emptied", "nothing"
OPERATIONS = {"c": PUT, "u": PUT, "r": PUT, "d": GONE, "t": EMPTIED, "m": NOTHING}
PER_SECOND = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
UNITS = {
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
    "org.apache.kafka.connect.data.Timestamp": "ms",
}

Row = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """The change in one message."""

    kind: str
    before: Row | None = None
    after: Row | None = None
    at_ms: int = 0
    units: dict[str, str] | None = None  # of columns whose schema names their unit of time


def change_of(text: str | None, where: str) -> Change:
    """Read one message; ``where`` names it in an error.

    >>> change_of('{"op": "c", "before": null, "after": {"id": 1}, "ts_ms": 5}', "users@0")
    Change(kind='put', before=None, after={'id': 1}, at_ms=5, units=None)
    >>> change_of(None, "users@1").kind
    'nothing'
    """
    if text is None:  # a tombstone for compaction, after the delete itself
        return Change(NOTHING)
    try:
        message = json.loads(text, parse_float=Decimal)
    except ValueError as error:
        raise _not_one(where, str(error)) from error
    units = None
    if isinstance(message, dict) and "payload" in message and "schema" in message:
        units = _units(message["schema"] or {})
        message = message["payload"]
        if message is None:
            return Change(NOTHING)
    if not isinstance(message, dict) or message.get("op") not in OPERATIONS:
        raise _not_one(where, 'There is no "op" of c, u, d, r, t or m.')
    kind = OPERATIONS[message["op"]]
    before, after = message.get("before"), message.get("after")
    if (kind == PUT and not isinstance(after, dict)) or (kind == GONE and not isinstance(before, dict)):
        raise _not_one(where, f'An op of {message["op"]} needs "{"after" if kind == PUT else "before"}".')
    at = message.get("ts_ms") or (message.get("source") or {}).get("ts_ms") or 0
    return Change(kind, before, after, int(at), units)


def _not_one(where: str, detail: str) -> CaptureBlocked:
    return CaptureBlocked(
        f"{where} is not a message of Debezium",
        detail=detail,
        hint="Let the connector write JSON with its envelope, without ExtractNewRecordState.",
    )


def _units(schema: dict[str, Any]) -> dict[str, str]:
    for part in schema.get("fields", ()):
        if part.get("field") in ("after", "before") and part.get("fields"):
            named = {each.get("field"): each.get("name") for each in part["fields"]}
            return {str(column): UNITS[name] for column, name in named.items() if name in UNITS}
    return {}


def text_of(value: Any, arrow: pa.DataType, unit: str) -> str | None:
    """A value of a message as a database would write it.

    >>> text_of(20000, pa.date32(), "us"), text_of("BTk=", pa.decimal128(6, 2), "us"), text_of(True, pa.bool_(), "us")
    ('2024-10-04', '13.37', 'true')
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Decimal) and kinds.is_date(arrow):
        return (EPOCH + dt.timedelta(days=int(value))).isoformat()
    if isinstance(value, int | Decimal) and kinds.is_timestamp(arrow):
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=int(value) * 1_000_000 // PER_SECOND[unit])
        return moment.isoformat(" ")
    if isinstance(value, str) and kinds.is_timestamp(arrow):
        moment = dt.datetime.fromisoformat(value)
        moment = moment.astimezone(dt.UTC).replace(tzinfo=None) if moment.tzinfo else moment
        return moment.isoformat(" ")
    if isinstance(value, str) and kinds.is_decimal(arrow) and not _is_number(value):
        digits = int.from_bytes(base64.b64decode(value), "big", signed=True)
        return str(Decimal(digits).scaleb(-arrow.scale))
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False).strip('"')


def _is_number(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except ArithmeticError:
        return False


# Out


def envelopes(topic: EventTopic, *, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, str, str]]:
    """The records of a keyed table as messages: offset, key and value, both as JSON without a schema.

    ``before`` of a delete has the key alone; of an update it is null. ``op`` is ``u`` for every upsert, because the log
    does not distinguish insert and update; readers of Debezium accept that.

    >>> import headwater as hw, tempfile
    >>> users = hw.Log(tempfile.mkdtemp()).topic("users", "id BIGINT, name STRING", key="id")
    >>> _ = users.append([{"id": 1, "name": "Ada"}])
    >>> [(offset, key) for offset, key, _ in envelopes(users)]
    [(0, '{"id": 1}')]
    """
    key = topic.settings.key
    if not key:
        raise InvalidDeclaration(f'"{topic.name}" has no key, and Debezium\'s messages are about keys')
    names = [name for name in topic.schema.names if not name.startswith("_")]
    first = max(start, topic.start_offsets()[0])
    for batch in topic.read_partition(0, first, stop=stop, columns=[*names, "_deleted", "_appended_at"]):
        for offset, row in zip(batch.offsets.tolist(), batch.data.to_pylist(), strict=True):
            gone, at = row.pop("_deleted"), row.pop("_appended_at")
            keyed = {name: plain(row[name]) for name in key}
            milliseconds = int(at.timestamp() * 1000)
            message = {
                "before": keyed if gone else None,
                "after": None if gone else {name: plain(value) for name, value in row.items()},
                "source": {
                    "version": "1",
                    "connector": "headwater",
                    "name": topic.settings.captured_by or topic.name,
                    "ts_ms": milliseconds,
                    "snapshot": "false",
                    "table": topic.name,
                    "offset": offset,
                },
                "op": "d" if gone else "u",
                "ts_ms": milliseconds,
                "transaction": None,
            }
            yield offset, json.dumps(keyed, ensure_ascii=False), json.dumps(message, ensure_ascii=False)


def plain(value: Any) -> Any:
    """A value as Debezium writes it: days, microseconds, ISO for moments with a zone, decimals as text.

    >>> plain(dt.date(2024, 10, 4)), plain(Decimal("1.50")), plain(b"hi")
    (20000, '1.50', 'aGk=')
    """
    if isinstance(value, dt.datetime):
        if value.tzinfo is not None:
            return value.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
        return (value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return (value - EPOCH).days
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [plain(each) for each in value]
    return {name: plain(each) for name, each in value.items()} if isinstance(value, dict) else value
