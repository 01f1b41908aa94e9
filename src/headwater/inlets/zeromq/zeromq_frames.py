"""ZeroMQ frames: one message as rows or as an Arrow table.

What it is: ``ZeromqFrames`` reads the frames of one message; ``Gaps`` counts missing sequence numbers.
Invariants: any frames give rows or ``RowRefused``; foreign Arrow data is validated before use.
Not here: sockets (``zeromq_inlet.py``). Read next: ``zeromq_inlet.py``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from headwater.errors import RowRefused
from headwater.inlets.message_bodies import arrow_table, rows_of
from headwater.log.contract import EventTopic

FORMATS = ("json", "arrow", "raw")
PREFIXES_MAX = 10_000


class ZeromqFrames:
    """Reads messages for one topic.

    >>> import headwater as hw, tempfile
    >>> topic = hw.Log(tempfile.mkdtemp()).topic("clicks", "url STRING, channel STRING")
    >>> frames = ZeromqFrames(topic, "json", subscribed=True, prefix_column="channel")
    >>> frames.rows([b"web", b'{"url": "/"}'])
    ({'url': '/', 'channel': 'web'},)
    >>> frames.rows([b'web {"url": "/"}'])
    ({'url': '/', 'channel': 'web'},)
    """

    def __init__(
        self,
        topic: EventTopic,
        form: str,
        *,
        subscribed: bool,
        raw_column: str = "body",
        prefix_column: str | None = None,
    ) -> None:
        self.topic = topic
        self.form = form
        self.subscribed = subscribed
        self.raw_column = raw_column
        self.prefix_column = prefix_column

    def rows(self, frames: Sequence[bytes]) -> tuple[dict[str, Any], ...]:
        """The rows of one message of JSON or of raw bytes."""
        prefix, payloads = self._split(frames)
        found: list[dict[str, Any]] = []
        for payload in payloads:
            found += rows_of(payload, self.topic.schema) if self.form == "json" else [{self.raw_column: payload}]
        if self.prefix_column is not None:
            found = [{**row, self.prefix_column: prefix} for row in found]
        return tuple(found)

    def table(self, frames: Sequence[bytes]) -> pa.Table:
        """The rows of one message of Arrow."""
        prefix, payloads = self._split(frames)
        tables = [arrow_table(payload) for payload in payloads]
        try:
            whole = pa.concat_tables(tables)
        except pa.ArrowException as error:
            raise RowRefused(f"the frames have different columns: {str(error)[:200]}", expected="Arrow") from None
        if self.prefix_column is not None:
            whole = whole.append_column(self.prefix_column, pa.array([prefix] * whole.num_rows, pa.string()))
        return whole

    def _split(self, frames: Sequence[bytes]) -> tuple[str | None, list[bytes]]:
        prefix: bytes | None = None
        payloads = list(frames)
        if self.subscribed and len(payloads) > 1:
            prefix, *payloads = payloads
        elif self.prefix_column is not None:
            prefix, _, payload = payloads[0].partition(b" ")
            payloads = [payload, *payloads[1:]]
        payloads = [payload for payload in payloads if payload]
        if not payloads:
            raise RowRefused("the message has no payload", expected=self.form)
        return None if prefix is None else prefix.decode("utf-8", "replace"), payloads


class Gaps:
    """Counts missing numbers for each prefix; a lower number is a sender that restarted.

    >>> gaps = Gaps("n", None)
    >>> gaps.in_rows([{"n": 1}, {"n": 2}, {"n": 5}]), gaps.in_rows([{"n": 7}, {"n": 1}, {"n": 2}])
    (2, 1)
    """

    def __init__(self, column: str | None, prefix_column: str | None) -> None:
        self.column = column
        self.prefix_column = prefix_column
        self._last: OrderedDict[Any, int] = OrderedDict()

    def in_rows(self, rows: Iterable[dict[str, Any]]) -> int:
        """The count of missing numbers before and between some rows."""
        if self.column is None:
            return 0
        return sum(self._missing(row.get(self.prefix_column or ""), row.get(self.column)) for row in rows)

    def in_table(self, table: pa.Table) -> int:
        if self.column is None or self.column not in table.column_names:
            return 0
        names = [name for name in (self.column, self.prefix_column) if name is not None]
        return self.in_rows(table.select(names).to_pylist())

    def _missing(self, prefix: Any, number: Any) -> int:
        if type(number) is not int:
            return 0
        last = self._last.get(prefix)
        self._last[prefix] = number
        self._last.move_to_end(prefix)
        if len(self._last) > PREFIXES_MAX:
            self._last.popitem(last=False)
        return max(0, number - last - 1) if last is not None else 0
