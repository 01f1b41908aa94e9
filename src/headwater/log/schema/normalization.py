"""Schema normalization: a declared schema in the form that is stored.

What it is: ``normalize_schema`` takes Spark DDL or an Arrow schema and returns an Arrow schema of types that Spark
reads natively.
Invariants: the result is a fixed point, has no metadata, no duplicate name (case-insensitively, as Spark resolves
names) and no reserved name; a type is replaced only by one that holds every value of it, and otherwise refused.
Not here: the DDL grammar (``ddl.py``), schema compatibility (``evolution.py``), values (``row_conversion.py``).
Read next: ``evolution.py``, then ``row_conversion.py``.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kinds

from headwater.errors import InvalidDeclaration
from headwater.log.schema.ddl import DECIMAL_PRECISION_MAX, SPARK_NAMES, TIMESTAMP, TIMESTAMP_NTZ, parse_ddl
from headwater.log.schema.event_metadata import METADATA_COLUMNS

# The weight of a row, +1 added or -1 removed: the one system column of a table without a key.
WEIGHT = "_weight"

# System columns of the log, and those of the change feed (Spark's names). Users cannot declare them.
RESERVED_COLUMNS = frozenset(
    {
        *METADATA_COLUMNS,
        "_appended_at",
        "_change_type",
        "_commit_timestamp",
        "_commit_version",
        "_deleted",
        "_offset",
        "_partition",
        "_producer",
        WEIGHT,
    }
)

# Arrow types that Spark lacks, and the smallest Spark type that holds every value of them.
LOSSLESS: dict[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}


def normalize_schema(schema: str | pa.Schema) -> pa.Schema:
    """The stored form of a declared schema: DDL text or an Arrow schema.

    >>> print(normalize_schema(pa.schema([("id", pa.uint32()), ("at", pa.timestamp("ms", tz="Europe/Paris"))])))
    id: int64
    at: timestamp[us, tz=UTC]
    >>> normalize_schema("id BIGINT, ID STRING")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: column "ID" is declared twice
      "id" and "ID" differ only in case, and Spark treats them as equal.
      Hint: Rename one of them.
    """
    if isinstance(schema, str):
        schema = parse_ddl(schema)
    elif not isinstance(schema, pa.Schema):
        raise InvalidDeclaration(
            f"a schema is Spark DDL text or a pyarrow.Schema, not {type(schema).__name__}",
            hint='As in "order_id BIGINT, at TIMESTAMP".',
        )
    if len(schema) == 0:
        raise InvalidDeclaration("the schema is empty", hint='Name at least one column, as in "id BIGINT".')
    _refuse_duplicates(schema.names, where="")
    for name in schema.names:
        if name.lower() in RESERVED_COLUMNS:
            raise InvalidDeclaration(
                f'column "{name}" has a reserved name',
                detail="Headwater adds columns of these names itself: " + ", ".join(sorted(RESERVED_COLUMNS)) + ".",
                hint=f'Rename it, for instance "{name.lstrip("_")}".',
                column=name,
            )
    return pa.schema([_normalize_field(field, field.name) for field in schema])


def normalize_type(arrow: pa.DataType, where: str = "column") -> pa.DataType:
    """The Spark-readable Arrow type that holds every value of this one.

    >>> normalize_type(pa.dictionary(pa.int32(), pa.large_string()))
    DataType(string)
    """
    if arrow in SPARK_NAMES:
        return arrow
    if arrow in LOSSLESS:
        return LOSSLESS[arrow]
    if kinds.is_timestamp(arrow):
        return TIMESTAMP if arrow.tz is not None else TIMESTAMP_NTZ
    if kinds.is_decimal(arrow):
        return _normalize_decimal(arrow, where)
    if kinds.is_dictionary(arrow) or kinds.is_run_end_encoded(arrow):
        return normalize_type(arrow.value_type, where)
    if kinds.is_fixed_size_binary(arrow):
        return pa.binary()
    if _is_any_list(arrow):
        # Spark's ARRAY in DDL may always hold nulls, so the element's NOT NULL is dropped.
        return pa.list_(normalize_type(arrow.value_type, f"{where}[]"))
    if kinds.is_map(arrow):
        key = normalize_type(arrow.key_type, f"{where} key")
        if kinds.is_map(key):
            raise InvalidDeclaration(f'column "{where}" is a MAP whose key is a MAP, which Spark does not have')
        return pa.map_(key, normalize_type(arrow.item_type, f"{where} value"))
    if kinds.is_struct(arrow):
        if arrow.num_fields == 0:
            raise InvalidDeclaration(
                f'column "{where}" is a STRUCT without fields', hint="Parquet cannot store one; add a field or drop it."
            )
        _refuse_duplicates([field.name for field in arrow], where=where)
        return pa.struct([_normalize_field(field, f"{where}.{field.name}") for field in arrow])
    raise InvalidDeclaration(
        f'column "{where}" has the Arrow type {arrow}, which Spark cannot hold',
        hint=_instead_of(arrow),
        column=where,
        arrow_type=str(arrow),
    )


def _normalize_field(field: pa.Field, where: str) -> pa.Field:
    if not field.name:
        raise InvalidDeclaration("a column has an empty name")
    return pa.field(field.name, normalize_type(field.type, where), nullable=field.nullable)


def _normalize_decimal(arrow: pa.DataType, where: str) -> pa.DataType:
    if arrow.precision > DECIMAL_PRECISION_MAX or not 0 <= arrow.scale <= arrow.precision:
        raise InvalidDeclaration(
            f'column "{where}" has the Arrow type {arrow}, which Spark cannot hold',
            detail=f"Spark's DECIMAL has 1 to {DECIMAL_PRECISION_MAX} digits, of which 0 or more after the point.",
            hint="Declare a smaller precision, or store the digits as STRING.",
            column=where,
            arrow_type=str(arrow),
        )
    return pa.decimal128(arrow.precision, arrow.scale)


def _is_any_list(arrow: pa.DataType) -> bool:
    return bool(
        kinds.is_list(arrow)
        or kinds.is_large_list(arrow)
        or kinds.is_fixed_size_list(arrow)
        or kinds.is_list_view(arrow)
        or kinds.is_large_list_view(arrow)
    )


def _instead_of(arrow: pa.DataType) -> str:
    if kinds.is_uint64(arrow):
        return "Use BIGINT when the values stay below 2^63, else DECIMAL(20,0)."
    if kinds.is_time(arrow):
        return "Store the time of day as BIGINT (microseconds since midnight) or as STRING."
    if kinds.is_duration(arrow) or kinds.is_interval(arrow):
        return "Store the length as BIGINT (microseconds), or its two ends as TIMESTAMP."
    if kinds.is_union(arrow):
        return "Declare a STRUCT with one nullable field for each alternative."
    if kinds.is_null(arrow):
        return "Give the column the type that its values will have."
    if isinstance(arrow, pa.BaseExtensionType):
        return f"Declare its storage type, {arrow.storage_type}, and convert the values."
    return "Use one of Spark's types."


def _refuse_duplicates(names: list[str], *, where: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            earlier, full = seen[name.lower()], f"{where}.{name}" if where else name
            detail = None
            if earlier != name:
                detail = f'"{earlier}" and "{name}" differ only in case, and Spark treats them as equal.'
            raise InvalidDeclaration(
                f'column "{full}" is declared twice', detail=detail, hint="Rename one of them.", column=full
            )
        seen[name.lower()] = name
