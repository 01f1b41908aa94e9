"""Alert: a notification when a row of a view begins to satisfy a rule.

What it is: ``AlertSink``, a sink that remembers the keys that satisfy the rule and notifies once for each, until it no
longer does.
Invariants: at least once: the notification is sent before the home records it. A full copy notifies only of keys that
are new. The rule is SQLite's SQL over the view's columns.
Not here: mails (``email.py``), requests (``webhook_sink.py``).
Read next: ``email.py``; ``docs/sinks.md``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import SinkRefused, Unavailable
from headwater.log.schema.ddl import spark_type
from headwater.log.schema.row_conversion import to_rows
from headwater.sinks.email import Email
from headwater.sinks.runner.kept_progress import kept_progress
from headwater.sinks.sink import Leftover, Sink, SinkContext, StoredProgress, Target, check_fence, is_next, reached
from headwater.sinks.text_values import json_text, key_texts
from headwater.sinks.webhook_sink import Poster, WebhookSink
from headwater.views.serving.deliveries import Delivery, deletes, row_names, upserts
from headwater.views.serving.serving_columns import DECIMAL_COLLATION, ServedColumn, compare_decimals, quoted

if TYPE_CHECKING:
    from headwater.log.contract import EventLog

Alerted = Mapping[str, Any]  # app, view, sink, rule, key, row, tick


@dataclass(frozen=True)
class AlertSink(Sink):
    """Notify ``to`` (an ``Email``, a ``WebhookSink`` or a function) when a row begins to satisfy ``when``.

    >>> AlertSink("error_rate > 0.05", to=print).when
    'error_rate > 0.05'
    """

    when: str
    to: Email | WebhookSink | Callable[[Alerted], Any]

    kind = "alert"

    @property
    def layout(self) -> str:
        return self.when

    def open(self, context: SinkContext, log: EventLog) -> Target:
        return AlertTarget(context, log, self)

    def __str__(self) -> str:
        to = str(self.to) if isinstance(self.to, Email | WebhookSink) else getattr(self.to, "__name__", "a function")
        return f"alert: {self.when}, to {to}"


class Rule:
    """A condition over a view's columns.

    >>> rule = Rule("n > 2", pa.schema([("n", pa.int64())]))
    >>> rule.satisfied(pa.table({"n": [1, 3, None]}))
    [False, True, False]
    """

    def __init__(self, condition: str, schema: pa.Schema) -> None:
        self.condition = condition
        self.columns = [ServedColumn.of(field.name, spark_type(field.type)) for field in schema]
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._db.create_collation(DECIMAL_COLLATION, compare_decimals)
        self._db.execute(f"CREATE TABLE row ({', '.join(column.declaration for column in self.columns)})")
        try:
            self._db.execute(f"SELECT rowid FROM row WHERE ({condition})").fetchall()
        except sqlite3.Error as error:
            raise SinkRefused(
                f"the rule {condition!r} is invalid: {error}",
                hint=f"It is SQL over the columns {', '.join(column.name for column in self.columns)}.",
            ) from error

    def satisfied(self, rows: pa.Table) -> list[bool]:
        """Whether each row satisfies the rule; null counts as false."""
        if not rows.num_rows:
            return []
        values = [column.stored(rows.column(column.name))[1] for column in self.columns]
        marks = ", ".join("?" * len(self.columns))
        self._db.execute("DELETE FROM row")
        names = ", ".join(quoted(column.name) for column in self.columns)
        self._db.executemany(f"INSERT INTO row ({names}) VALUES ({marks})", zip(*values, strict=True))
        found = {place for (place,) in self._db.execute(f"SELECT rowid FROM row WHERE ({self.condition})")}
        return [place + 1 in found for place in range(rows.num_rows)]

    def close(self) -> None:
        """Release the database."""
        self._db.close()


class AlertTarget(Target):
    """The recipient. The home stores which keys satisfy the rule."""

    def __init__(self, context: SinkContext, log: EventLog, sink: AlertSink) -> None:
        super().__init__(context)
        self.sink = sink
        self.memory = kept_progress(log, context)
        self.rule = Rule(sink.when, context.schema)
        self._poster = Poster(sink.to, log.clock) if isinstance(sink.to, WebhookSink) else None

    def progress(self) -> StoredProgress | None:
        return self.memory.recall()[0]

    def fill(self, rows: Iterable[pa.RecordBatch], tick: int, epoch: int) -> StoredProgress:
        progress, known = self.memory.recall()
        check_fence(progress, self.context, epoch, filling=True)
        firing: dict[str, Any] = {}
        for batch in rows:
            firing |= self._firing(pa.Table.from_batches([batch]))
        self._tell({name: row for name, row in firing.items() if name not in set(known or ())}, tick)
        return self.memory.remember(tick, epoch, sorted(firing))

    def forget(self) -> Leftover | None:
        return Leftover("alerts that were sent cannot be called back", final=True)

    def apply(self, delivery: Delivery) -> StoredProgress:
        progress, known = self.memory.recall()
        if not is_next(progress, self.context, delivery):
            return reached(progress, self.context)
        come, before = upserts(delivery.changes), set(known or ())
        firing = self._firing(come)
        gone = deletes(delivery.changes, self.context.key or self.context.schema.names)
        left = {*self._names(gone), *self._names(come)}
        self._tell({name: row for name, row in firing.items() if name not in before}, delivery.tick)
        return self.memory.remember(delivery.tick, delivery.epoch, sorted((before - left) | set(firing)))

    def close(self) -> None:
        self.rule.close()
        if self._poster is not None:
            self._poster.close()

    def _names(self, rows: pa.Table) -> list[str]:
        if self.context.key:
            return key_texts(rows, self.context.key)
        return [name.hex() for name in row_names(rows)]

    def _firing(self, rows: pa.Table) -> dict[str, Any]:
        """The rows that satisfy the rule, by their keys."""
        found = rows.filter(pa.array(self.rule.satisfied(rows), pa.bool_()))
        listed = [row for batch in found.to_batches() for row in to_rows(batch)]
        return dict(zip(self._names(found), listed, strict=True))

    def _tell(self, firing: Mapping[str, Any], tick: int) -> None:
        context, to = self.context, self.sink.to
        about = {"app": context.app, "view": context.view, "sink": context.sink, "rule": self.sink.when, "tick": tick}
        alerts = [{**about, "key": name, "row": row} for name, row in firing.items()]
        if not alerts:
            return
        if isinstance(to, Email):
            to.send(alerts)
        elif self._poster is not None:
            for alert in alerts:
                name = f"{context.identity}/{tick}/{alert['key'].encode().hex()}"
                status, said = self._poster.post((json_text(alert) or "").encode(), name)
                if status >= 300:
                    raise SinkRefused(f"{to} refuses the alert: {status} {said[:200]}", hint="Change the receiver.")
        else:
            assert callable(to)
            for alert in alerts:
                try:
                    to(alert)
                except Exception as error:
                    raise Unavailable(
                        f"the function that alerts go to failed: {type(error).__name__}: {error}",
                        hint="It is retried with the same alerts.",
                    ) from error
