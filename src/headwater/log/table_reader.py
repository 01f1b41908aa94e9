"""Reading a table: the rows that its records leave, from the log alone.

What it is: ``TableReader`` gives all rows of a table as they are now, or those with some values, without Spark.
Invariants: with a key, the latest record of a key is its row, and a tombstone takes it away; without, a row is there as
often as its weights sum to. A captured table is read up to its last whole transaction, as ticks do. Memory is that of
about twice the rows that are there, not of all that ever were.
Not here: changing a table (``table.py``); reading it by Spark (``views/serving/snapshot.py``).
Read next: ``table.py``, ``log/schema/row_identity.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import Misuse
from headwater.hints import suggestion
from headwater.log.event_time import capture_markers
from headwater.log.schema.normalization import WEIGHT
from headwater.log.schema.row_conversion import to_batches
from headwater.log.schema.row_identity import row_identities

if TYPE_CHECKING:
    from headwater.log.contract import EventTopic

DELETED = "_deleted"
SPARE_ROWS = 65_536  # so many rows that are gone are held, at least, before they are let go of


class TableReader:
    """Reads the rows of one table, once: what is appended later is not seen."""

    def __init__(self, topic: EventTopic) -> None:
        topic.refresh()
        self._topic = topic
        self._key = topic.settings.key
        self._schema = pa.schema([field for field in topic.schema if field.name != WEIGHT])
        self._stops = capture_markers.bound([topic], topic.log.cut([topic]))[topic.name]

    def all(self) -> pa.Table:
        """All rows, partition by partition, in the order in which each came or was last changed."""
        return self._as_declared(pa.concat_tables([self._state(number) for number in self._stops]))

    def matching(self, wanted: Mapping[str, Any]) -> pa.Table:
        """The rows with these values; quicker when they are those of the key."""
        for name in wanted:
            if name not in self._schema.names:
                raise Misuse(
                    f'table "{self._topic.name}" has no column "{name}"',
                    hint=suggestion(name, self._schema.names),
                    column=name,
                )
        schema = pa.schema([self._schema.field(name).with_nullable(True) for name in wanted])
        given = to_batches([dict(wanted)], schema)
        if self._key and set(self._key) <= set(wanted):
            key = {name: given.column(name)[0] for name in self._key}
            found = pa.concat_tables([self._state(each, key) for each in self._topic.appender.partitions_with(given)])
        else:
            found = self.all()
        (identity,) = row_identities(given)
        places = [place for place, each in enumerate(row_identities(found.select(list(wanted)))) if each == identity]
        return self._as_declared(found.take(pa.array(places, pa.int64())))

    def _as_declared(self, rows: pa.Table) -> pa.Table:
        """The same rows, with the columns NOT NULL that are declared so: a tombstone has its key alone, a row all."""
        return pa.Table.from_arrays(rows.columns, schema=self._schema)

    def _state(self, number: int, key: Mapping[str, pa.Scalar] | None = None) -> pa.Table:
        """The rows that the records of one partition leave, of those with this key."""
        kept = _CurrentRows(pa.schema([field.with_nullable(True) for field in self._schema]), multiset=not self._key)
        mark = DELETED if self._key else WEIGHT
        names = self._schema.names
        start, stop = self._topic.start_offsets()[number], self._stops[number]
        if start >= stop:
            return kept.table()
        for batch in self._topic.read_partition(number, start, stop=stop, columns=[mark, *names]):
            data = batch.data
            for name, value in (key or {}).items():
                data = data.filter(pc.equal(data.column(name), value))
            rows = data.select(names)
            kept.add(rows, row_identities(rows.select(self._key or names)), data.column(mark).to_pylist())
        return kept.table()


class _CurrentRows:
    """The rows that are there, among records that are added in their order."""

    def __init__(self, schema: pa.Schema, *, multiset: bool) -> None:
        self._schema = schema
        self._multiset = multiset
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0
        self._places: dict[bytes, int] = {}  # where in what is held the row of an identity is
        self._counts: dict[bytes, int] = {}  # of a multiset: how often

    def add(self, rows: pa.RecordBatch, identities: list[bytes], marks: list[Any]) -> None:
        """Records; ``marks`` are weights in a multiset, and else whether each is a tombstone."""
        for place, (identity, mark) in enumerate(zip(identities, marks, strict=True), start=self._held_rows):
            if self._multiset:
                count = self._counts.get(identity, 0) + mark
                if count:
                    self._counts[identity] = count
                    self._places.setdefault(identity, place)
                else:
                    del self._counts[identity], self._places[identity]
            else:
                self._places.pop(identity, None)
                if not mark:
                    self._places[identity] = place
        self._held.append(pa.RecordBatch.from_arrays(rows.columns, schema=self._schema))
        self._held_rows += rows.num_rows
        if self._held_rows > 2 * len(self._places) + SPARE_ROWS:
            self._let_go()

    def _let_go(self) -> None:
        """Hold only the rows that are there."""
        kept = self._taken(list(self._places.values())).combine_chunks()
        self._held, self._held_rows = kept.to_batches(), kept.num_rows
        self._places = {identity: place for place, identity in enumerate(self._places)}

    def _taken(self, places: list[int]) -> pa.Table:
        return pa.Table.from_batches(self._held, schema=self._schema).take(pa.array(places, pa.int64()))

    def table(self) -> pa.Table:
        """The rows."""
        if not self._multiset:
            return self._taken(list(self._places.values()))
        return self._taken([place for identity, place in self._places.items() for _ in range(self._counts[identity])])
