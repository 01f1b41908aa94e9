"""Measures, split: what the matcher picks for each output row, and the SQL over it that Spark computes.

What it is: ``MeasureSplitter``, which replaces the references in MEASURES by slots (a row column at a row of the
match, the classifier, the match number, the status) and the aggregates by names; ``Slot``, ``Aggregate``.
Invariants: the rest of a measure is the user's text; a slot or aggregate that occurs twice is one.
Not here: the values of slots (``match_result.py``) and of aggregates (``member_aggregates.py``).
Read next: ``match_result.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.patterns.clause.match_clause import MeasureItem
from headwater.patterns.expressions.navigation import AGGREGATES, SPECIAL, Anchor, Navigator
from headwater.patterns.expressions.row_expression import Expression, parse_expression, render

SHORTCUTS = {"COUNT", "SUM", "MIN", "MAX", "AVG", "MEAN"}


@dataclass(frozen=True)
class Slot:
    """A value of each output row that the matcher gives.

    ``kind``: ``row`` (the row column ``column`` at the row ``anchor``), ``classifier`` (that row's variable),
    ``match_number`` or ``match_status``.
    """

    name: str
    kind: str
    anchor: Anchor | None = None
    column: str | None = None
    physical: int = 0


@dataclass(frozen=True)
class Aggregate:
    """An aggregate over the rows of some variables (None: all rows of the match).

    ``shortcut``: the matcher computes it (``function`` of ``column``; None: of rows). Otherwise ``sql`` is an aggregate
    of Spark over row columns of the member rows, and ``_classifier``.
    """

    name: str
    sql: str
    variables: tuple[int, ...] | None
    final: bool
    function: str
    column: str | None
    shortcut: bool


@dataclass(frozen=True)
class MeasureColumn:
    """A measure: its alias and its SQL over slots and aggregates."""

    alias: str
    sql: str
    plain: str | None  # the slot or aggregate that it is, if it is nothing else


class MeasureSplitter:
    """The slots and aggregates of one clause's measures."""

    def __init__(self, navigator: Navigator, *, unmatched_rows: bool) -> None:
        self.navigator = navigator
        self.unmatched_rows = unmatched_rows
        self.slots: dict[tuple[object, ...], Slot] = {}
        self.aggregates: dict[tuple[object, ...], Aggregate] = {}

    def split(self, item: MeasureItem) -> MeasureColumn:
        """The measure of one item of MEASURES."""
        tree = parse_expression(item.piece)
        replaced = {each.span: self.name_of(each) for each in self.navigator.references(tree)}
        sql = render(self.navigator.text, tree.span, replaced)
        plain = replaced.get(tree.span)
        if self.unmatched_rows:  # an unmatched row has no measures, not even a count of nothing
            sql = f"CASE WHEN _kind <> 2 THEN {sql} END"
        return MeasureColumn(item.alias, sql, plain)

    def name_of(self, node: Expression) -> str:
        if node.kind == "call" and node.value in AGGREGATES:
            return self.aggregate(node).name
        if node.kind == "call" and node.value in SPECIAL - {"CLASSIFIER"}:
            if node.parts:
                self.navigator.refuse(node.span, f"{node.value} takes no argument", f"Write {node.value}().")
            return self.slot(str(node.value).lower()).name
        found = self.navigator.read(node)
        if found.classifier:
            return self.slot("classifier", found.anchor, physical=found.physical).name
        return self.slot("row", found.anchor, self.navigator.columns.name_of(found.sql)).name

    def slot(self, kind: str, anchor: Anchor | None = None, column: str | None = None, physical: int = 0) -> Slot:
        key = (kind, anchor, column, physical)
        return self.slots.setdefault(key, Slot(f"_s{len(self.slots)}", kind, anchor, column, physical))

    def aggregate(self, node: Expression) -> Aggregate:
        navigator, name = self.navigator, str(node.value)
        scopes: dict[tuple[int, ...] | None, Expression] = {}
        replaced, columns = {}, []
        for argument in node.parts:
            if argument.kind == "star":
                scopes.setdefault(navigator.scope(argument), argument)
                replaced[argument.span] = "*"
            elif argument.kind == "call" and argument.value == "CLASSIFIER":
                scopes.setdefault(navigator.classifier_scope(argument), argument)
                replaced[argument.span] = "_classifier"
            elif any(True for _ in navigator.references(argument)):
                scope, sql = navigator.one_row_sql(argument, name.lower())
                scopes.setdefault(scope, argument)
                replaced[argument.span] = navigator.columns.name_of(sql)
                columns.append(replaced[argument.span])
        if len(scopes) > 1:
            hint = "Name one variable, or declare a SUBSET of them."
            navigator.refuse(node.span, f"{name.lower()} aggregates rows of several variables at once", hint)
        sql = navigator.without_mode(node, render(navigator.text, node.span, replaced))
        final = node.mode.startswith("FINAL")
        shortcut = name in SHORTCUTS and "DISTINCT" not in node.mode and len(node.parts) == 1
        if "_classifier" in replaced.values():
            shortcut = shortcut and name in ("COUNT", "MIN", "MAX")
            columns.append("_classifier")
        if shortcut and not columns and node.parts[0].kind != "star":  # count(1), sum(2)
            columns.append(navigator.columns.name_of(render(navigator.text, node.parts[0].span, {})))
        key = (sql.casefold(), next(iter(scopes), None), final)
        return self.aggregates.setdefault(
            key,
            Aggregate(
                f"_a{len(self.aggregates)}",
                sql,
                next(iter(scopes), None),
                final,
                "avg" if name == "MEAN" else name.lower(),
                columns[0] if columns else None,
                shortcut,
            ),
        )
