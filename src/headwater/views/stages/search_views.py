"""Views of stored searches: what matches, and how the searches are.

What it is: ``SearchFunction``, the declaration of such a view, which is also its answer over whole frames; and
``search_plan``, which makes its one stage. Two roles: the *matches*, a row for each search and document that it
matches; the *status*, a row for each search.
Invariants: a match depends on the row of the document and the row of the search alone: their columns, and when each
was appended. So the answer over frames, a rebuild and the ticks give the same rows.
Not here: a tick (``search_run.py``); queries and the index (``headwater/searches``).
Read next: ``search_run.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidDeclaration
from headwater.log.schema.ddl import to_ddl
from headwater.searches.index_file import of_this_build
from headwater.searches.query_index import QueryIndex, QueryReader
from headwater.searches.search_columns import SearchColumns
from headwater.searches.search_rows import SINCE, status_of, stored_searches
from headwater.views import thresholds
from headwater.views.compiler.frontend.metadata_columns import METADATA
from headwater.views.compiler.plan import NOTHING, Leaf, LeafContent, Stage, StageKind, ViewPlan
from headwater.views.stages.stage_schemas import StageSchema, columns_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.views.view_declaration import ViewDeclaration

BATCH_ROWS = 1_000  # documents that are matched together
FORM = 1  # of what is stored: another one computes such views anew
STATUS = pa.schema(
    [
        ("search", pa.string()),
        ("query", pa.string()),
        ("owner", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("look_back", pa.bool_()),
        ("since", pa.timestamp("us", tz="UTC")),
        ("problem", pa.string()),
        ("cost", pa.string()),
    ]
)


@dataclass(frozen=True)
class SearchFunction:
    """A view of stored searches, as declared; called with frames of documents and searches it gives the view's rows."""

    over: str  # the relation of the documents
    table: str  # of the searches
    text: tuple[str, ...]
    tokenizer: str
    documents: tuple[tuple[str, str], ...]  # the columns that name a document, and what the view calls them
    unique: bool  # no two documents have the same
    append_only: bool  # documents never change
    at: str | None  # the column that says when a document came; None: every search looks back
    status: bool = False  # the role

    __name__ = "searches"

    def columns(self, schema: pa.Schema) -> SearchColumns:
        """What searches may ask of documents of this schema."""
        return SearchColumns(asked(schema), self.text, tokenizer=self.tokenizer)

    def schema(self, documents: pa.Schema) -> pa.Schema:
        """The view's columns."""
        if self.status:
            return STATUS
        named = [documents.field(column).with_name(name).with_nullable(True) for column, name in self.documents]
        return pa.schema([("search", pa.string()), *named, ("score", pa.float64())])

    def __call__(self, documents: DataFrame, searches: DataFrame) -> DataFrame:
        """All rows of the view."""
        from headwater.views.stages.stage_schemas import arrow_schema

        rows = searches.toArrow()
        given = arrow_schema(documents.schema)
        if self.status:
            found = status_rows(rows, self.columns(given))
            spark = documents.sparkSession
            return spark.createDataFrame(found) if found.num_rows else spark.createDataFrame([], to_ddl(STATUS))
        return matched_frame(documents, self, rows, given)


@dataclass(frozen=True)
class SearchStage(Stage):
    """The one stage of a view of stored searches."""

    documents: Leaf = NOTHING
    searches: Leaf = NOTHING
    function: SearchFunction | None = None

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return (self.documents, self.searches)


def search_plan(declared: ViewDeclaration, schemas: Mapping[str, pa.Schema]) -> tuple[ViewPlan, dict[str, StageSchema]]:
    """The plan of such a view, and the shape of its stage."""
    function = declared.function
    assert isinstance(function, SearchFunction)
    over, table = (
        f"{name}{METADATA}" if f"{name}{METADATA}" in schemas else name for name in (function.over, function.table)
    )
    documents = schemas[over]
    try:
        function.columns(documents)
    except InvalidDeclaration as error:
        raise InvalidDeclaration(f"{declared.title}: {error.message}", hint=error.hint, **error.data) from None
    needed = [*(column for column, _ in function.documents), *([function.at] if function.at else [])]
    for column in needed:
        if column not in documents.names:
            raise InvalidDeclaration(
                f'{declared.title}: "{function.over}" has no column "{column}"',
                hint=f"Its columns are {', '.join(asked(documents).names)}.",
            )
    names = tuple(dict.fromkeys([*asked(documents).names, *needed]))
    leaves = (
        Leaf("_l0", over, LeafContent.BAG, names),
        Leaf("_l1", table, LeafContent.BAG, tuple(schemas[table].names)),
    )
    schema = function.schema(documents)
    kind = StageKind.LINEAR if function.status else StageKind.BILINEAR
    what = f"status of {function.table}" if function.status else f"{function.over} that match {function.table}"
    stage = SearchStage(declared.name, kind, columns_of(schema), (), what, *leaves, function)
    key = ("search",) if function.status else ("search", *(name for _, name in function.documents))
    shape = repr((FORM, function, documents.to_string(), schemas[table].to_string()))
    plan = ViewPlan(
        declared.name,
        "",
        (stage,),
        columns_of(schema),
        (over, table),
        hashlib.sha256(shape.encode()).hexdigest(),
        key if function.unique or function.status else (),
    )
    return plan, {stage.name: StageSchema(schema, schema)}


def asked(schema: pa.Schema) -> pa.Schema:
    """The columns that a search may ask about: those without an underscore in front."""
    return pa.schema([field for field in schema if not field.name.startswith("_")])


# Rows


def index_of(rows: pa.Table, columns: SearchColumns, reader: QueryReader | None = None) -> QueryIndex:
    """An index of the searches of some rows."""
    index = QueryIndex(columns, reader)
    index.replace_all(stored_searches(rows))
    return index


def matched_rows(index: QueryIndex, documents: pa.Table, function: SearchFunction, schema: pa.Schema) -> pa.Table:
    """The view's rows of some documents, some at a time."""
    found = [
        _matched(index, documents.slice(first, BATCH_ROWS), function, schema)
        for first in range(0, documents.num_rows, BATCH_ROWS)
    ]
    return pa.concat_tables([schema.empty_table(), *found])


def _matched(index: QueryIndex, documents: pa.Table, function: SearchFunction, schema: pa.Schema) -> pa.Table:
    at_us = None
    if function.at is not None:
        moments = documents.column(function.at).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        at_us = np.asarray(pc.fill_null(moments, np.iinfo(np.int64).min).to_numpy())
    found = index.match(documents.select(index.columns.schema.names), at_us=at_us)
    slots, places = np.unique(found.slots, return_inverse=True)
    ids = pa.array([index.search(int(slot)).id for slot in slots], pa.string())
    columns: list[pa.Array] = [ids.take(pa.array(places))]
    rows = pa.array(found.documents)
    columns += [documents.column(column).take(rows) for column, _ in function.documents]
    return pa.table([*columns, pa.array(found.scores)], schema=schema)


def matched_frame(
    documents: DataFrame,
    function: SearchFunction,
    searches: pa.Table,
    given: pa.Schema,
    index: QueryIndex | None = None,
) -> DataFrame:
    """The same of documents that Spark has: its workers each have an index of all searches.

    Of many searches they get it from here, so that not each of them reads the queries; a worker of another build than
    this one does. ``index``: if it is there.
    """
    schema = function.schema(given)
    packed = None
    if searches.num_rows >= thresholds.KEPT_SEARCHES_MIN:
        packed = (index or index_of(searches, function.columns(given))).packed()

    def matched(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        columns = function.columns(given)
        index = QueryIndex.read(None if packed is None else of_this_build(packed, columns), columns)
        index.replace_all(stored_searches(searches))
        for batch in batches:
            table = pa.Table.from_batches([batch]).cast(given)
            yield from matched_rows(index, table, function, schema).to_batches()

    return documents.mapInArrow(matched, to_ddl(schema))


def status_rows(rows: pa.Table, columns: SearchColumns, reader: QueryReader | None = None) -> pa.Table:
    """How each of some searches is."""
    read = (reader or QueryReader(columns)).read
    found = []
    for row, search in zip(rows.to_pylist(), stored_searches(rows), strict=True):
        problem, cost = status_of(search.query, read)
        found.append(
            {
                "search": search.id,
                "query": row["query"],
                "owner": search.owner,
                "tags": row["tags"],
                "look_back": search.look_back,
                "since": row[SINCE],
                "problem": problem,
                "cost": cost,
            }
        )
    return pa.Table.from_pylist(found, STATUS)
