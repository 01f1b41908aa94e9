"""Conditions of DEFINE, split: one boolean column for what looks at the row, glue for what looks at the match.

What it is: ``split_condition``. A condition over the current row (and the rows around it) is one row column. From
any other the parts that AND joins and that look at the current row are taken out as a row column; the rest is a tree
of operators over *picks* (row columns at rows of the match), which ``glue.py`` evaluates.
Invariants: an expression over one row stays the user's text and is computed by Spark; only operators that are null
when an operand is null move into a row column of another row, because a variable without rows is null.
Not here: the evaluation (``glue.py``) and the search (``row_search.py``).
Read next: ``glue.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from headwater.patterns.clause.pattern_scanner import Span
from headwater.patterns.expressions.navigation import AGGREGATES, LOGICAL, PHYSICAL, SPECIAL, Anchor, Navigator
from headwater.patterns.expressions.row_expression import Expression, render, walk

STRICT = {"binary", "unary", "cast", "bracket", "column", "literal", "constant", "field", "index"}
FUNCTIONS = {"ABS", "GREATEST", "LEAST", "COALESCE", "NVL", "IFNULL", "NULLIF", "IF"}
RUNNING_AGGREGATES = {"COUNT", "SUM", "MIN", "MAX", "AVG", "MEAN"}
OPERATORS = {"binary", "unary", "and", "or", "not", "between", "in", "is", "case", "bracket"}
ARITHMETIC = {"+", "-", "*", "/", "%", "DIV", "=", "==", "<=>", "<>", "!=", "<", "<=", ">", ">="}


@dataclass(frozen=True)
class Tracker:
    """What the search remembers of a thread: a row (``first``, ``last``), a label, or a running aggregate."""

    kind: str
    variables: tuple[int, ...] | None
    offset: int = 0
    column: str | None = None


@dataclass(frozen=True)
class GlueNode:
    """A node of the glue: an operator, a literal, or a pick.

    ``current``: a row column at the current row; ``pick``: one at the row of a tracker; ``tracked``: the tracker's
    own value; ``number``: MATCH_NUMBER().
    """

    kind: str
    span: Span
    parts: tuple[GlueNode, ...] = ()
    value: object = None
    column: str = ""
    tracker: int = -1


@dataclass(frozen=True)
class VariableCondition:
    """A variable's condition: a boolean row column, glue, both, or neither (always true)."""

    variable: int
    column: str | None = None
    glue: GlueNode | None = None
    sql: str | None = None  # the glue over row columns, for Spark to check its types


def split_condition(
    navigator: Navigator, variable: int, node: Expression, trackers: dict[Tracker, int]
) -> VariableCondition:
    """The condition of a variable; what it must remember of the match is entered in ``trackers``."""
    return ConditionSplitter(navigator, variable, trackers).split(node)


class ConditionSplitter:
    """The condition of one variable."""

    def __init__(self, navigator: Navigator, variable: int, trackers: dict[Tracker, int]) -> None:
        self.navigator = navigator
        self.variable = variable
        self.trackers = trackers
        self.replaced: dict[Span, str] = {}

    def split(self, node: Expression) -> VariableCondition:
        self.refuse_final(node)
        conjuncts = list(conjuncts_of(node))
        here = [each for each in conjuncts if self.is_current(each)]
        rest = [each for each in conjuncts if not self.is_current(each)]
        column = None
        if here:
            if len(here) == len(conjuncts):  # the user's text as it is
                column = self.navigator.columns.name_of(self.current_sql(node))
            else:
                column = self.navigator.columns.name_of(" AND ".join(f"({self.current_sql(each)})" for each in here))
        if not rest:
            return VariableCondition(self.variable, column)
        glue = self.glue(rest[0])
        for each in rest[1:]:
            glue = GlueNode("and", each.span, (glue, self.glue(each)))
        sql = " AND ".join(f"({render(self.navigator.text, each.span, self.replaced)})" for each in rest)
        return VariableCondition(self.variable, column, glue, sql)

    def refuse_final(self, node: Expression) -> None:
        for each in walk(node):
            if each.kind == "call" and each.mode.startswith("FINAL"):
                hint = "Use RUNNING, or leave it away: a condition sees the rows up to the current one."
                self.navigator.refuse(each.span, "FINAL stands in DEFINE, where the match is not over", hint)
            if each.kind == "call" and each.value == "MATCH_STATUS":
                self.navigator.refuse(each.span, "MATCH_STATUS() stands in DEFINE", "Use it in MEASURES.")

    def is_current(self, node: Expression) -> bool:
        """Whether an expression looks at the current row and rows at fixed distances from it only."""
        return all(self.is_current_reference(each) for each in self.navigator.references(node))

    def is_current_reference(self, node: Expression) -> bool:
        if node.kind == "star" or node.value in AGGREGATES or (node.kind == "call" and node.value in SPECIAL):
            return False
        found = self.navigator.read(node)
        anchor = found.anchor
        mine = anchor.variables is None or self.variable in anchor.variables
        return not found.classifier and mine and not anchor.first and anchor.offset == 0

    def current_sql(self, node: Expression) -> str:
        replaced = {each.span: self.navigator.read(each).sql for each in self.navigator.references(node)}
        return render(self.navigator.text, node.span, replaced)

    def pick_current(self, node: Expression) -> GlueNode:
        column = self.navigator.columns.name_of(self.current_sql(node))
        self.replaced[node.span] = column
        return GlueNode("current", node.span, column=column)

    def tracked(self, tracker: Tracker) -> int:
        return self.trackers.setdefault(tracker, len(self.trackers))

    def glue(self, node: Expression) -> GlueNode:
        if node.kind == "literal":
            return GlueNode("literal", node.span, value=node.value)
        if node.kind == "unary" and node.value == "-" and isinstance(node.parts[0].value, int | float | Decimal):
            return GlueNode("unary", node.span, (self.glue(node.parts[0]),), "-")
        if self.is_current(node):
            return self.pick_current(node)
        strict = self.strict_anchor(node)
        if strict is not None and node.kind != "column":
            return self.pick(node, strict, self.navigator.one_row_sql(node, "the condition")[1])
        if node.kind == "column" or (node.kind == "call" and node.value in LOGICAL | PHYSICAL):
            return self.navigation(node)
        if node.kind == "call":
            return self.call(node)
        if node.kind not in OPERATORS or (node.kind == "binary" and node.value not in ARITHMETIC):
            self.unsupported(node, str(node.value or node.kind).upper())
        if node.kind == "unary" and node.value == "~":
            self.unsupported(node, "~")
        return GlueNode(node.kind, node.span, tuple(self.glue(part) for part in node.parts), node.value)

    def strict_anchor(self, node: Expression) -> Anchor | None:
        """The one row of the match that an expression of strict operators looks at."""
        scopes = set()
        for each in walk(node):
            if each.kind not in STRICT or (each.kind == "binary" and each.value == "<=>"):
                return None
            if each.kind == "column":
                scopes.add(self.navigator.scope(each))
        return Anchor(scopes.pop()) if len(scopes) == 1 else None

    def pick(self, node: Expression, anchor: Anchor, sql: str) -> GlueNode:
        column = self.navigator.columns.name_of(sql)
        tracker = Tracker("first" if anchor.first else "last", anchor.variables, anchor.offset)
        self.replaced[node.span] = column
        return GlueNode("pick", node.span, column=column, tracker=self.tracked(tracker))

    def navigation(self, node: Expression) -> GlueNode:
        found = self.navigator.read(node)
        if found.classifier:
            return self.label(node, found.anchor, found.physical)
        return self.pick(node, found.anchor, found.sql)

    def label(self, node: Expression, anchor: Anchor, physical: int) -> GlueNode:
        if physical:
            if anchor.variables is not None or anchor.first or physical > 0:
                hint = "Use PREV(CLASSIFIER(), n), or LAST(CLASSIFIER(A), n)."
                self.navigator.refuse(node.span, "a condition cannot look at the variable of that row", hint)
            anchor = Anchor(None, offset=anchor.offset - physical)  # the rows of a match stand side by side
        kind = "first label" if anchor.first else "last label"
        self.replaced[node.span] = "''"
        return GlueNode("tracked", node.span, tracker=self.tracked(Tracker(kind, anchor.variables, anchor.offset)))

    def call(self, node: Expression) -> GlueNode:
        name = str(node.value)
        if name == "MATCH_NUMBER":
            self.replaced[node.span] = "0L"
            return GlueNode("number", node.span)
        if name == "CLASSIFIER":
            return self.label(node, Anchor(self.navigator.classifier_scope(node)), 0)
        if name in AGGREGATES:
            return self.aggregate(node, name)
        if name not in FUNCTIONS:
            self.unsupported(node, name.lower())
        return GlueNode("call", node.span, tuple(self.glue(part) for part in node.parts), name)

    def aggregate(self, node: Expression, name: str) -> GlueNode:
        navigator = self.navigator
        if name not in RUNNING_AGGREGATES or "DISTINCT" in node.mode or len(node.parts) != 1:
            what = f"{name.lower()}(DISTINCT …)" if "DISTINCT" in node.mode else name.lower()
            hint = "Conditions know count, sum, min, max and avg; MEASURES take every aggregate of Spark."
            navigator.refuse(node.span, f"a condition cannot use the aggregate {what}", hint)
        argument = node.parts[0]
        column, sql = None, "*"
        if argument.kind == "star":
            scope = navigator.scope(argument)
        else:
            scope, sql = navigator.one_row_sql(argument, name.lower())
            column = navigator.columns.name_of(sql)
        kind = "avg" if name == "MEAN" else name.lower()
        self.replaced[node.span] = "0L" if kind == "count" else f"{kind}({column}) OVER ()"
        return GlueNode("tracked", node.span, tracker=self.tracked(Tracker(kind, scope, column=column)))

    def unsupported(self, node: Expression, what: str) -> None:
        self.navigator.refuse(
            node.span,
            f"{what} cannot combine several rows of a match in a condition",
            f"If it looks at one row, put it into the navigation: LAST({what}(A.x)). "
            "Between rows a condition can compare, add, subtract, multiply and divide.",
        )


def conjuncts_of(node: Expression) -> list[Expression]:
    """The parts that AND joins, through brackets."""
    if node.kind == "and":
        return conjuncts_of(node.parts[0]) + conjuncts_of(node.parts[1])
    if node.kind == "bracket" and node.parts[0].kind == "and":
        return conjuncts_of(node.parts[0])
    return [node]
