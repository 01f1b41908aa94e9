"""Sketches: aggregates whose value can be united with that of other rows.

What it is: for a sketch of Spark's (HLL, theta, tuple, KLL, top-k, bitmaps) over rows that only come, the part of its
accumulator that is SQL: the sketch of a tick's rows, its union with the one that was kept, and the value.
Invariants: what is kept is the sketch itself, in Spark's own bytes, so that a tick costs its rows and the sketches of
the groups touched. A row that is there n times counts n times where counting matters. Of rows of negative weight
(those that state expiry takes away) nothing is taken back: their groups are final.
Not here: rows that can leave, for a value cannot be taken out of a sketch: those groups are made again from their
rows; aggregates that no SQL of Spark's unites (``NOT_UNITED``), for the same reason.
Read next: ``accumulators.py``, then ``views/compiler/render.py``, which writes the two kinds of union.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BINARY = "BINARY"
# The defaults of approx_top_k: how many items it shows, and how many it tracks.
TOP_ITEMS, TRACKED_ITEMS = "5", "10000"
NUMBERS = ("bigint", "double", "float")
SUMMARIES = ("double", "integer")
# Sketches that Spark makes and cannot unite.
NOT_UNITED = frozenset({"approx_count_distinct", "approx_percentile", "count_min_sketch", "percentile_approx"})

# Nothing was kept for a group that is new.
UNITED = "CASE WHEN {{b0}} IS NULL THEN {{p0}} ELSE {union}({{b0}}, {{p0}}{rest}) END"
# A union of no sketches has a size that nobody asked for, and would give it to the sketches that it is united with.
SIZED = (
    "CASE WHEN {{b0}} IS NULL OR {size}({{b0}}) = 0 THEN {{p0}} WHEN {size}({{p0}}) = 0 THEN {{b0}} "
    "ELSE {union}({{b0}}, {{p0}}{rest}) END"
)


@dataclass(frozen=True)
class Sketch:
    """The templates of a sketch's accumulator, with the names of ``Accumulator``.

    ``values`` is how many arguments of the call are values of the row; the others are constants. With ``gathers`` the
    ``merge`` is an aggregate over ``{u0}``, a row for what was kept before, if there is any, and one for the tick's.
    """

    partial: str
    merge: str
    value: str = "{a0}"
    type: str | None = BINARY
    values: int = 1
    gathers: bool = False
    repeats: bool = False  # whether a row that is there twice is to be given twice


def sketch(name: str, arguments: Sequence[str], kind: str | None) -> Sketch | None:
    """The sketch that an aggregate makes, of its arguments as SQL; ``kind`` is the type of the first one.

    >>> sketch("theta_sketch_agg", ["user_id", "14"], "BIGINT").merge
    'CASE WHEN {b0} IS NULL THEN {p0} ELSE theta_union({b0}, {p0}, 14) END'
    >>> sketch("approx_top_k", ["page", "3"], "STRING").value
    'approx_top_k_estimate({a0}, 3)'
    >>> sketch("approx_count_distinct", ["user_id"], "BIGINT") is None
    True
    """
    values = 2 if name.startswith("tuple_sketch_agg_") else 1
    if len(arguments) < values:
        return None
    constants = [part.replace("{", "{{").replace("}", "}}") for part in arguments[values:]]
    if name.startswith("approx_top_k"):
        return _top_items(name, constants, kind)
    return _bitmap(name) or _united(name, constants, values)


def is_sketch(name: str | None) -> bool:
    """Whether an aggregate is a sketch that can be united.

    >>> is_sketch("kll_sketch_agg_bigint"), is_sketch("sum")
    (True, False)
    """
    return name is not None and sketch(name, ["x", "y"], None) is not None


def _rest(constants: Sequence[str]) -> str:
    return "".join(f", {part}" for part in constants)


def _united(name: str, constants: Sequence[str], values: int) -> Sketch | None:
    """A sketch with a function that unites two."""
    rest = _rest(constants)
    partial = f"{name}({', '.join(f'{{x{number}}}' for number in range(values))}{rest})"
    if name == "hll_sketch_agg":
        return Sketch(partial, UNITED.format(union="hll_union", rest=""))
    if name == "hll_union_agg":
        return Sketch(partial, SIZED.format(union="hll_union", size="hll_sketch_estimate", rest=rest))
    if name in ("theta_sketch_agg", "theta_union_agg"):
        return Sketch(partial, UNITED.format(union="theta_union", rest=rest))
    for kind in SUMMARIES:
        if name in (f"tuple_sketch_agg_{kind}", f"tuple_union_agg_{kind}"):
            merge = UNITED.format(union=f"tuple_union_{kind}", rest=rest)
            return Sketch(partial, merge, values=values, repeats=True)  # summaries of one key are added up
    for kind in NUMBERS:
        union, size = f"kll_sketch_merge_{kind}", f"kll_sketch_get_n_{kind}"
        if name == f"kll_sketch_agg_{kind}":
            return Sketch(partial, UNITED.format(union=union, rest=""), repeats=True)
        if name == f"kll_merge_agg_{kind}":
            return Sketch(partial, SIZED.format(union=union, size=size, rest=""), repeats=True)
    return None


def _bitmap(name: str) -> Sketch | None:
    if name in ("bitmap_construct_agg", "bitmap_or_agg"):
        return Sketch(f"{name}({{x0}})", "bitmap_or_agg({u0})", gathers=True)
    if name == "bitmap_and_agg":
        return Sketch("bitmap_and_agg({x0})", "bitmap_and_agg({u0})", gathers=True)
    return None


def _top_items(name: str, constants: Sequence[str], kind: str | None) -> Sketch | None:
    value, state = "{a0}", kind
    if name == "approx_top_k":
        shown, tracked = [*constants, *(TOP_ITEMS, TRACKED_ITEMS)[len(constants) :]][:2]
        value = f"approx_top_k_estimate({{a0}}, {shown})"
    elif name == "approx_top_k_accumulate":
        tracked = (constants or [TRACKED_ITEMS])[0]
    elif constants:
        tracked = constants[0]
    else:  # approx_top_k_combine takes the size of the sketches that it meets, and another one when it meets none
        return None
    if name != "approx_top_k_combine" and kind is not None:
        state = f"STRUCT<sketch: BINARY, maxItemsTracked: INT, itemDataType: {kind}, itemDataTypeDDL: STRING>"
    return Sketch(
        f"{'approx_top_k_accumulate' if name == 'approx_top_k' else name}({{x0}}, {tracked})",
        f"approx_top_k_combine({{u0}}, {tracked})",
        value,
        state,
        gathers=True,
        repeats=True,
    )
