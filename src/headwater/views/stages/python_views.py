"""Views by PySpark function: a user's own code as a stage.

What it is: ``function_stage`` makes a stage of a declaration with a function; row by row, or ``by`` a key.
Invariants: a row function sees the rows that came and the rows that left in two separate calls, so it must be a
function of each row alone; what aggregates, joins or sorts is refused, by looking at Spark's plan of it. A function
by key sees all rows of each key that was touched, and its result holds the key's columns.
Not here: SQL (``compiler/``); running (``stage_run.py``).
Read next: ``stage_run.py``.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import InvalidDeclaration
from headwater.views.compiler.plan import (
    KeyedInput,
    KeyedStage,
    Leaf,
    LeafContent,
    PlanColumn,
    Stage,
    StageKind,
    ViewPlan,
)
from headwater.views.spark.topic_scan import quoted
from headwater.views.stages.search_views import SearchFunction, search_plan
from headwater.views.stages.stage_schemas import Analyser, StageSchema, arrow_schema, columns_of
from headwater.views.view_declaration import ViewDeclaration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOT_ROWWISE = (
    "Aggregate",
    "Join",
    "Window",
    "Sort",
    "Deduplicate",
    "GlobalLimit",
    "LocalLimit",
    "Except",
    "Intersect",
    "Distinct",
    "Sample",
    "FlatMapGroupsInPandas",
    "RepartitionByExpression",
)


@dataclass(frozen=True)
class RowFunctionStage(Stage):
    """A function of each row alone."""

    inputs: tuple[Leaf, ...] = ()
    function: Callable[..., Any] | None = None

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return self.inputs


def function_plan(
    declared: ViewDeclaration, schemas: Mapping[str, pa.Schema], analyser: Analyser
) -> tuple[ViewPlan, dict[str, StageSchema]]:
    """The plan of a view by function over relations of these schemas, and the shape of its one stage."""
    function = declared.function
    assert function is not None
    if isinstance(function, SearchFunction):
        return search_plan(declared, schemas)
    frames = [analyser.sessions.empty(analyser.sessions.small, schemas[name]) for name in declared.inputs]
    result = _called(declared, frames)
    schema = arrow_schema(result.schema)
    columns = columns_of(schema)
    leaves = tuple(
        Leaf(f"_l{place}", name, LeafContent.BAG if declared.by else LeafContent.CHANGES, tuple(schemas[name].names))
        for place, name in enumerate(declared.inputs)
    )
    what = f"{function.__name__}({', '.join(declared.inputs)})"
    if declared.by:
        stage: Stage = _by_key(declared, schemas, schema, leaves, what)
    else:
        _check_rowwise(declared, result)
        stage = RowFunctionStage(declared.name, StageKind.LINEAR, columns, (), what, leaves, function)
    keys = [schema.field(column).with_name(f"_k{place}") for place, column in enumerate(declared.by)]
    shape = StageSchema(schema, pa.schema([*schema, *keys]))
    plan = ViewPlan(declared.name, "", (stage,), columns, declared.inputs, _fingerprint(declared, schemas))
    return plan, {stage.name: shape}


def _called(declared: ViewDeclaration, frames: list[DataFrame]) -> Any:
    from pyspark.sql import DataFrame

    assert declared.function is not None
    result = declared.function(*frames)
    if not isinstance(result, DataFrame):
        raise InvalidDeclaration(
            f"{declared.title}: the function gave {type(result).__name__}, not a DataFrame",
            hint="Return the frame: return orders.where(…)",
        )
    return result


def _by_key(
    declared: ViewDeclaration, schemas: Mapping[str, pa.Schema], schema: pa.Schema, leaves: tuple[Leaf, ...], what: str
) -> KeyedStage:
    for name in declared.inputs:
        for column in declared.by:
            if column not in schemas[name].names:
                raise InvalidDeclaration(
                    f'{declared.title}: "{name}" has no column "{column}" to go by',
                    hint=f"Its columns are {', '.join(schemas[name].names)}.",
                )
    for column in declared.by:
        if column not in schema.names:
            raise InvalidDeclaration(
                f'{declared.title}: the result has no column "{column}"',
                detail="The rows of a touched key are replaced, so each row must tell its key.",
                hint=f'Keep "{column}" in the frame that the function returns.',
            )
    keys = tuple(
        PlanColumn(f"_k{place}", columns_of(schema)[schema.names.index(c)].type) for place, c in enumerate(declared.by)
    )
    function = declared.function
    assert function is not None

    def query(*frames: Any) -> Any:
        copies = {key.name: column for key, column in zip(keys, declared.by, strict=True)}
        result = function(*frames)
        return result.select("*", *(result[column].alias(name) for name, column in copies.items()))

    inputs = tuple(KeyedInput(leaf, tuple(map(quoted, declared.by)), declared.by) for leaf in leaves)
    what = f"{what} by {', '.join(declared.by)}"
    return KeyedStage(declared.name, StageKind.KEYED, columns_of(schema), keys, what, inputs, keys, query)  # type: ignore[arg-type]


def _check_rowwise(declared: ViewDeclaration, result: Any) -> None:
    plan = result._jdf.queryExecution().analyzed().toString()
    for line in plan.splitlines():
        word = re.match(r"[\s:+\-|]*(\w+)", line)
        if word and word.group(1) in NOT_ROWWISE:
            raise InvalidDeclaration(
                f"{declared.title}: the function is not row by row: it has a {word.group(1)}",
                detail="Without by= a function sees only the rows that changed.",
                hint='Give by="column" to see all rows of a key, or write the view in SQL.',
            )


def _fingerprint(declared: ViewDeclaration, schemas: Mapping[str, pa.Schema]) -> str:
    assert declared.function is not None
    try:
        source = inspect.getsource(declared.function)
    except (OSError, TypeError):  # typed into a prompt
        code = declared.function.__code__
        source = repr((code.co_code, code.co_consts, code.co_names))
    shape = [(name, schemas[name].to_string()) for name in declared.inputs]
    return hashlib.sha256(repr((source, shape, declared.by)).encode()).hexdigest()
