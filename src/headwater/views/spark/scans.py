"""Scans: Parquet files and Arrow tables as DataFrames.

What it is: the two leaves of every query over state, and a small memory of the frames that were made.
Invariants: a frame has exactly the columns of the schema it was asked for, all nullable, in Spark's own types; Spark
verifies the checksum of each page it reads. Making a frame runs no query.
Not here: topics (``topic_scan.py``), what the rows mean (``views/state/trace.py``).
Read next: ``views/state/trace.py``.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds

from headwater.log.schema.ddl import to_ddl
from headwater.views import thresholds
from headwater.views.spark.topic_scan import literal_path, parquet_reader

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame, SparkSession

FRAMES_MAX = 4
PIECE_ROWS_MIN = 4096
SLICES_MAX = 6
SCRATCH = "spark.headwater.scratch"  # of a session: where it may put tables until the tick ends


def scan(spark: SparkSession, paths: Sequence[Path], schema: pa.Schema) -> DataFrame:
    """The rows of Parquet files, which are all of this schema."""
    reader = parquet_reader(spark).schema(to_ddl(nullable(schema)))
    return reader.parquet(*(literal_path(path) for path in paths))


def local_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A table that is here. A small one travels inside the query's plan, a larger one in a file of the scratch folder.

    A plan with a hundred thousand rows in it takes 0.3 s longer than a file of them.
    """
    schema = nullable(table.schema)
    rows = one_chunk(fitted(table, schema))
    folder = spark.conf.get(SCRATCH, None) if table.num_rows > thresholds.LOCAL_ROWS_MAX else None
    if folder is None:
        frame: DataFrame = spark.createDataFrame(rows, to_ddl(schema))
        return frame
    path = Path(folder) / f"{uuid.uuid4().hex}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    # No dictionaries: see ``views/state/run.py``.
    pq.write_table(rows, path, compression="none", use_dictionary=False, store_schema=False)
    return scan(spark, [path], schema)


def of_unknown_size(frame: DataFrame) -> DataFrame:
    """The same frame, of which Spark does not think that it is as small as the numbers of its tasks.

    It would broadcast it, through the driver. (As for other rows of unknown size, an adaptive plan sees what comes.)
    """
    from pyspark.sql import DataFrame

    spark, java = frame.sparkSession, frame._jdf
    session: JavaObject = spark._jsparkSession
    return DataFrame(session.internalCreateDataFrame(java.queryExecution().toRdd(), java.schema(), False), spark)


@functools.lru_cache(maxsize=4096)  # a tick asks for the same ones again and again
def nullable(schema: pa.Schema) -> pa.Schema:
    """The schema as Spark's Parquet reader makes it: everything may be null, inside of nested types too.

    >>> strict = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    >>> nullable(pa.schema([pa.field("place", strict, nullable=False)]))
    place: struct<x: int32>
      child 0, x: int32
    """
    return pa.schema([_nullable_field(field) for field in schema])


def one_chunk(table: pa.Table) -> pa.Table:
    """The table in one piece.

    PySpark 4.3 stops at the first empty record batch, and the rows behind it are lost. One piece has none.
    """
    if table.num_rows:
        return table if len(table.to_batches()) == 1 else table.combine_chunks()
    # Arrow can neither combine nor cast a nested column of no chunks at all: give it one.
    return pa.Table.from_batches([pa.RecordBatch.from_pylist([], schema=table.schema)])


def gathered(table: pa.Table) -> pa.Table:
    """The table in one piece, unless its pieces are large. An operation takes as long for each piece as for some
    thousand rows, and tables that were added up again and again come in pieces of one row.

    >>> gathered(pa.concat_tables([pa.table({"id": [1]}), pa.table({"id": [2]})])).column("id").num_chunks
    1
    """
    pieces = len(table.to_batches())  # asking each column for its pieces takes ten times as long
    return table.combine_chunks() if pieces > 1 and table.num_rows < pieces * PIECE_ROWS_MIN else table


def rows_at(table: pa.Table, places: Sequence[int]) -> pa.Table:
    """Few rows of a table, whose places rise: by slices where they lie together, which takes half of the time.

    >>> rows_at(pa.table({"id": [1, 2, 3, 4]}), [0, 1, 3]).column("id").to_pylist()
    [1, 2, 4]
    """
    first = [place for at, place in enumerate(places) if not at or places[at - 1] + 1 != place]
    last = [place for at, place in enumerate(places) if at + 1 == len(places) or places[at + 1] - 1 != place]
    if not places or len(first) > SLICES_MAX:
        return table.take(pa.array(places, pa.int64()))
    slices = [table.slice(start, end + 1 - start) for start, end in zip(first, last, strict=True)]
    return pa.concat_tables(slices).combine_chunks() if len(slices) > 1 else slices[0]


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table's columns by name, in the types of a schema that may be wider and is nullable where the table is."""
    if table.schema.equals(schema, check_metadata=True):
        return table
    # Not Table.cast: it refuses a column of the very same type when a NOT NULL part of a null struct is null.
    columns = [_as_type(table.column(field.name), field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _as_type(column: pa.ChunkedArray, arrow: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == arrow else column.cast(arrow)


def _nullable_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _nullable_type(field.type))


def _nullable_type(arrow: pa.DataType) -> pa.DataType:
    if kinds.is_list(arrow):
        return pa.list_(_nullable_type(arrow.value_type))
    if kinds.is_map(arrow):
        return pa.map_(_nullable_type(arrow.key_type), _nullable_type(arrow.item_type))
    if kinds.is_struct(arrow):
        return pa.struct([_nullable_field(field) for field in arrow])
    return arrow


class FrameCache:
    """The last few frames, each remembered by its session and by what it was made from.

    Making a frame over Parquet costs some 20 ms, mostly to list the files; a tick asks for the same ones many times.
    """

    def __init__(self) -> None:
        self._made: list[tuple[SparkSession, Hashable, DataFrame]] = []

    def get(self, spark: SparkSession, source: Hashable, make: Callable[[], DataFrame]) -> DataFrame:
        """The frame made from ``source`` in this session; ``make`` is called when there is none."""
        for session, made_from, frame in self._made:
            if made_from == source and _same_session(session, spark):
                return frame
        frame = make()
        # A new list, not a changed one: views may be computed in several threads.
        self._made = [*self._made[1 - FRAMES_MAX :], (spark, source, frame)]
        return frame


def _same_session(one: SparkSession, other: SparkSession) -> bool:
    """Whether both are one session of the JVM, which two Python objects may wrap."""
    return one is other or bool(one._jsparkSession.equals(other._jsparkSession))
