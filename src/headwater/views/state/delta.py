"""Changes: what one tick changed in one relation, as weighted rows.

What it is: a table here on the driver (a small tick), or Parquet files that Spark wrote (a large one), with the few
facts that decide what is to be done with them.
Invariants: the columns are those of ``schema``, the last of which is ``_weight``; the rows never change. Files may be
moved once, when a pile adopts them; frames made afterwards read them at their new place.
Not here: what the rows are added to (``trace.py``); how they are computed (``views/tick/engine.py``).
Read next: ``run.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import Misuse
from headwater.views.compiler.plan import WEIGHT
from headwater.views.spark.scans import FrameCache, fitted, local_frame, nullable, scan
from headwater.views.state.consolidate import distinct
from headwater.views.state.run import Weighed, read_parquet, weigh, weigh_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS_MAX = 200_000  # rows of written changes of which the driver still fetches the keys
WEIGHT_FIELD = pa.field(WEIGHT, pa.int64(), nullable=False)


def weighted(schema: pa.Schema) -> pa.Schema:
    """A relation's columns as state keeps them, nullable, then ``_weight``.

    >>> weighted(pa.schema([("id", pa.int64())])).names
    ['id', '_weight']
    """
    columns = pa.schema([field for field in schema if field.name != WEIGHT])
    return pa.schema([*nullable(columns), WEIGHT_FIELD])


class Delta:
    """What changed. Made by ``local``, ``written`` or ``nothing``.

    >>> changes = Delta.local(pa.table({"id": [1, 2], "_weight": [1, -1]}))
    >>> changes
    Delta(2 rows, local)
    >>> changes.has_negative, changes.keys(["id"]).to_pylist()
    (True, [{'id': 1}, {'id': 2}])
    """

    def __init__(
        self, schema: pa.Schema, weighed: Weighed, *, table: pa.Table | None = None, files: Sequence[Path] = ()
    ) -> None:
        self.schema = weighted(schema)
        self.weighed = weighed
        self.table = table
        self.files = tuple(files)
        self.content: pa.Table | None = None  # weighted: all that is there now, where that was found on the way
        self._frames = FrameCache()

    @classmethod
    def local(cls, table: pa.Table) -> Delta:
        """A table on the driver, with a column ``_weight``."""
        schema = weighted(table.schema)
        return cls(schema, weigh(table), table=fitted(table, schema))

    @classmethod
    def written(cls, files: Sequence[Path], schema: pa.Schema) -> Delta:
        """Parquet files that Spark wrote, with a column ``_weight``. Their footers tell the rest."""
        weighed = weigh_files(files)
        return cls(schema, weighed, files=files) if weighed.rows else cls.nothing(schema)

    @classmethod
    def nothing(cls, schema: pa.Schema) -> Delta:
        """No changes at all."""
        return cls(schema, Weighed(0), table=weighted(schema).empty_table())

    @property
    def rows(self) -> int:
        """The number of weighted rows."""
        return self.weighed.rows

    @property
    def has_negative(self) -> bool:
        """Whether some weight is below 1."""
        return self.weighed.weight_min < 1

    def frame(self, spark: SparkSession) -> DataFrame:
        """The rows as a DataFrame; the same one when it is asked for again."""
        files = self.files
        return self._frames.get(
            spark, files, lambda: scan(spark, files, self.schema) if files else local_frame(spark, self.table)
        )

    def read(self) -> pa.Table:
        """The rows as a table, read from the files if need be."""
        if self.table is not None:
            return self.table
        batches = [batch for path in self.files for batch in read_parquet(path, self.schema)]
        return pa.Table.from_batches(batches, schema=self.schema)

    def keys(self, columns: Sequence[str]) -> pa.Table | None:
        """The distinct values of some columns; None when there are too many rows to fetch them."""
        if self.table is not None:
            return distinct(self.table.select(list(columns)))
        if self.rows > KEYS_MAX:
            return None
        fields = pa.schema([self.schema.field(name) for name in columns])
        batches = [batch for path in self.files for batch in read_parquet(path, fields)]
        return distinct(pa.Table.from_batches(batches, schema=fields))

    def moved(self, files: Sequence[Path]) -> None:
        """The files have got other names: a pile has adopted them."""
        if self.table is not None:
            raise Misuse("changes on the driver have no files that could be moved")
        self.files = tuple(files)

    def __repr__(self) -> str:
        where: Any = "local" if self.table is not None else f"{len(self.files)} files"
        return f"Changes({self.rows} rows, {where})"
