"""A delta: what one tick changed in one relation, as weighted rows.

What it is: one type for four places where the rows may be: a table on the driver (a small tick), Parquet files that
Spark wrote (a large one), files that executors wrote on an object store (a large one on a cluster), or a query that
Spark runs when somebody reads it (*lazy*: a range of the log, or all that a relation holds).
Invariants: the columns are those of ``schema``, the last of which is ``_weight``; the rows never change. Files are
moved once, when the first trace adopts them; frames made afterwards read them at their new place, and other traces
copy them. A lazy delta cannot become a run, and its weights are not known unless they are all 1.
Not here: operations on weighted rows (``algebra.py``); what the rows are added to (``trace.py``).
Read next: ``algebra.py``, ``run.py``.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import Misuse
from headwater.views import thresholds
from headwater.views.spark.scans import FrameCache, fitted, local_frame, scan
from headwater.views.state.algebra import distinct, weighted_schema
from headwater.views.state.run import Weighed, read_parquet, weigh, weigh_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.views.state.remote.executor_files import StoredRows

ANY_WEIGHT = 1 << 62  # a bound that stands for "not known"


@dataclass(frozen=True)
class StayingRows:
    """The rows that a delta leaves as they are. Together with those that it adds they are the content afterwards."""

    files: tuple[Path, ...]
    added_from: int  # of the delta's own files those from this place on hold the rows that it adds, and no others


@functools.lru_cache(maxsize=4096)  # making one takes 0.1 ms, and most ticks change nothing in most stages
def _empty(schema: pa.Schema) -> pa.Table:
    return schema.empty_table()


class Delta:
    """Weighted changes. Made by ``local``, ``written``, ``on_store``, ``lazy`` or ``nothing``.

    >>> changes = Delta.local(pa.table({"id": [1, 2], "_weight": [1, -1]}))
    >>> changes
    Delta(2 rows, local)
    >>> changes.has_negative, changes.keys(["id"]).to_pylist()
    (True, [{'id': 1}, {'id': 2}])
    """

    def __init__(
        self,
        schema: pa.Schema,
        weighed: Weighed,
        *,
        table: pa.Table | None = None,
        files: Sequence[Path] = (),
        stored: StoredRows | None = None,
        build: Callable[[SparkSession], DataFrame] | None = None,
    ) -> None:
        self.schema = weighted_schema(schema)
        self.weighed = weighed
        self.table = table
        self.files = tuple(files)
        self.stored = stored  # files that are not on this machine
        self.staying: StayingRows | None = None  # where these were found on the way
        self.content: pa.Table | None = None  # all rows afterwards, where they were at hand
        self.adopted = False  # the files are those of a run
        self.adopting = threading.Lock()
        self._build = build
        self._frames = FrameCache()

    @classmethod
    def local(cls, table: pa.Table, *, content: pa.Table | None = None) -> Delta:
        """A table on the driver, with a column ``_weight``; ``content``: all rows afterwards, so that nobody need add
        them up.
        """
        schema = weighted_schema(table.schema)
        delta = cls(schema, weigh(table), table=fitted(table, schema))
        delta.content = content
        return delta

    @classmethod
    def written(cls, files: Sequence[Path], schema: pa.Schema) -> Delta:
        """Parquet files that Spark wrote, with a column ``_weight``. Their footers tell the rest."""
        weighed = weigh_files(files)
        return cls(schema, weighed, files=files) if weighed.rows else cls.nothing(schema)

    @classmethod
    def on_store(cls, stored: StoredRows, weighed: Weighed, schema: pa.Schema) -> Delta:
        """Files that executors wrote on an object store, with a column ``_weight``."""
        return cls(schema, weighed, stored=stored) if weighed.rows else cls.nothing(schema)

    @classmethod
    def lazy(
        cls, schema: pa.Schema, rows: int, build: Callable[[SparkSession], DataFrame], *, plain: bool = False
    ) -> Delta:
        """A query for at most so many weighted rows, which runs when they are read. ``plain``: each weight is 1."""
        weighed = Weighed(rows, 1, 1) if plain else Weighed(rows, -ANY_WEIGHT, ANY_WEIGHT)
        return cls(schema, weighed, build=build)

    @classmethod
    def nothing(cls, schema: pa.Schema) -> Delta:
        """No changes at all."""
        return cls(schema, Weighed(0), table=_empty(weighted_schema(schema)))

    @property
    def rows(self) -> int:
        """The number of weighted rows."""
        return self.weighed.rows

    @property
    def is_lazy(self) -> bool:
        """Whether the rows are a query that has not run."""
        return self._build is not None

    @property
    def has_negative(self) -> bool:
        """Whether some weight is, or may be, below 1."""
        return self.weighed.weight_min < 1

    @property
    def plain(self) -> bool:
        """Whether each weight is known to be 1."""
        return self.weighed.weight_min == self.weighed.weight_max == 1

    def frame(self, spark: SparkSession) -> DataFrame:
        """The rows as a DataFrame; the same one when it is asked for again."""
        files, stored = self.files, self.stored

        def make() -> DataFrame:
            if self._build is not None:
                return self._build(spark)
            if stored is not None:
                return stored.frame(spark, self.schema)
            return scan(spark, files, self.schema) if files else local_frame(spark, self.table)

        return self._frames.get(spark, (files, stored), make)

    def collect(self, spark: SparkSession) -> pa.Table:
        """The rows as a table, wherever they are."""
        return self.frame(spark).toArrow().cast(self.schema) if self.is_lazy else self.read()

    def read(self) -> pa.Table:
        """The rows as a table, read from the files if need be. Not of a lazy delta."""
        assert not self.is_lazy
        if self.table is not None:
            return self.table
        return pa.Table.from_batches(self._batches(self.schema), schema=self.schema)

    def columns(self, fields: pa.Schema) -> pa.Table:
        """These columns of the rows, here. Not of a lazy delta."""
        if self.table is not None:
            return fitted(self.table, fields)
        return pa.Table.from_batches(self._batches(fields), schema=fields)

    def _batches(self, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        if self.stored is not None:
            return self.stored.read(fields)
        return (batch for path in self.files for batch in read_parquet(path, fields))

    def few_marked(self, mark: str, columns: Sequence[str], *, most: int) -> pa.Table | None:
        """Some columns of the rows with a mark, from the files that Spark wrote; None when they are more than ``most``,
        and when the rows are elsewhere or have no such mark."""
        if not self.files or self.table is not None or mark not in self.schema.names:
            return None
        counted = (
            pc.sum(batch.column(0)).as_py() or 0 for batch in self._batches(pa.schema([self.schema.field(mark)]))
        )
        if sum(counted) > most:
            return None
        fields = pa.schema([self.schema.field(name) for name in dict.fromkeys((*columns, mark))])
        some = [batch.filter(batch.column(mark)) for batch in self._batches(fields)]
        return pa.Table.from_batches(some, schema=fields).select(list(columns))

    def keys(self, columns: Sequence[str]) -> pa.Table | None:
        """The distinct values of some columns; None when there are too many rows to fetch them, or they are lazy."""
        if self.table is not None:
            return distinct(self.table.select(list(columns)))
        if self.is_lazy or self.rows > thresholds.LOOKUP_KEYS_MAX:
            return None
        fields = pa.schema([self.schema.field(name) for name in columns])
        return distinct(pa.Table.from_batches(self._batches(fields), schema=fields))

    def read_from(self, other: Delta) -> None:
        """Let Spark read these rows, which are here and too many for a plan, from the files of their run."""
        self.files, self.stored = other.files, other.stored
        if self.stored is not None:
            self.table = None  # executors compute what follows: the driver needs them no more

    def moved(self, files: Sequence[Path]) -> None:
        """The files have got other names: a trace has adopted them."""
        if self.table is not None:
            raise Misuse("changes on the driver have no files that could be moved")
        self.files, self.adopted = tuple(files), True

    def __repr__(self) -> str:
        files = self.files if self.stored is None else self.stored.files
        where = "local" if self.table is not None else "lazy" if self.is_lazy else f"{len(files)} files"
        return f"Delta({self.rows} rows, {where})"
