"""Registers: approx_count_distinct over rows that only come.

What it is: Spark counts different values by HyperLogLog++, of whose registers its SQL shows nothing. A register holds
the largest rank among the hashes that fall into it, so one value of that rank, its *witness*, fills it as all did. One
stage keeps a witness for each register of a group (``min`` of rows that only come: it accumulates); another one, keyed
by the group, asks Spark's own ``approx_count_distinct`` of the witnesses, 512 at most for the default error.
Invariants: the answer is Spark's over all rows, to the last digit, whatever the order.
Not here: sketches with a value in SQL (``views/compiler/algebra/sketches.py``); rows that can leave, of which the
witness may be one; FLOAT and DOUBLE, which Spark normalises before it hashes them.
Read next: ``grouping.py``, whose DISTINCT aggregates are written the same way.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from sqlglot import exp

from headwater.views.compiler.algebra.flow import TableRef
from headwater.views.compiler.algebra.plan_nodes import Unsupported
from headwater.views.compiler.algebra.select_block import SelectBlock
from headwater.views.compiler.algebra.sketches import is_sketch
from headwater.views.compiler.operators.grouping import answer_from_groups, group_by, tags
from headwater.views.compiler.sql.builtin_functions import aggregate_name
from headwater.views.compiler.sql.dialect import text
from headwater.views.compiler.sql.expressions import Node, canonical, column, conjunction, named, output_name, unaliased

COUNTED = "approx_count_distinct"
HASH_BITS = 64
ERROR = 0.05  # relative, of one standard deviation, unless it is said
ERROR_FACTOR = 1.106  # Spark's
REGISTER_BITS_MIN, REGISTER_BITS_MAX = 4, 12  # with more registers their witnesses are many rows themselves
ERROR_MIN = 0.0173  # which needs as many
HASHED_AS_THEY_ARE = re.compile(
    r"(TINYINT|SMALLINT|INT|INTEGER|BIGINT|STRING|BINARY|BOOLEAN|DATE|TIMESTAMP|TIMESTAMP_NTZ|DECIMAL(\(.*\))?)", re.I
)


def register_bits(error: float) -> int:
    """The bits of a hash that number its register, as Spark has them.

    >>> register_bits(0.05), register_bits(ERROR_MIN)
    (9, 12)
    """
    return math.ceil(2 * math.log(ERROR_FACTOR / error) / math.log(2))


def expand_registers(
    block: SelectBlock,
    groups: list[Node],
    calls: list[Node],
    *,
    aggregate: Callable[[SelectBlock], None],
    accumulates: Callable[[SelectBlock, list[Node]], bool],
) -> bool:
    """Turn approx_count_distinct into the same over an aggregation by group and register. False: nothing was done."""
    counted = [call for call in calls if _name(call) == COUNTED]
    plain = [call for call in calls if _name(call) != COUNTED]
    if not counted or not block.workshop.is_append_only(block.product({})):
        return False
    if any(_name(call) in ("min", "max") or is_sketch(_name(call)) for call in plain) or not accumulates(block, plain):
        return False
    bits = [_bits(call) for call in counted]
    if any(each is None for each in bits) or not _hashed_as_they_are(block, counted):
        return False
    inner = SelectBlock(
        block.workshop, exp.Select(), dict(block.items), [*block.conditions], [*block.laterals], [*block.where]
    )
    tag = tags(inner, len(counted) + 1) if plain or len(counted) > 1 else None
    columns_of: dict[str, Node] = {f"g__{place}": group for place, group in enumerate(groups)}
    columns_of |= {"tag": tag} if tag is not None else {}
    witnesses: dict[str, Node] = {}
    for number, (call, size) in enumerate(zip(counted, bits, strict=True), start=1):
        value, hashed = _value(call, tag, number), _call("xxhash64", _value(call, tag, number))
        columns_of[f"r__{number}"] = _where_known(value, _call("shiftrightunsigned", hashed, HASH_BITS - (size or 0)))
        witnesses[f"w__{number}"] = exp.Min(this=_where_known(value, _witness(value, hashed, size or 0)))
    inner.rest = exp.Select(expressions=[named(part, name) for name, part in columns_of.items()])
    for name, witness in witnesses.items():
        inner.rest.append("expressions", named(witness, name))
    group_by(inner, columns_of, plain)
    aggregate(inner)
    shown = ", ".join(text(call).replace("`", "") for call in counted)
    for item in inner.items.values():
        if isinstance(item, TableRef) and item.relation in block.workshop.drafts:
            block.workshop.drafts[item.relation].what = f"one value for each register of {shown}"
    flow = inner.product({output_name(part): unaliased(part) for part in inner.rest.expressions})
    types = {found.name: found.type for found in block.workshop.types_of(flow)}

    alias = block.start_over(flow)
    new_calls = {
        canonical(call): _of_witnesses(call, column(alias, f"w__{number}"))
        for number, call in enumerate(counted, start=1)
    }
    answer_from_groups(block, alias, groups, plain, new_calls, types)
    block.workshop.kept_otherwise.add("registers")
    return True


def _plain_call(call: Node) -> Node:
    return call.this if isinstance(call, exp.Filter) else call


def _name(call: Node) -> str | None:
    return aggregate_name(_plain_call(call))


def _given(call: Node) -> list[Node]:
    function = _plain_call(call)
    if isinstance(function, exp.Anonymous):
        return list(function.expressions)
    return [part for part in function.iter_expressions() if isinstance(part, exp.Expr)]


def _bits(call: Node) -> int | None:
    """How many registers a call has; None when it is called in another way, or has too many."""
    given = _given(call)
    if not 1 <= len(given) <= 2 or isinstance(given[0], exp.Distinct | exp.Kwarg):
        return None
    try:
        error = float(given[1].name.rstrip("Dd")) if len(given) == 2 else ERROR
        bits = register_bits(error)
    except (ValueError, ZeroDivisionError):
        return None
    return bits if REGISTER_BITS_MIN <= bits <= REGISTER_BITS_MAX else None


def _hashed_as_they_are(block: SelectBlock, counted: list[Node]) -> bool:
    outputs = {f"x__{place}": _given(call)[0] for place, call in enumerate(counted)}
    try:
        typed = block.workshop.types_of(block.product(outputs))
    except Unsupported:
        return False
    return all(found.type is not None and HASHED_AS_THEY_ARE.fullmatch(found.type) for found in typed)


def _value(call: Node, tag: Node | None, number: int) -> Node:
    """The value of a call, null on rows that are not repeated for it or that its FILTER leaves out."""
    tests: list[Node] = [exp.EQ(this=tag.copy(), expression=exp.Literal.number(number))] if tag is not None else []
    tests += [call.expression.this.copy()] if isinstance(call, exp.Filter) else []
    condition = conjunction(tests)
    value = _given(call)[0].copy()
    return value if condition is None else exp.Case(ifs=[exp.If(this=condition, true=value)])


def _where_known(value: Node, then: Node) -> Node:
    known = exp.Not(this=exp.Is(this=exp.paren(value.copy()), expression=exp.Null()))
    return exp.Case(ifs=[exp.If(this=known, true=then)])


def _witness(value: Node, hashed: Node, bits: int) -> Node:
    """The value behind the rest of its hash without leading zeros: the least has the largest rank."""
    # As Spark pads it, so that the rank has a limit.
    rest = exp.BitwiseOr(this=_call("shiftleft", hashed, bits), expression=exp.Literal.number(1 << (bits - 1)))
    digits = _call("length", _call("bin", rest))
    return _call("named_struct", exp.Literal.string("digits"), digits, exp.Literal.string("value"), value)


def _of_witnesses(call: Node, witness: exp.Column) -> Node:
    value = exp.Dot(this=witness, expression=exp.to_identifier("value", quoted=True))
    return exp.Anonymous(this=COUNTED, expressions=[value, *(part.copy() for part in _given(call)[1:])])


def _call(name: str, *given: Node | int) -> exp.Anonymous:
    arguments = [exp.Literal.number(part) if isinstance(part, int) else part.copy() for part in given]
    return exp.Anonymous(this=name, expressions=arguments)
