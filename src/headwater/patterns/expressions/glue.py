"""Glue: the part of a condition that combines several rows of a match, evaluated in Python as Spark would.

What it is: ``compile_glue``, which checks the types of a glue tree over the row columns at hand and makes a function
of it: (current row, what the thread remembers, match number) → true, false or null.
Invariants: three-valued logic; ANSI arithmetic; types that Spark would cast in silence are refused with what to write.
Not here: how the tree was made (``condition_split.py``); what a thread remembers (``thread_memory.py``).
Read next: ``thread_memory.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from headwater.patterns.clause.pattern_scanner import refuse
from headwater.patterns.expressions.condition_split import GlueNode
from headwater.patterns.expressions.glue_types import (
    BIGINT,
    BOOL,
    DAY_US,
    DOUBLE,
    DURATION,
    NULL,
    NUMERIC,
    GlueType,
    arithmetic,
    common,
    comparison,
    converter,
    order,
)

# (current row, values of the trackers, match number) → value
Evaluated = Callable[[int, Sequence[Any], int], Any]
Typed = tuple[Evaluated, GlueType]


def compile_glue(
    text: str,
    node: GlueNode,
    columns: Mapping[str, list[Any]],
    types: Mapping[str, GlueType],
    tracked: Sequence[GlueType],
) -> Evaluated:
    """The function of a condition's glue; a condition that is not boolean is refused."""
    function, kind = GlueCompiler(text, columns, types, tracked).build(node)
    if kind.kind not in ("boolean", "null"):
        refuse(text, node.span, f"a condition is {kind}, not true or false", "Compare it with something.")
    return function


class GlueCompiler:
    """Functions of the nodes of one tree."""

    def __init__(
        self, text: str, columns: Mapping[str, list[Any]], types: Mapping[str, GlueType], tracked: Sequence[GlueType]
    ) -> None:
        self.text, self.columns, self.types, self.tracked = text, columns, types, tracked

    def build(self, node: GlueNode) -> Typed:
        kind = node.kind
        if kind == "literal":
            return literal(node.value)
        if kind == "current":
            values = self.columns[node.column]
            return (lambda row, _memory, _number: values[row]), self.types[node.column]
        if kind == "pick":
            values, at = self.columns[node.column], node.tracker
            return (lambda _row, memory, _number: None if memory[at] < 0 else values[memory[at]]), self.types[
                node.column
            ]
        if kind == "tracked":
            at = node.tracker
            return (lambda _row, memory, _number: memory[at]), self.tracked[at]
        if kind == "number":
            return (lambda _row, _memory, number: number), BIGINT
        if kind == "bracket":
            return self.build(node.parts[0])
        parts = [self.build(part) for part in node.parts]
        return getattr(self, "of_" + kind)(node, parts)  # type: ignore[no-any-return]

    def mismatch(self, node: GlueNode, types: Sequence[GlueType]) -> None:
        names = " and ".join(dict.fromkeys(str(each) for each in types))
        what = node.value or node.kind.upper()
        refuse(
            self.text,
            node.span,
            f"{what} cannot combine {names} of several rows of a match",
            "Cast one of them, so that both have one type.",
        )

    def alike(self, node: GlueNode, parts: Sequence[Typed]) -> tuple[list[Evaluated], GlueType]:
        """The functions with their values in one type."""
        target = common([kind for _, kind in parts])
        if target is None:
            self.mismatch(node, [kind for _, kind in parts])
        assert target is not None
        return [converted(function, converter(kind, target)) for function, kind in parts], target

    def of_and(self, node: GlueNode, parts: Sequence[Typed]) -> Typed:  # noqa: ARG002
        (left, _), (right, _) = parts

        def both(row: int, memory: Sequence[Any], number: int) -> Any:
            first = left(row, memory, number)
            if first is False:
                return False
            second = right(row, memory, number)
            return False if second is False else None if first is None or second is None else True

        return both, BOOL

    def of_or(self, node: GlueNode, parts: Sequence[Typed]) -> Typed:  # noqa: ARG002
        (left, _), (right, _) = parts

        def either(row: int, memory: Sequence[Any], number: int) -> Any:
            first = left(row, memory, number)
            if first is True:
                return True
            second = right(row, memory, number)
            return True if second is True else None if first is None or second is None else False

        return either, BOOL

    def of_not(self, node: GlueNode, parts: Sequence[Typed]) -> Typed:  # noqa: ARG002
        part = parts[0][0]

        def negated(row: int, memory: Sequence[Any], number: int) -> Any:
            value = part(row, memory, number)
            return None if value is None else not value

        return negated, BOOL

    def of_is(self, node: GlueNode, parts: Sequence[Typed]) -> Typed:
        part = parts[0][0]
        if node.value in ("NULL", "UNKNOWN"):
            return (lambda row, memory, number: part(row, memory, number) is None), BOOL
        wanted = node.value == "TRUE"
        return (lambda row, memory, number: part(row, memory, number) is wanted), BOOL

    def of_unary(self, node: GlueNode, parts: Sequence[Typed]) -> Typed:
        part, kind = parts[0]
        if kind.kind not in (*NUMERIC, "interval", "null"):
            self.mismatch(node, [kind])
        if node.value == "+":
            return part, kind
        return strict(part, lambda value: -value), kind

    def of_binary(self, node: GlueNode, parts: Sequence[Typed]) -> Typed:
        symbol = str(node.value)
        if symbol in ("+", "-", "*", "/", "%", "DIV"):
            return self.calculated(node, symbol, parts)
        (left, right), kind = self.alike(node, parts)
        if symbol == "<=>":

            def same(row: int, memory: Sequence[Any], number: int) -> bool:
                first, second = left(row, memory, number), right(row, memory, number)
                if first is None or second is None:
                    return first is None and second is None
                return order(first, second) == 0

            return same, BOOL
        return strict_pair(left, right, comparison(symbol, kind.kind == "float")), BOOL

    def calculated(self, node: GlueNode, symbol: str, parts: Sequence[Typed]) -> Typed:
        (left, first), (right, second) = parts
        kinds = (first.kind, second.kind)
        result: GlueType | None = None
        if "null" in kinds:
            return (lambda *_: None), NULL
        if all(each in NUMERIC for each in kinds):
            (left, right), result = self.alike(node, parts)
            if symbol == "/" and result.kind == "decimal":
                hint = "Cast one side to DOUBLE; Spark rounds a quotient of decimals by their declared digits."
                refuse(self.text, node.span, "decimals of several rows cannot be divided in a condition", hint)
            if symbol == "/":
                result = DOUBLE if result.kind == "int" else result
                function = strict_pair(converted(left, float), converted(right, float), arithmetic(symbol, result))
                return function, result
            if symbol == "DIV":
                result = BIGINT
        elif symbol == "-" and kinds in (("timestamp",) * 2, ("timestamp_ntz",) * 2):
            result = DURATION
        elif symbol == "-" and kinds == ("date", "date"):
            return strict_pair(left, right, lambda a, b: (a - b) * DAY_US), DURATION
        elif symbol in "+-" and kinds[0] in ("timestamp", "timestamp_ntz", "interval") and kinds[1] == "interval":
            result = first
        elif symbol == "+" and kinds[0] == "interval" and kinds[1] in ("timestamp", "timestamp_ntz"):
            result = second
        if result is None:
            self.mismatch(node, [first, second])
        assert result is not None
        return strict_pair(left, right, arithmetic(symbol, result)), result

    def of_between(self, node: GlueNode, parts: Sequence[Typed]) -> Typed:
        above = self.of_binary(GlueNode("binary", node.span, value=">="), [parts[0], parts[1]])
        below = self.of_binary(GlueNode("binary", node.span, value="<="), [parts[0], parts[2]])
        return self.of_and(node, [above, below])

    def of_in(self, node: GlueNode, parts: Sequence[Typed]) -> Typed:
        found = self.of_binary(GlueNode("binary", node.span, value="="), [parts[0], parts[1]])
        for item in parts[2:]:
            found = self.of_or(
                node, [found, self.of_binary(GlueNode("binary", node.span, value="="), [parts[0], item])]
            )
        return found

    def of_case(self, node: GlueNode, parts: Sequence[Typed]) -> Typed:
        written = str(node.value)
        items = list(parts)
        subject = items.pop(0) if written.startswith("simple") else None
        otherwise = items.pop() if written.endswith("else") else ((lambda *_: None), NULL)
        tests = items[::2]
        if subject is not None:
            equal = GlueNode("binary", node.span, value="=")
            tests = [self.of_binary(equal, [subject, test]) for test in tests]
        results, kind = self.alike(node, [*items[1::2], otherwise])

        def chosen(row: int, memory: Sequence[Any], number: int) -> Any:
            for (test, _), result in zip(tests, results, strict=False):
                if test(row, memory, number) is True:
                    return result(row, memory, number)
            return results[-1](row, memory, number)

        return chosen, kind

    def of_call(self, node: GlueNode, parts: Sequence[Typed]) -> Typed:
        name = str(node.value)
        counts = {"ABS": (1, 1), "IF": (3, 3), "NULLIF": (2, 2), "NVL": (2, 2), "IFNULL": (2, 2)}
        low, high = counts.get(name, (1 if name == "COALESCE" else 2, 1_000))
        if not low <= len(parts) <= high:
            hint = f"Give it {low}." if low == high else f"Give it at least {low}."
            refuse(self.text, node.span, f"{name.lower()} has {len(parts)} arguments", hint)
        if name == "IF":
            return self.of_case(GlueNode("case", node.span, value="searched else"), parts)
        if name == "ABS":
            if parts[0][1].kind not in (*NUMERIC, "null"):
                self.mismatch(node, [parts[0][1]])
            return strict(parts[0][0], abs), parts[0][1]
        functions, kind = self.alike(node, parts)
        if name == "NULLIF":
            first, second = functions

            def unless(row: int, memory: Sequence[Any], number: int) -> Any:
                value, other = first(row, memory, number), second(row, memory, number)
                return None if value is not None and other is not None and order(value, other) == 0 else value

            return unless, kind
        if name in ("GREATEST", "LEAST"):
            wanted = 1 if name == "GREATEST" else -1

            def extreme(row: int, memory: Sequence[Any], number: int) -> Any:
                best = None
                for function in functions:
                    value = function(row, memory, number)
                    if value is not None and (best is None or order(value, best) == wanted):
                        best = value
                return best

            return extreme, kind

        def first_known(row: int, memory: Sequence[Any], number: int) -> Any:
            for function in functions:
                value = function(row, memory, number)
                if value is not None:
                    return value
            return None

        return first_known, kind


def literal(value: object) -> Typed:
    kind = NULL
    if isinstance(value, bool):
        kind = BOOL
    elif isinstance(value, int):
        kind = GlueType("int", 32 if -(2**31) <= value < 2**31 else 64)
    elif isinstance(value, Decimal):
        kind = GlueType("decimal", 128, 38, max(0, -int(value.as_tuple().exponent)))
    elif isinstance(value, float):
        kind = DOUBLE
    return (lambda *_: value), kind


def converted(function: Evaluated, convert: Callable[[Any], Any] | None) -> Evaluated:
    return function if convert is None else strict(function, convert)


def strict(function: Evaluated, operation: Callable[[Any], Any]) -> Evaluated:
    """Null for null, else the operation."""

    def applied(row: int, memory: Sequence[Any], number: int) -> Any:
        value = function(row, memory, number)
        return None if value is None else operation(value)

    return applied


def strict_pair(left: Evaluated, right: Evaluated, operation: Callable[[Any, Any], Any]) -> Evaluated:
    """Null where either is null, else the operation."""

    def applied(row: int, memory: Sequence[Any], number: int) -> Any:
        first = left(row, memory, number)
        if first is None:
            return None
        second = right(row, memory, number)
        return None if second is None else operation(first, second)

    return applied
