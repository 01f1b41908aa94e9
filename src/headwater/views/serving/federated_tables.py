"""Foreign tables in a query: fetched, made into frames, and read by Spark beside our own.

What it is: ``foreign_reply`` runs a query that mentions tables of attached stores; None when it mentions none.
Invariants: Spark runs the user's whole query, every condition included; what a store left out already, it would have
left out too. Fetched rows that do not fit into a plan wait in a temporary folder, which goes when the query ends.
Not here: finding mentions and fetching (``federation/``).
Read next: ``federation/table_references.py``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from headwater.errors import InvalidQuery
from headwater.federation.stores import Stores, described
from headwater.federation.table_references import needs, separate
from headwater.hints import suggestion
from headwater.views.compiler.frontend.query_tables import tables_of
from headwater.views.compiler.sql.dialect import text
from headwater.views.serving.snapshot import QueryReply, RelationSnapshot
from headwater.views.spark.scans import SCRATCH, local_frame
from headwater.views.spark.topic_scan import quoted

if TYPE_CHECKING:
    from headwater.federation.stores import Fetched


def foreign_reply(contents: RelationSnapshot, sql: str, read: Sequence[Any], *, push_down: bool) -> QueryReply | None:
    """The answer of a query over attached stores; None when there are none in it."""
    if len(read) != 1:
        return None
    attached = dict(contents.attached)
    single = {name: each.address.is_one_table for name, each in attached.items()}
    tree, mentions = separate(read[0], single, contents.names())
    _refuse_unattached(tree, list(single))
    if not mentions:
        return None
    if not isinstance(tree, exp.Query):
        raise InvalidQuery("attached stores are only read", hint="Write a SELECT.")
    ours = {mention.name for mention in mentions}
    own = [name for name in tables_of([tree]) if name not in ours]
    contents.show(own)
    fetched: list[Fetched] = []
    frames: dict[int, Any] = {}
    with Stores(attached) as stores, tempfile.TemporaryDirectory(prefix="headwater-query-") as folder:
        shapes = described(stores, mentions)
        columns = {name: contents.spark.table(quoted(name)).columns for name in own}
        contents.spark.conf.set(SCRATCH, folder)
        for mention, shape, need in zip(
            mentions, shapes, needs(tree, shapes, columns, sql=sql, push_down=push_down, written=text), strict=True
        ):
            rows, report = stores.fetch(mention, shape, need)
            fetched.append(report)
            if id(rows) not in frames:  # what was fetched once for two mentions is one frame too
                frames[id(rows)] = local_frame(contents.spark, rows)
            frames[id(rows)].createOrReplaceTempView(quoted(mention.name))
        return QueryReply(contents.run(text(tree)), tuple(fetched))


def _refuse_unattached(tree: exp.Expr, attached: list[str]) -> None:
    """A name of several parts that is left is of no store that is attached."""
    for table in tree.find_all(exp.Table):
        if table.db and isinstance(table.this, exp.Identifier):
            store = table.parts[0].name
            raise InvalidQuery(
                f'no store "{store}" is attached, which the query names',
                hint=f"{suggestion(store, attached)} Attach one: headwater attach {store} URL",
                name=store,
            )
