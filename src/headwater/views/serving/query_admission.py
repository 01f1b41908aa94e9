"""Admission: which queries a stranger may ask Spark.

What it is: ``admit``, which lets one SELECT through and refuses everything else, before Spark sees it.
Invariants: what passes cannot change anything, run a program or call a method of Java. What our parser cannot read is
refused; Spark is never asked to decide.
Not here: which relations there are (``snapshot.py``), time and rows (``server/engine/engine_process.py``).
Read next: ``snapshot.py``.
"""

from __future__ import annotations

from itertools import pairwise

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from headwater.errors import InvalidQuery
from headwater.views.compiler.frontend.parse import trees
from headwater.views.compiler.sql.dialect import SparkAsWritten as Spark

REFUSED_FUNCTIONS = frozenset({"reflect", "java_method", "try_reflect"})


def admit(sql: str) -> None:
    """Refuse what is not one SELECT, or reaches out of it.

    >>> admit("SELECT country, count(*) FROM users GROUP BY country")
    >>> admit("DROP VIEW users")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidQuery: only one SELECT can be asked
      Hint: Nothing can be changed by a query.
    >>> admit("SELECT reflect('java.lang.System', 'exit', 0)")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidQuery: a query cannot call reflect
      Hint: Only functions of SQL.
    """
    try:
        found = trees(sql)
    except (SqlglotError, RecursionError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidQuery("the query is not SQL that Spark understands", detail=first, hint="Correct it.") from error
    if len(found) != 1 or not isinstance(found[0], exp.Query | exp.Values):
        raise InvalidQuery("only one SELECT can be asked", hint="Nothing can be changed by a query.")
    _refuse_words(sql)
    writes = (exp.DML, exp.DDL, exp.Command)
    if any(found[0].find_all(exp.QueryTransform)) or _any_other(found[0], writes):
        raise InvalidQuery("a query cannot run a program, or write", hint="Only functions of SQL.")


def _refuse_words(sql: str) -> None:
    """By the words alone, whatever our parser makes of them: Spark's might make something else."""
    for token, following in pairwise(Spark().tokenize(sql)):
        word = token.text.lower()
        if word in REFUSED_FUNCTIONS and following.token_type == TokenType.L_PAREN:
            raise InvalidQuery(f"a query cannot call {word}", hint="Only functions of SQL.")
        # TRANSFORM (…) USING 'program'; the USING of a join has a bracket behind it.
        if token.token_type == TokenType.USING and following.token_type != TokenType.L_PAREN:
            raise InvalidQuery("a query cannot run a program", hint="Only functions of SQL.")


def _any_other(tree: exp.Expr, kinds: tuple[type[exp.Expr], ...]) -> bool:
    """Whether the tree holds one of these that is no query: sqlglot counts a SELECT among what may stand in DDL."""
    return any(not isinstance(node, exp.Query) for node in tree.find_all(*kinds))
