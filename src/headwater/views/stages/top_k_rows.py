"""Leading rows at work: the first rows of a key from those it had and those that came.

What it is: what a stage with ``leading`` columns reads instead of all rows of the touched keys: its own old rows and
the new ones. A post reaches ten thousand timelines, and in each it meets fifty posts, not all that were ever written.
Invariants: a key that lost one of the rows it shows is *bare*: which row follows is told by all its rows, and they are
read. The rows of the other keys are right as they are given here, whatever the order.
Not here: which stages are such (``views/compiler/operators/top_k.py``); running the stage (``stage_run.py``).
Read next: ``views/compiler/operators/top_k.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headwater.views.compiler.plan import WEIGHT
from headwater.views.state.algebra import distinct, expand
from headwater.views.state.row_equality import lacking, matching


def leading_rows(
    old: pa.Table, changes: pa.Table, *, held: Sequence[str], keys: Sequence[str]
) -> tuple[pa.Table, pa.Table]:
    """The rows of the keys that are not bare, and the keys that are.

    ``old``: the stage's own rows of the touched keys, whose columns ``held`` are those of ``changes``, in order.

    >>> old = pa.table({"k": [1, 1, 2], "x": [9, 8, 9]})
    >>> changes = pa.table({"k": [1, 1, 2], "x": [10, 3, 9], "_weight": [1, -1, -1]})
    >>> rows, bare = leading_rows(old, changes, held=["k", "x"], keys=["k"])
    >>> rows.to_pylist(), bare.to_pylist()
    ([{'k': 1, 'x': 9}, {'k': 1, 'x': 8}, {'k': 1, 'x': 10}], [{'k': 2}])
    """
    names = [name for name in changes.column_names if name != WEIGHT]
    shape = changes.select(names).schema
    kept = old.select(list(held)).rename_columns(names).cast(shape)
    came = changes.filter(pc.greater(changes.column(WEIGHT), 0))
    left = changes.filter(pc.less(changes.column(WEIGHT), 0)).select(names)
    bare = distinct(matching(left, names, kept).select(list(keys)))
    return lacking(pa.concat_tables([kept, expand(came)]), keys, bare), bare
