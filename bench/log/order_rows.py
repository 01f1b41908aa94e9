"""The row that everyone appends: an order of about 100 bytes, in every form a system wants it.

Invariants: the forms of one ``Rows`` hold the same values, made from one seed; a packed payload is exactly
``PAYLOAD_BYTES`` long, so MB/s means the same for all systems. Forms are made before the clock starts.
Not here: timing (``log_bench.py``), writing (``peers/``).
Read next: ``bench/log/peers/peer.py``.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import numpy
import pyarrow as pa

DDL = "order_id BIGINT, user_id BIGINT, amount DOUBLE, country STRING, url STRING, at TIMESTAMP"
COLUMNS = ("order_id", "user_id", "amount", "country", "url", "at")

SCHEMA = pa.schema(
    [
        ("order_id", pa.int64()),
        ("user_id", pa.int64()),
        ("amount", pa.float64()),
        ("country", pa.string()),
        ("url", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)

# order_id, user_id, amount, at in microseconds, two bytes of country, then the url: 34 + 66 = 100 bytes.
_PACKED = struct.Struct("<qqdq2s66s")
PAYLOAD_BYTES = _PACKED.size

_COUNTRIES = ("DE", "FR", "US", "GB", "JP", "BR", "IN", "CN", "ES", "IT", "NL", "SE", "PL", "CA", "AU", "MX")
_START = datetime(2026, 1, 1, tzinfo=UTC)
_START_US = int(_START.timestamp()) * 1_000_000


@dataclass(frozen=True)
class Rows:
    """``count`` orders, starting at ``first_id``; each form is made once, on first use.

    >>> rows = Rows(count=3)
    >>> rows.batch.num_rows, len(rows.dicts), len(rows.payloads[0])
    (3, 3, 100)
    >>> rows.checksum
    3
    """

    count: int
    first_id: int = 0
    seed: int = 7

    @cached_property
    def _columns(self) -> tuple[list[int], list[int], list[float], list[str], list[str], list[int]]:
        random = numpy.random.default_rng(self.seed + self.first_id)
        order_ids = list(range(self.first_id, self.first_id + self.count))
        user_ids: list[int] = random.integers(0, 100_000, self.count).tolist()
        amounts: list[float] = random.integers(100, 100_000, self.count).astype(float).__truediv__(100).tolist()
        countries = [_COUNTRIES[i] for i in random.integers(0, len(_COUNTRIES), self.count).tolist()]
        products: list[int] = random.integers(0, 10**9, self.count).tolist()
        campaigns: list[int] = random.integers(0, 10**7, self.count).tolist()
        urls = [
            f"https://example.com/products/{product:010d}?campaign={campaign:07d}&page=001"
            for product, campaign in zip(products, campaigns, strict=True)
        ]
        times = (_START_US + numpy.arange(self.first_id, self.first_id + self.count) * 1_000).tolist()
        return order_ids, user_ids, amounts, countries, urls, times

    @cached_property
    def batch(self) -> pa.RecordBatch:
        """All rows as one Arrow record batch."""
        return pa.RecordBatch.from_arrays(
            [pa.array(column, type=field.type) for column, field in zip(self._columns, SCHEMA, strict=True)],
            schema=SCHEMA,
        )

    def batches(self, rows_each: int) -> list[pa.RecordBatch]:
        """All rows as Arrow batches of ``rows_each``; each owns its memory, as a caller's batch would."""
        slices = (self.batch.slice(start, rows_each) for start in range(0, self.count, rows_each))
        return [piece.take(pa.array(range(piece.num_rows))) for piece in slices]

    @cached_property
    def dicts(self) -> list[dict[str, Any]]:
        """The rows as an application has them."""
        return [
            dict(zip(COLUMNS, (*row[:5], _START + timedelta(microseconds=row[5] - _START_US)), strict=True))
            for row in zip(*self._columns, strict=True)
        ]

    @cached_property
    def tuples(self) -> list[tuple[Any, ...]]:
        """The rows as plain tuples; the time is an integer of microseconds, which databases take as it is."""
        return list(zip(*self._columns, strict=True))

    @cached_property
    def payloads(self) -> list[bytes]:
        """The rows as packed bytes: the best case of a system that stores bytes and knows no types."""
        return [
            _PACKED.pack(order, user, amount, at, country.encode(), url.encode())
            for order, user, amount, country, url, at in zip(*self._columns, strict=True)
        ]

    @cached_property
    def plain_dicts(self) -> list[dict[str, Any]]:
        """The rows as ``json.dumps`` takes them: the time as an integer, so that encoding is not slowed by it."""
        return [dict(zip(COLUMNS, row, strict=True)) for row in zip(*self._columns, strict=True)]

    @property
    def checksum(self) -> int:
        """The sum of ``order_id``, which every reader must find again."""
        return (2 * self.first_id + self.count - 1) * self.count // 2


def order_id(payload: bytes) -> int:
    """The ``order_id`` of a packed payload.

    >>> order_id(Rows(count=1, first_id=42).payloads[0])
    42
    """
    return int.from_bytes(payload[:8], "little", signed=True)


def to_json(row: dict[str, Any]) -> bytes:
    """A row as most people send it to a broker.

    >>> to_json({"order_id": 1})
    b'{"order_id":1}'
    """
    return json.dumps(row, separators=(",", ":")).encode()
