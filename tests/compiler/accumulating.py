"""One aggregate, kept over ticks: the SQL that a stage of a single group would run.

What it is: what ``AccumulateStage`` does, cut down to one aggregate over a table ``given`` (columns ``a``, ``b`` and
``_weight``) without groups, so that accumulators can be tried by themselves, on DuckDB and on Spark.
Invariants: all SQL is in Spark's dialect.
Not here: groups, flows (``duck.py``).
Read next: ``src/headwater/views/compiler/algebra/accumulators.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlglot

from headwater.views.compiler.algebra.accumulators import Accumulator, accumulator
from headwater.views.compiler.sql.dialect import SparkAsWritten, text


@dataclass(frozen=True)
class Keeping:
    """The three queries of a tick: ``step`` reads given and kept and yields what is kept next; ``read`` its value."""

    kept: Accumulator
    start: str  # what is kept before the first tick: one row of nulls
    step: str
    read: str


def keeping(aggregate: str, kind: str, *, append_only: bool = False, in_range: bool = False) -> Keeping:
    kept = accumulator(sqlglot.parse_one(aggregate, read=SparkAsWritten), (kind,), append_only=append_only)
    assert kept is not None, f"{aggregate} of {kind} has no accumulator"
    if in_range:
        assert kept.in_range is not None
        kept = kept.in_range
    xs = tuple(f"_x{number}" for number in range(len(kept.arguments)))
    states = tuple(f"_a{number}" for number in range(len(kept.types)))

    def columns(expressions: tuple[sqlglot.exp.Expr, ...], names: tuple[str, ...]) -> str:
        return "".join(f", {text(part)} AS {name}" for part, name in zip(expressions, names, strict=True))

    before, partial = (tuple(f"{side}.{name}" for name in states) for side in "bp")
    flow = f"SELECT _weight{columns(kept.arguments, xs)} FROM given"
    partials = f"SELECT COALESCE(SUM(_weight), 0) AS _n{columns(kept.partial(xs), states)} FROM ({flow})"
    merged = columns(kept.merge(before, partial), states)
    return Keeping(
        kept,
        start="SELECT CAST(NULL AS BIGINT) AS _n"
        + "".join(f", CAST(NULL AS {kind}) AS {name}" for kind, name in zip(kept.types, states, strict=True)),
        step=f"SELECT COALESCE(b._n, 0) + p._n AS _n{merged} FROM ({partials}) AS p CROSS JOIN kept AS b",
        read=f"SELECT {text(kept.final(states, '_n'))} AS value FROM kept",
    )
