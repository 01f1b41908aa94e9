"""Session buckets: what bounds the work for session_window without another group.

What it is: ``bucket_of``, the number of the bucket that a row's time falls into: time cut into pieces as long as the
gap of the sessions. The rows are stored with it, and the stage of the sessions is keyed by it.
Invariants: two rows at most one gap apart are in one bucket or in two that lie side by side. So the rows of a session
fill buckets without a hole, and buckets between two holes hold whole sessions only, whatever comes or goes in them.
Not here: finding those buckets in a tick (``views/stages/bucket_runs.py``); sessions beside another group, which are
keyed by that (``aggregation.py``).
Read next: ``aggregation.py``.
"""

from __future__ import annotations

from sqlglot import exp

from headwater.views.compiler.algebra.exact_sums import spark_sql
from headwater.views.compiler.algebra.finality import length_us
from headwater.views.compiler.algebra.flow import Product
from headwater.views.compiler.algebra.select_block import SelectBlock
from headwater.views.compiler.sql.expressions import Node, substitute

BUCKET = "bucket__"
TIMES = ("TIMESTAMP", "TIMESTAMP_NTZ")


def bucket_of(block: SelectBlock, session: Node) -> Node | None:
    """The bucket of a row; None when the gap is not the same for all rows, or the time is none by its type."""
    assert isinstance(session, exp.Anonymous)
    gap_us, time = length_us(session), session.expressions[0]
    if gap_us is None:
        return None
    flow = block.product({})
    (typed,) = block.workshop.types_of(Product(flow.items, {BUCKET: time}, flow.conditions, flow.laterals))
    if (typed.type or "").upper() not in TIMES:
        return None
    bucket = spark_sql("unix_micros(CAST(x AS TIMESTAMP)) DIV {gap}", gap=str(gap_us))
    return substitute(bucket, lambda _: time.copy())
