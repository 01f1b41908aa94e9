"""Shapes: the types of a stage's tables, as Spark's own analyser tells them.

What it is: ``describe`` for the compiler and ``shape_of`` for the engine. Both ask Spark about queries over empty
tables: analysis only, nothing runs.
Invariants: a type that a view cannot hold right through (state, serving store, feed, sinks) is refused here, with the
column, the type, and what to write instead; so nothing of the view has run by then.
Not here: kinds of stages (``compiler/``).
Read next: ``stage_run.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import HeadwaterError, InvalidDeclaration
from headwater.log.schema.ddl import DAY_TO_SECOND, parse_view_ddl, spark_type
from headwater.views.compiler.compile import SparkAnalysis
from headwater.views.compiler.plan import (
    NUMBER,
    AccumulateStage,
    FinalStage,
    FlowStage,
    KeyedStage,
    LeadingStage,
    LeafContent,
    MatchStage,
    PlanColumn,
    Stage,
    TimedStage,
    WholeStage,
)
from headwater.views.compiler.whole_query import Reading
from headwater.views.spark.analysis_cache import AnalysisCache
from headwater.views.spark.round_trip import compared, opaque_table
from headwater.views.spark.spark_parser import spark_reading
from headwater.views.spark.special_times import WORDS, check_special_times
from headwater.views.spark.topic_scan import quoted
from headwater.views.stages.view_sessions import ViewSessions
from headwater.views.state.algebra import SHOWN, weighted_schema
from headwater.views.state.sql_equality import groups_compared

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

ROUNDS_MAX = 4
BINARY = "UTF8_BINARY"
# Spark's classes of types that neither Arrow nor Parquet carries between Spark and this process, and what to write.
INSTEAD = {
    "YearMonthIntervalType": "Keep the months as a number, extract(YEAR FROM …) * 12 + extract(MONTH FROM …), "
    "or CAST it to STRING.",
    "CalendarIntervalType": "CAST it to STRING, or write it as INTERVAL … DAY TO SECOND.",
    "TimeType": "CAST it to STRING.",
    "VariantType": "CAST it to STRING, or to the type that its values have.",
}


def columns_of(schema: pa.Schema) -> tuple[PlanColumn, ...]:
    """The compiler's words for an Arrow schema."""
    return tuple(PlanColumn(field.name, spark_type(field.type)) for field in schema)


def arrow_of(columns: tuple[PlanColumn, ...]) -> pa.Schema:
    """The Arrow schema of columns whose types are known."""
    return parse_view_ddl(", ".join(f"{quoted(column.name)} {column.type}" for column in columns))


@dataclass(frozen=True)
class StageSchema:
    """The Arrow schemas of a stage, as Spark's analyser gave them."""

    visible: pa.Schema
    state: pa.Schema  # visible and hidden
    flow: pa.Schema | None = None  # _g…, _x…, _weight of an accumulating stage; _c…, _weight of one of leading rows
    partial: pa.Schema | None = None
    in_range_partial: pa.Schema | None = None


class Analyser:
    """Asks Spark for types. Holds a workbench of its own."""

    def __init__(self, sessions: ViewSessions, cache: AnalysisCache) -> None:
        self.sessions = sessions
        self.cache = cache
        self._tables: dict[str, pa.Schema] = {}  # that the next question may be about
        self._made: dict[str, pa.Schema] = {}  # those that Spark knows

    def describe(self, sql: str, tables: Mapping[str, tuple[PlanColumn, ...]]) -> tuple[PlanColumn, ...]:
        """The columns of a query over empty tables."""
        for name, columns in tables.items():
            self._empty(name, arrow_of(columns))
        return columns_of(self._schema(sql))

    def read(self, sql: str) -> Reading | None:
        """What Spark's parser finds in a text that ours cannot read."""
        return spark_reading(self.sessions.small, sql)

    def confirm(self, sql: str, ours: str, tables: Mapping[str, tuple[PlanColumn, ...]]) -> SparkAnalysis:
        """The columns of a user's query, and where ours means something else to Spark."""
        schemas = {name: arrow_of(columns) for name, columns in tables.items()}
        key = self.cache.key(f"{sql}\0{ours}", schemas)
        known = self.cache.find(key)
        if known is None:
            for name, schema in schemas.items():
                self._made.pop(name, None)
                opaque_table(self.sessions.small, name, schema)
            columns, difference = compared(self.sessions.small, sql, ours)
            known = arrow_schema(columns), difference
            self.cache.keep(key, *known)
        return SparkAnalysis(columns_of(known[0]), known[1])

    def check_times(self, sql: str, written: str, tables: Mapping[str, tuple[PlanColumn, ...]]) -> None:
        """Refuse a view in which a text becomes a moment of the day; ``written``: its query over these tables."""
        if WORDS.search(sql):
            for name, columns in tables.items():
                self._made.pop(name, None)
                opaque_table(self.sessions.small, name, arrow_of(columns))
            check_special_times(self.sessions.small, sql, written)

    def shape_of(self, stage: Stage, schemas: Mapping[str, pa.Schema]) -> StageSchema:
        """The shape of a stage whose inputs have these visible schemas."""
        for leaf in stage.leaves:
            schema = pa.schema([schemas[leaf.relation].field(name) for name in leaf.columns])
            self._empty(leaf.name, schema if leaf.content is LeafContent.BAG else weighted_schema(schema))
        visible = [column.name for column in stage.columns]
        if isinstance(stage, TimedStage | FinalStage):
            given = schemas[stage.source.relation]
            hidden = [column.name for column in stage.hidden]
            return StageSchema(
                *(pa.schema([given.field(name) for name in names]) for names in (visible, [*visible, *hidden]))
            )
        if isinstance(stage, MatchStage):
            return StageSchema(arrow_of(stage.columns), arrow_of((*stage.columns, *stage.hidden)))
        if isinstance(stage, AccumulateStage):
            return self._accumulating(stage, visible)
        if isinstance(stage, LeadingStage):
            return self._leading(stage, visible)
        if isinstance(stage, FlowStage):
            state = self._schema(_union(stage))
        else:
            assert isinstance(stage, KeyedStage | WholeStage)
            state = self._schema(stage.sql)
        names = [*visible, *(column.name for column in stage.hidden)]
        state = pa.schema([state.field(name) for name in names])
        return StageSchema(pa.schema([state.field(name) for name in visible]), state)

    def _accumulating(self, stage: AccumulateStage, visible: list[str]) -> StageSchema:
        flow = self._schema(_union(stage))
        self._empty("_flow", flow)
        in_range = self._schema(stage.in_range_partial) if stage.in_range_partial else None
        partial = self._schema(stage.partial)
        self._empty("_partial", partial)
        names = [*visible, *(column.name for column in stage.hidden)]
        # The state's types follow from the query that reads the state: begin with the partial's and go on until the
        # answer is what was assumed.
        shown = {column.name: column for column in stage.columns if f"b.{quoted(column.name)}" in stage.combine}
        assumed = pa.schema(
            [arrow_of((shown[name],)).field(0) if name in shown else _assumed(name, partial) for name in names]
        )
        for _ in range(ROUNDS_MAX):
            self._empty("_before", assumed)
            found = self._schema(groups_compared(stage.combine, partial))
            found = pa.schema([found.field(name) for name in names])
            if found == assumed:
                break
            assumed = found
        return StageSchema(pa.schema([assumed.field(name) for name in visible]), assumed, flow, partial, in_range)

    def _leading(self, stage: LeadingStage, visible: list[str]) -> StageSchema:
        # What is filled from everything has the types of what is: with a constant among it, that of both.
        filled = self._schema(stage.fill)
        held = [filled.field(name) for name in stage.held]
        known = {**{field.name: field.type for field in held}, NUMBER: pa.int32()}
        shown = pa.schema([(name, known[of]) for name, of in zip(visible, stage.shown, strict=True)])
        state = pa.schema([*shown, *held, (SHOWN, pa.bool_())])
        return StageSchema(shown, state, flow=weighted_schema(pa.schema(held)))

    def _empty(self, name: str, schema: pa.Schema) -> None:
        self._tables[name] = schema

    def _schema(self, sql: str) -> pa.Schema:
        tables = {name: schema for name, schema in self._tables.items() if name in sql}
        key = self.cache.key(sql, tables)
        known = self.cache.find(key)
        if known is None:
            for name, schema in tables.items():
                if self._made.get(name) != schema:
                    self.sessions.empty(self.sessions.small, schema).createOrReplaceTempView(quoted(name))
                    self._made[name] = schema
            known = arrow_schema(self.sessions.small.sql(sql).schema), ""
            self.cache.keep(key, *known)
        return known[0]


def arrow_schema(schema: StructType) -> pa.Schema:
    """A Spark schema in Arrow, every column nullable."""
    fields = []
    for field in schema.fields:
        try:
            fields.append(pa.field(field.name, arrow_type(field.dataType)))
        except _Unheld as refused:
            whole, part = field.dataType.simpleString(), refused.kind.simpleString()
            inside = "" if part == whole else f" with {part.upper()} in it"
            raise InvalidDeclaration(
                f'column "{field.name}" has type {whole.upper()}{inside}, which a view cannot hold',
                hint=refused.hint,
                column=field.name,
                type=whole,
            ) from None
    return pa.schema(fields)


class _Unheld(Exception):
    """A type that a view cannot hold, and what to do about it."""

    def __init__(self, kind: DataType, hint: str) -> None:
        super().__init__(hint)
        self.kind = kind
        self.hint = hint


def arrow_type(kind: DataType) -> pa.DataType:
    """A Spark type in Arrow, or ``_Unheld`` for the part of it that a view cannot hold."""
    from pyspark.sql import types

    if isinstance(kind, types.StructType):
        names = [field.name.lower() for field in kind.fields]
        if not names or len(set(names)) < len(names):
            fault = "has two fields of one name" if names else "has no field"
            raise _Unheld(kind, f"Parquet cannot store a STRUCT that {fault}. Name its fields: named_struct('a', …).")
        return pa.struct([pa.field(field.name, arrow_type(field.dataType)) for field in kind.fields])
    if isinstance(kind, types.ArrayType):
        return pa.list_(arrow_type(kind.elementType))
    if isinstance(kind, types.MapType):
        if isinstance(kind.keyType, types.NullType):
            raise _Unheld(kind, "CAST it, as in CAST(map() AS MAP<STRING, INT>).")
        return pa.map_(arrow_type(kind.keyType), arrow_type(kind.valueType))
    if isinstance(kind, types.StringType) and getattr(kind, "collation", BINARY) != BINARY:
        raise _Unheld(
            kind,
            f"Rows of a view are equal byte by byte: put COLLATE {BINARY} around the column, or lower(…); "
            "conditions may use any collation.",
        )
    if isinstance(kind, types.DayTimeIntervalType) and kind.simpleString().upper() != DAY_TO_SECOND:
        raise _Unheld(kind, f"Put a CAST around it: CAST(… AS {DAY_TO_SECOND}); of two dates, datediff(…) is a number.")
    hint = next((hint for name, hint in INSTEAD.items() if isinstance(kind, getattr(types, name, ()))), None)
    if hint is not None:
        raise _Unheld(kind, hint)
    try:
        return parse_view_ddl(f"c {kind.simpleString()}").field(0).type
    except HeadwaterError as error:
        raise _Unheld(kind, "CAST it to another type, for instance STRING.") from error


def _assumed(name: str, partial: pa.Schema) -> pa.Field:
    if name in partial.names:
        return partial.field(name)
    return pa.field(name, pa.bool_() if name == "_shown" else pa.string())


def _union(stage: FlowStage | AccumulateStage) -> str:
    parts = [term.sql for term in stage.terms] + ([stage.constant] if stage.constant else [])
    return "\nUNION ALL\n".join(f"({part})" for part in parts)
