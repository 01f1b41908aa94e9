"""Shapes: the types of a stage's tables, as Spark's own analyser tells them.

What it is: ``describe`` for the compiler and ``shape_of`` for the engine. Both ask Spark about queries over empty
tables: analysis only, nothing runs.
Invariants: what is not a type that a topic could hold (intervals, variants, a bare NULL) is refused here, by name.
Not here: kinds of stages (``compiler/``).
Read next: ``stages.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import HeadwaterError, InvalidDeclaration
from headwater.log.ddl import parse_ddl, spark_type
from headwater.views.compiler.compile import Confirmed
from headwater.views.compiler.plan import (
    AccumulateStage,
    ClosingStage,
    Column,
    Content,
    FlowStage,
    KeyedStage,
    Stage,
    TimedStage,
    WholeStage,
)  # fmt: skip
from headwater.views.round_trip import compared, opaque_table
from headwater.views.workbench import Workbench, with_weight

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ROUNDS_MAX = 4


def columns_of(schema: pa.Schema) -> tuple[Column, ...]:
    """The compiler's words for an Arrow schema."""
    return tuple(Column(field.name, spark_type(field.type)) for field in schema)


def arrow_of(columns: tuple[Column, ...]) -> pa.Schema:
    """The Arrow schema of columns whose types are known."""
    quoted = (f"`{column.name.replace('`', '``')}` {column.type}" for column in columns)
    return parse_ddl(", ".join(quoted))


@dataclass(frozen=True)
class Shape:
    """The Arrow schemas of a stage, as Spark's analyser gave them."""

    visible: pa.Schema
    state: pa.Schema  # visible and hidden
    flow: pa.Schema | None = None  # _g…, _x…, _weight of an accumulating stage
    partial: pa.Schema | None = None
    tame_partial: pa.Schema | None = None


class Analyser:
    """Asks Spark for types. Holds a workbench of its own."""

    def __init__(self, bench: Workbench) -> None:
        self.bench = bench

    def describe(self, sql: str, tables: Mapping[str, tuple[Column, ...]]) -> tuple[Column, ...]:
        """The columns of a query over empty tables."""
        for name, columns in tables.items():
            self._empty(name, arrow_of(columns))
        return columns_of(self._schema(sql))

    def confirm(self, sql: str, ours: str, tables: Mapping[str, tuple[Column, ...]]) -> Confirmed:
        """The columns of a user's query, and where ours means something else to Spark."""
        for name, columns in tables.items():
            opaque_table(self.bench.small, name, arrow_of(columns))
        columns, difference = compared(self.bench.small, sql, ours)
        return Confirmed(columns_of(arrow_schema(columns)), difference)

    def shape_of(self, stage: Stage, schemas: Mapping[str, pa.Schema]) -> Shape:
        """The shape of a stage whose inputs have these visible schemas."""
        for leaf in stage.leaves:
            schema = pa.schema([schemas[leaf.relation].field(name) for name in leaf.columns])
            self._empty(leaf.name, schema if leaf.content is Content.BAG else with_weight(schema))
        visible = [column.name for column in stage.columns]
        if isinstance(stage, TimedStage | ClosingStage):
            given = schemas[stage.source.relation]
            hidden = [column.name for column in stage.hidden]
            return Shape(
                *(pa.schema([given.field(name) for name in names]) for names in (visible, [*visible, *hidden]))
            )
        if isinstance(stage, AccumulateStage):
            return self._accumulating(stage, visible)
        if isinstance(stage, FlowStage):
            state = self._schema(_union(stage))
        else:
            assert isinstance(stage, KeyedStage | WholeStage)
            state = self._schema(stage.sql)
        names = [*visible, *(column.name for column in stage.hidden)]
        state = pa.schema([state.field(name) for name in names])
        return Shape(pa.schema([state.field(name) for name in visible]), state)

    def _accumulating(self, stage: AccumulateStage, visible: list[str]) -> Shape:
        flow = self._schema(_union(stage))
        self._empty("_flow", flow)
        tame = self._schema(stage.tame_partial) if stage.tame_partial else None
        partial = self._schema(stage.partial)
        self._empty("_partial", partial)
        names = [*visible, *(column.name for column in stage.hidden)]
        # The state's types follow from the query that reads the state: begin with the partial's and go on until the
        # answer is what was assumed.
        assumed = pa.schema([_assumed(name, partial) for name in names])
        for _ in range(ROUNDS_MAX):
            self._empty("_before", assumed)
            found = self._schema(stage.combine)
            found = pa.schema([found.field(name) for name in names])
            if found == assumed:
                break
            assumed = found
        return Shape(pa.schema([assumed.field(name) for name in visible]), assumed, flow, partial, tame)

    def _empty(self, name: str, schema: pa.Schema) -> None:
        self.bench.empty(self.bench.small, schema).createOrReplaceTempView(f"`{name}`")

    def _schema(self, sql: str) -> pa.Schema:
        return arrow_schema(self.bench.small.sql(sql).schema)


def arrow_schema(schema: StructType) -> pa.Schema:
    """A Spark schema in Arrow, every column nullable."""
    fields = []
    for field in schema.fields:
        kind = field.dataType.simpleString()
        try:
            parsed = parse_ddl(f"c {kind}").field(0).type
        except HeadwaterError as error:
            raise InvalidDeclaration(
                f'column "{field.name}" has type {kind.upper()}, which a view cannot hold',
                hint=error.hint or "CAST it to another type.",
                column=field.name,
            ) from error
        fields.append(pa.field(field.name, parsed))
    return pa.schema(fields)


def _assumed(name: str, partial: pa.Schema) -> pa.Field:
    if name in partial.names:
        return partial.field(name)
    return pa.field(name, pa.bool_() if name == "_shown" else pa.string())


def _union(stage: Any) -> str:
    parts = [term.sql for term in stage.terms] + ([stage.constant] if stage.constant else [])
    return "\nUNION ALL\n".join(f"({part})" for part in parts)
