"""Input events: the records of the log behind rows of topics and tables.

What it is: ``input_events`` turns wanted rows of an input, which are known by place, key or columns, into records with
their authors. The event of a row with a key is the last upsert of the key at the tick.
Invariants: at most ``limit`` records are read, all are counted. A row whose record retention has taken is counted as
lost. A request id is told when the log still remembers it.
Not here: which rows are wanted (``stage_lineage.py``).
Read next: ``why.py``; ``docs/writing.md``, "Who did it".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.clock import to_us
from headwater.errors import Misuse, OffsetOutOfRange
from headwater.log.commits.request_ids import HOME
from headwater.log.schema.event_metadata import METADATA_COLUMNS
from headwater.log.schema.row_identity import row_identities
from headwater.log.token import Token
from headwater.views.compiler.plan import WEIGHT
from headwater.views.provenance.provenance import InputEvent, ProvenanceInput
from headwater.views.provenance.relation_rows import PLACE, RelationRows
from headwater.views.provenance.stage_lineage import Demand, restricted
from headwater.views.spark.scans import local_frame
from headwater.views.spark.topic_scan import quoted
from headwater.views.state.algebra import distinct
from headwater.views.state.omissions import frame_without, without
from headwater.views.state.row_equality import matching
from headwater.views.tick.inputs import InputKind, InputRelation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.log.contract import EventTopic

DELETED = "_deleted"
APPENDED = "_appended_at"
PRODUCER = "_producer"
HERE_ROWS_MAX = 20_000_000
COMMIT_US = 60_000_000  # an append and the note of its request id lie closer together than this

Place = tuple[int, int]


def input_events(rows: RelationRows, base: InputRelation, demands: Sequence[Demand], limit: int) -> ProvenanceInput:
    """The events behind wanted rows of an input."""
    if rows.by_place(base):
        found, count = _first(_together(rows, base, demands, PLACE), PLACE, limit)
        places = list(zip(*(found.column(name).to_pylist() for name in PLACE), strict=True))
        return ProvenanceInput(base.topic.name, count, tuple(records(base.topic, places)))
    if base.kind is InputKind.KEYED:
        found, count = _first(_together(rows, base, demands, base.key), base.key, limit)
        places = _last_upserts(rows, base, found)
        events = tuple(records(base.topic, places))
        return ProvenanceInput(base.topic.name, count, events, found.num_rows - len(events))
    identity = rows.identity(base.name, ())
    wanted = _together(rows, base, demands, identity)
    start, stop = rows.span(base)
    every = [*identity, *PLACE]
    written = frame_without(rows.spark, base.topic, start, stop, every, base.omitted)
    equal = restricted(written, Demand(identity, wanted)).select(*PLACE)
    found, count = _first(equal, PLACE, limit)
    places = list(zip(*(found.column(name).to_pylist() for name in PLACE), strict=True))
    lost = _count(wanted) if base.lost_rows and not count else 0
    return ProvenanceInput(base.topic.name, count + lost, tuple(records(base.topic, places)), lost)


def _together(
    rows: RelationRows, base: InputRelation, demands: Sequence[Demand], identity: Sequence[str]
) -> pa.Table | DataFrame:
    """What tells the wanted rows apart, each once; a table where all of it is here."""
    if any(not demand.columns for demand in demands):
        every = rows.weighted(base.name, identity)
        there = every.groupBy(*map(quoted, identity)).agg({WEIGHT: "sum"}).where(f"`sum({WEIGHT})` <> 0")
        return there.drop(f"sum({WEIGHT})")
    here = [demand.rows.select(list(identity)) for demand in demands if isinstance(demand.rows, pa.Table)]
    if len(here) == len(demands):
        return here[0] if len(here) == 1 else distinct(pa.concat_tables(here))
    frames = [
        demand.rows.select(*map(quoted, identity))
        for demand in demands
        if demand.rows is not None and not isinstance(demand.rows, pa.Table)
    ]
    if len(frames) == 1 and not here:
        return frames[0]
    frames += [local_frame(rows.spark, table) for table in here]
    return reduce(lambda one, other: one.union(other), frames).distinct()


def _count(rows: pa.Table | DataFrame) -> int:
    return int(rows.num_rows if isinstance(rows, pa.Table) else rows.count())


def _first(rows: pa.Table | DataFrame, order: Sequence[str], limit: int) -> tuple[pa.Table, int]:
    """The first rows in an order, and how many there are: one job for both."""
    if isinstance(rows, pa.Table):
        with suppress(pa.ArrowNotImplementedError, pa.ArrowInvalid):  # Arrow has no order of some types
            rows = rows.sort_by([(name, "ascending") for name in order])
        return rows.slice(0, limit), rows.num_rows
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    told = rows.observe(seen, f.count(f.lit(1)).alias("count"))
    found = told.orderBy(*map(quoted, order)).limit(limit).toArrow()
    return found, int(seen.get["count"])


def _last_upserts(rows: RelationRows, base: InputRelation, keys: pa.Table) -> list[Place]:
    """Where the last records of some keys are, as of the tick. A key has one partition."""
    if keys.num_rows == 0:
        return []
    start, stop = rows.span(base)
    if base.topic.rows_most(start, stop) <= HERE_ROWS_MAX:
        return sorted(_found_here(base, keys, start, stop))
    written = frame_without(rows.spark, base.topic, start, stop, [*base.key, *PLACE], base.omitted)
    some = restricted(written, Demand(base.key, keys))
    last = some.groupBy(*map(quoted, base.key), "_partition").agg({"_offset": "max"}).toArrow()
    return sorted(zip(last.column("_partition").to_pylist(), last.column("max(_offset)").to_pylist(), strict=True))


def _found_here(
    base: InputRelation, keys: pa.Table, start: Mapping[int, int], stop: Mapping[int, int]
) -> Iterator[Place]:
    """The same, by reading the keys in this process: a million take less than a Spark job does."""
    for partition in sorted(stop):
        last: dict[bytes, int] = {}
        for batch in base.topic.read_partition(
            partition, start[partition], stop=stop[partition], columns=[*base.key, "_offset"]
        ):
            some = matching(pa.Table.from_batches([without(batch, base.omitted)]), base.key, keys)
            identities = row_identities(some.select(list(base.key)))
            last.update(zip(identities, some.column("_offset").to_pylist(), strict=True))
        yield from ((partition, offset) for offset in last.values())


def records(topic: EventTopic, places: Iterable[Place]) -> Iterable[InputEvent]:
    """The records at some places, in the order of the places; without those that are gone."""
    own = [name for name in topic.schema.names if name != WEIGHT]
    marks = [DELETED] if topic.settings.key else [WEIGHT] if WEIGHT in topic.schema.names else []
    columns = [*own, *marks, APPENDED, PRODUCER, *METADATA_COLUMNS]
    producers = topic.producer_names()
    for partition, offset in places:
        for row in _read(topic, partition, offset, columns):
            appended = row[APPENDED]
            correlation, causation, actor = (row[name] for name in METADATA_COLUMNS)
            yield InputEvent(
                topic.name,
                partition,
                offset,
                appended,
                producers.get(row[PRODUCER]),
                actor,
                correlation,
                causation,
                request_id(topic, partition, offset, appended),
                {name: row[name] for name in own},
                int(row.get(WEIGHT, 1)),
            )


def _read(topic: EventTopic, partition: int, offset: int, columns: Sequence[str]) -> list[dict[str, Any]]:
    with suppress(OffsetOutOfRange):
        return [
            row
            for batch in topic.read_partition(partition, offset, stop=offset + 1, columns=columns)
            for row in batch.to_pylist()
        ]
    return []


def request_id(topic: EventTopic, partition: int, offset: int, appended: Any) -> str | None:
    """The id of the request that appended a record, if it had one that is still remembered."""
    if appended is None or not hasattr(topic.log, "registry"):
        return None
    moment = to_us(appended)
    noted = topic.log.local.catalog.read(
        "SELECT id, token FROM request_ids WHERE scope IN (?, ?) AND token <> '' AND appended_us BETWEEN ? AND ?",
        (HOME, topic.id, moment - COMMIT_US, moment + COMMIT_US),
    )
    if not noted:
        return None
    end = topic.whole_after(partition, offset + 1)  # of a place at the end of an append that place
    for row in noted:
        with suppress(Misuse, ValueError, json.JSONDecodeError):
            if Token.parse(row["token"]).frontier.get(topic.name, {}).get(partition) == end:
                return str(row["id"])
    return None
