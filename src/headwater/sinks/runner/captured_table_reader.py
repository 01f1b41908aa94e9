"""Captured table reader: a captured table as the input of a sink, without a view and without Spark.

What it is: ``CapturedTableReader`` reads a captured table as ``ViewReader`` reads a view. Its ticks are the capture's
markers: tick n is the state at marker n, so source transactions stay whole.
Invariants: everything comes from the log. A range that the markers no longer cover is None, never a gap; then the sink
takes a full copy. A deleted row of a table with a key has only its key, unless the sink needs whole rows: then the log
is searched for it.
Not here: views (``views/serving/view_reader.py``); writing markers (``capture/capture.py``).
Read next: ``views/serving/view_reader.py``, ``log/event_time/capture_markers.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.contract import EventLog, EventTopic
from headwater.log.event_time.capture_markers import Marker, Markers
from headwater.log.schema.normalization import WEIGHT
from headwater.views.compiler.frontend.as_of import DELETED
from headwater.views.serving.deliveries import Delivery, batches
from headwater.views.serving.view_reader import ViewHead, ViewLag
from headwater.views.state.algebra import consolidate, expand, with_weight
from headwater.views.state.row_equality import last_of_each, matching
from headwater.views.tick.inputs import InputRelation

PARTITION = 0  # a captured table has one


class CapturedTableReader:
    """The rows and changes of one captured table.

    ``whole``: deleted rows are needed with all their columns.
    """

    def __init__(self, log: EventLog, table: str, *, home_id: str, epoch: Callable[[], int], whole: bool) -> None:
        self.view = table
        self.epoch = epoch
        self._log = log
        self._home_id = home_id
        self._whole = whole

    def head(self) -> ViewHead | None:
        """The table at the last marker; None when no marker names it yet."""
        found = self._last()
        return None if found is None else self._moment(*found)

    def _last(self) -> tuple[EventTopic, Marker] | None:
        topic = self._log.get_topic(self.view)
        topic.refresh()
        markers = self._markers(topic)
        last = None if markers is None else markers.last()
        return None if last is None or self.view not in last.ends else (topic, last)

    def _markers(self, topic: EventTopic) -> Markers | None:
        capture = topic.settings.captured_by
        return None if capture is None else Markers.find(self._log, capture)

    def _moment(self, topic: EventTopic, marker: Marker) -> ViewHead:
        version = f"{self._home_id}/{topic.id}/{topic.schema_version}"
        base = InputRelation(topic)
        return ViewHead(marker.offset + 1, version, base.schema, base.key)

    # Changes

    def changes(self, after: int, head: ViewHead, *, rows_max: int, ticks_max: int) -> Delivery | None:
        topic = self._log.get_topic(self.view)
        markers = self._markers(topic)
        before = None if markers is None else markers.at(after - 1)
        if markers is None or before is None or self.view not in before.ends:
            return None
        begin = before.ends[self.view]
        marker = markers.last_within({self.view: begin + rows_max})
        if marker is None or marker.offset < after:
            marker = markers.at(after)  # one batch that is larger than that
        last = min(head.tick, after + ticks_max)
        if marker is not None and marker.offset + 1 > last:
            marker = markers.at(last - 1)
        if marker is None:
            return None
        end = marker.ends[self.view]
        return Delivery(self._between(InputRelation(topic), begin, end), after, marker.offset + 1, self.epoch())

    def _between(self, base: InputRelation, begin: int, end: int) -> pa.Table:
        """The consolidated changes of the records between two offsets."""
        if not base.key:
            return consolidate(base.read({PARTITION: begin}, {PARTITION: end}, [*base.schema.names, WEIGHT]))
        rows = base.read({PARTITION: begin}, {PARTITION: end}, [*base.schema.names, DELETED])
        latest = rows.filter(pa.array(last_of_each(rows, base.key)))
        gone = latest.column(DELETED).fill_null(False)
        latest = latest.select(base.schema.names)
        come = with_weight(latest.filter(pc.invert(gone)), 1)
        if not self._whole:
            return pa.concat_tables([with_weight(latest.filter(gone), -1), come])
        left = [
            matching(pa.Table.from_batches([batch]), base.key, latest.select(list(base.key)))
            for batch in base.rows_up_to({PARTITION: begin})
        ]
        old = [with_weight(table.drop_columns([WEIGHT]).cast(base.schema), -1) for table in left if table.num_rows]
        return consolidate(pa.concat_tables([*old, come]))

    def lag(self, after: int) -> ViewLag:
        found = self._last()
        if found is None or found[1].offset + 1 <= after:
            return ViewLag()
        topic, last = found
        markers = self._markers(topic)
        before = None if markers is None else markers.at(after - 1)
        ticks = last.offset + 1 - after
        if before is None or self.view not in before.ends:
            return ViewLag(ticks, 0.0, None)
        first = None if markers is None else markers.at(after)
        seconds = 0.0
        if first is not None and first.committed_at is not None:
            seconds = max(0.0, self._log.clock.now_us() / 1_000_000 - first.committed_at.timestamp())
        return ViewLag(ticks, seconds, last.ends[self.view] - before.ends[self.view])

    # All rows

    @contextmanager
    def rows(self) -> Iterator[tuple[ViewHead, Iterator[pa.RecordBatch]]]:
        found = self._last()
        assert found is not None, "the caller has seen a head"
        topic, marker = found
        yield self._moment(topic, marker), self._batches(InputRelation(topic), marker.ends[self.view])

    def _batches(self, base: InputRelation, end: int) -> Iterator[pa.RecordBatch]:
        if base.key:
            for batch in base.rows_up_to({PARTITION: end}):
                yield batch.drop_columns([WEIGHT]).cast(base.schema)
            return
        start = base.topic.start_offsets()
        every = base.read(start, {PARTITION: end}, [*base.schema.names, WEIGHT])
        yield from batches(expand(consolidate(every)))
