"""Spark's names: what an output is called that has no name of its own.

What it is: ``sparks_name`` says how Spark names an expression of a SELECT without AS: ``count(1)``, ``(a + 1)``.
Invariants: a guess. Spark itself is asked when it is at hand (``compile.py``); until then, and inside subqueries, this
name stands for it.
Not here: the names of sources and columns (``views/compiler/frontend/name_resolution.py``).
Read next: ``views/compiler/frontend/name_resolution.py``.
"""

from __future__ import annotations

from sqlglot import exp

from headwater.views.compiler.sql.dialect import text
from headwater.views.compiler.sql.expressions import Node

OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.And: "AND",
    exp.Or: "OR",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
}
# Written as operators, these are calls to Spark.
CALLS: dict[type[exp.Expr], str] = {exp.DPipe: "concat"}


def sparks_name(expression: Node) -> str:
    """The name of an output without AS.

    >>> from headwater.views.compiler.frontend.parse import statement
    >>> select = statement("SELECT count(*), Sum(o.a), a + 1, upper('x'), -a, a <> 2, CAST(a AS int) FROM o")
    >>> [sparks_name(part) for part in select.selects]
    ['count(1)', 'sum(a)', '(a + 1)', 'upper(x)', '(- a)', '(NOT (a = 2))', 'CAST(a AS INT)']
    """
    node = expression.unnest() if isinstance(expression, exp.Paren) else expression
    if isinstance(node, exp.Column):
        return node.name
    if isinstance(node, exp.Star):
        return "1"
    if isinstance(node, exp.Literal):
        return node.name if node.is_string else text(node).rstrip("LlSsYy")
    if isinstance(node, exp.Null):
        return "NULL"
    if isinstance(node, exp.Boolean):
        return str(node.this).lower()
    if isinstance(node, exp.Anonymous):
        return f"{node.name.lower()}({', '.join(map(sparks_name, node.expressions))})"
    if isinstance(node, exp.Distinct):
        return f"DISTINCT {', '.join(map(sparks_name, node.expressions))}"
    if isinstance(node, exp.Neg):
        return f"(- {sparks_name(node.this)})"
    if isinstance(node, exp.Not):
        return f"(NOT {sparks_name(node.this)})"
    if isinstance(node, exp.NEQ):
        return f"(NOT ({sparks_name(node.this)} = {sparks_name(node.expression)}))"
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return f"({sparks_name(node.this)} IS NULL)"
    if isinstance(node, exp.Cast):
        kind = "TRY_CAST" if isinstance(node, exp.TryCast) else "CAST"
        return f"{kind}({sparks_name(node.this)} AS {text(node.to).upper()})"
    if type(node) in OPERATORS:
        return f"({sparks_name(node.this)} {OPERATORS[type(node)]} {sparks_name(node.expression)})"
    if type(node) in CALLS:
        return f"{CALLS[type(node)]}({sparks_name(node.this)}, {sparks_name(node.expression)})"
    if isinstance(node, exp.Dot):
        return str(node.expression.name)
    return text(node).replace("`", "")
