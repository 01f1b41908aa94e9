"""Collecting: a frame's rows, brought here a few at a time, as far as they may be.

What it is: ``collected``, for answers to strangers: what Spark's own ``toArrow`` does, with an eye on the size.
Invariants: more is asked for only while what has come is within the bounds, so that a result beyond them is refused
while it is still small. Spark keeps what it has shuffled, so asking again does not compute the query again.
Not here: the limit of rows, which is in the query's own SQL (``server/queries/query_engine.py``).
Read next: ``views/serving/snapshot.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import AnswerTooLarge

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame

BATCH_ROWS = 32
GROWTH = 32  # each time so many times as many batches are asked for, if they are no larger than those before


def collected(frame: DataFrame, bytes_max: int) -> pa.Table:
    """The rows of a frame that has one partition, or few."""
    from pyspark.sql.pandas.types import to_arrow_schema

    spark = frame.sparkSession
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    java: JavaObject = frame._jdf
    batches = java.toArrowBatchRdd(BATCH_ROWS, spark.conf.get("spark.sql.session.timeZone"), True, False)
    count = 0
    came: list[bytes] = []
    while len(came) == count:
        held = sum(map(len, came))
        room = 2 * bytes_max * count // held + 1 if held else 1  # batches, of the size that they had
        count = max(count + 1, min(GROWTH * count, room))
        came = list(batches.take(count))
        if sum(map(len, came)) > bytes_max:
            raise AnswerTooLarge(
                f"the answer has more than {bytes_max / (1 << 20):g} MiB",
                hint="Ask for fewer rows (LIMIT), or fewer and shorter columns. The server's limit is --query-mib.",
                bytes_max=bytes_max,
            )
    return pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(each), schema) for each in came], schema)
