"""Spark's parser: what it finds in a text that ours cannot read.

What it is: ``spark_reading`` has Spark parse a text, without analysing it, and tells the relations, functions and words
that it mentions: all that is needed to compute it whole, and to refuse what is no function of its inputs.
Invariants: nothing is looked up and nothing runs; the text is one query, since it is parsed in parentheses too. A
mention counts wherever it stands: in subqueries, in WITH, behind pipes.
Not here: what follows from it (``views/compiler/whole_query.py``).
Read next: ``views/compiler/whole_query.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from headwater.views.compiler.sql.dialect import SparkAsWritten
from headwater.views.compiler.whole_query import Read, Reading, bare_text

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession

# Spark's names for what a view may not do, and ours.
COMPUTED = "IDENTIFIER(…), a name that is computed,"
OTHERS = {
    "Sample": "TABLESAMPLE",
    "ScriptTransformation": "TRANSFORM … USING, which runs a program,",
    "PlanWithUnresolvedIdentifier": COMPUTED,
    "RelationTimeTravel": "AS OF of Spark's own tables",
    "UnresolvedExecuteImmediate": "EXECUTE IMMEDIATE",
}
LIMITS = ("GlobalLimit", "LocalLimit", "Offset", "Tail")
# The words that a query begins with in Spark's grammar.
QUERY_BEGINS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE", "(")
COMMAND = "org.apache.spark.sql.catalyst.plans.logical.Command"
TREE, MANY, PRODUCT = "org.apache.spark.sql.catalyst.trees.TreeNode", "scala.collection.Iterable", "scala.Product"


def reader(spark: Callable[[], SparkSession]) -> Read:
    """``spark_reading`` of a session that is started when there is something to read."""
    return lambda sql: spark_reading(spark(), sql) if may_be_query(sql) else None


def may_be_query(sql: str) -> bool:
    """Whether Spark's parser might read a text as a query; a plain typo is refused without starting Spark.

    >>> may_be_query("FROM users |> SELECT country"), may_be_query("SELEC country FROM users")
    (True, False)
    >>> may_be_query("SELECT count(* FROM users")
    False
    """
    try:
        tokens = SparkAsWritten().tokenize(sql)
    except TokenError:  # Spark's lexer may read more than ours
        return True
    kinds = [token.token_type for token in tokens]
    return (
        bool(tokens)
        and tokens[0].text.upper() in QUERY_BEGINS
        and kinds.count(TokenType.L_PAREN) == kinds.count(TokenType.R_PAREN)
    )


def spark_reading(spark: SparkSession, sql: str) -> Reading | None:
    """What Spark's parser finds; None when it cannot read the text as one query."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    parser = spark._jsparkSession.sessionState().sqlParser()
    own = bare_text(sql)
    try:
        plan = parser.parsePlan(own)
        parser.parsePlan(f"SELECT * FROM (\n{own}\n)")
    except (PySparkException, Py4JError):
        return None
    reader = _Reader(spark)
    return None if reader.is_command(plan) or reader.reads_nothing(plan) else reader.read(plan)


class _Reader:
    """Walks a plan that was parsed and not analysed."""

    def __init__(self, spark: SparkSession) -> None:
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        self._tree, self._many, self._product, self._command = (
            jvm.java.lang.Class.forName(name) for name in (TREE, MANY, PRODUCT, COMMAND)
        )
        self._as_java = jvm.scala.jdk.javaapi.CollectionConverters.asJava

    def is_command(self, plan: JavaObject) -> bool:
        """Whether it does something, SHOW TABLES for instance, which in parentheses is a table and its alias."""
        return self._is(plan, self._command)

    def reads_nothing(self, plan: JavaObject) -> bool:
        """Whether it names a column and no source: SELECT a FROM, which to Spark is a column that is called "from"."""
        kinds = [kind for kind, _ in self._nodes(plan)]
        return set(kinds) <= {"Project", "Alias", "UnresolvedAttribute", "OneRowRelation$", "OneRowRelation"}

    def read(self, plan: JavaObject) -> Reading:
        relations, defined, calls, words = [], set(), [], []
        unordered, other = False, ""
        for kind, node in self._nodes(plan):
            if kind == "UnresolvedRelation":
                relations.append(".".join(self._listed(node.multipartIdentifier())))
            elif kind == "UnresolvedWith":
                defined |= {each._1().lower() for each in self._listed(node.cteRelations())}
            elif kind in ("UnresolvedFunction", "UnresolvedTableValuedFunction"):
                parts = node.nameParts() if kind == "UnresolvedFunction" else node.name()
                given = node.arguments() if kind == "UnresolvedFunction" else node.functionArgs()
                calls.append((self._listed(parts)[-1].lower(), given.size()))
            elif kind == "UnresolvedGenerator":
                calls.append((node.name().identifier().lower(), node.children().size()))
            elif kind == "ExpressionWithUnresolvedIdentifier":
                name = self._given_name(node)
                calls.append((name or "", node.otherExprs().size()))  # or a column: Spark's analyser can tell
                other = other or ("" if name else COMPUTED)
            elif kind == "UnresolvedAttribute" and node.nameParts().size() == 1:
                words.append(self._listed(node.nameParts())[0].lower())
            elif kind in LIMITS:
                unordered = unordered or not self._is_ordered(node)
            other = other or OTHERS.get(kind, "")
        return Reading(tuple(relations), frozenset(defined), tuple(calls), tuple(words), unordered, other)

    def _nodes(self, plan: JavaObject) -> Iterator[tuple[str, JavaObject]]:
        """Every operator and every expression, in order of mention: also those that are no children of their node, as
        the query of a subquery, a WITH, and the values of ``|> SET``."""
        waiting = [plan]
        while waiting:
            node = waiting.pop()
            if self._is(node, self._tree):
                yield node.getClass().getSimpleName(), node
            if self._is(node, self._many):
                waiting += reversed(self._listed(node.toSeq()))
            elif self._is(node, self._product):
                waiting += reversed(self._listed(node.productIterator().toList()))

    def _is(self, found: JavaObject, kind: JavaObject) -> bool:
        from py4j.java_gateway import JavaObject

        return isinstance(found, JavaObject) and bool(kind.isInstance(found))

    def _given_name(self, node: JavaObject) -> str | None:
        """The last part of the name that IDENTIFIER(…) is given, in lower case; None when it must be computed."""
        given = node.identifierExpr()
        if given.getClass().getSimpleName() != "Literal":
            return None
        return str(given.value()).rpartition(".")[2].strip("`").lower()

    def _is_ordered(self, node: JavaObject) -> bool:
        """Whether the rows that a limit counts were put in order right before."""
        while node.getClass().getSimpleName() in (*LIMITS, "LimitAll", "PipeOperator"):
            node = node.child()
        return bool(node.getClass().getSimpleName() == "Sort" and getattr(node, "global")())

    def _listed(self, sequence: JavaObject) -> list[JavaObject]:
        return list(self._as_java(sequence))
