"""Query tables: the relations that an ad hoc query reads.

What it is: ``tables_in`` for a text, ``tables_of`` for syntax trees, ``parsed_query`` between them.
Invariants: tables that the query defines itself (WITH) are left out. Nothing is resolved, so that a query may read
what is no view: an attached store, for one.
Not here: queries of views, whose tables are checked (``name_resolution.py``).
Read next: ``views/serving/snapshot.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp
from sqlglot.errors import ParseError

from headwater.errors import InvalidQuery
from headwater.views.compiler.frontend.parse import trees


def tables_in(sql: str) -> list[str]:
    """The names of the tables that a query reads, without those it defines itself.

    >>> tables_in("WITH a AS (SELECT * FROM orders) SELECT * FROM a JOIN users ON true")
    ['orders', 'users']
    >>> tables_in("SELECT count(*) FROM orders GROUP BY window(at, '1 hour')")
    ['orders']
    """
    return tables_of(parsed_query(sql))


def tables_of(read: Sequence[exp.Expr]) -> list[str]:
    """The same, of what the parser made of it."""
    own = {cte.alias_or_name.lower() for tree in read for cte in tree.find_all(exp.CTE)}
    names = dict.fromkeys(
        table.name for tree in read for table in tree.find_all(exp.Table) if table.name.lower() not in own
    )
    return sorted(name for name in names if name)


def parsed_query(sql: str) -> list[exp.Expr]:
    """A query's syntax trees; ``InvalidQuery`` when it is no SQL."""
    try:
        return trees(sql)
    except Exception as error:  # the library trips over some texts in ways of its own
        found = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
        where = f"line {found.get('line', 1)}, column {found.get('col', 1)}"
        raise InvalidQuery(
            f"the query is not SQL that Spark understands, at {where}", detail=sql.strip(), hint="Correct the query."
        ) from error
