"""Whole texts: the query of a whole stage over its leaves, as our parser reads it.

What it is: ``read_text``. A stage that the compiler wrote has such a text. One that is computed from the user's own
words has not: its text is read here, with names settled and stars written out.
Invariants: a text that cannot be read is refused (``NotCarried``). Where Spark reads the user's words otherwise than
our parser, what follows from our reading must be checked with the words themselves (``stage_lineage.py`` does).
Not here: what is done with it (``carried_rows.py``).
Read next: ``views/compiler/frontend/name_resolution.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from headwater.views.compiler.frontend.name_resolution import settle
from headwater.views.compiler.frontend.parse import parse
from headwater.views.compiler.plan import Leaf, Relation, ViewPlan, WholeStage
from headwater.views.compiler.sql.dialect import text
from headwater.views.compiler.whole_query import AS_WRITTEN
from headwater.views.provenance.carried_rows import NotCarried
from headwater.views.stages.stage_schemas import columns_of

if TYPE_CHECKING:
    from headwater.views.provenance.relation_rows import RelationRows


def read_text(plan: ViewPlan, stage: WholeStage, rows: RelationRows) -> tuple[str, list[Leaf]]:
    """The query of a whole stage, and a leaf for every mention in it."""
    if not stage.sql.startswith(AS_WRITTEN):
        return stage.sql, list(stage.inputs)
    relations = {
        leaf.relation: Relation(leaf.relation, columns_of(rows.schema(leaf.relation))) for leaf in stage.inputs
    }
    try:
        settled = settle(parse(plan.written_out or plan.sql).query, relations, plan.sql)
    except Exception as error:  # it was not read when the view was compiled, either
        raise NotCarried(str(error)) from error
    query = settled.shown.copy()
    if settled.written_out or len(query.selects) != len(stage.columns):
        raise NotCarried("its columns are not those of the text")
    known = {leaf.relation.lower(): leaf for leaf in stage.inputs}
    leaves: list[Leaf] = []
    for mention in list(query.find_all(exp.Table)):
        if isinstance(mention.this, exp.Identifier) and mention.name.lower() in known:
            alias = mention.alias_or_name
            leaves.append(replace(known[mention.name.lower()], name=f"_m{len(leaves)}"))
            mention.set("this", exp.to_identifier(leaves[-1].name))
            mention.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    return text(query), leaves
