"""Schema evolution: which schema may follow another, and old batches under the new one.

What it is: ``evolve`` merges a declaration into the stored schema or raises the reason; ``conform`` converts a batch of
an older version to the latest.
Invariants: every batch ever written conforms to every later version without losing a value; the merged schema keeps the
old columns' order and appends new ones; the partition of a key never changes.
Not here: storage of versions (``log/catalog/registry.py``), rows (``row_conversion.py``).
Read next: ``row_conversion.py``.
"""

from __future__ import annotations

from typing import NoReturn

import pyarrow as pa
import pyarrow.types as kinds

from headwater.errors import SchemaConflict
from headwater.log.schema.ddl import spark_type

# How many bits, or digits, an integer type needs in the types that it may widen to.
WHOLE_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
# A DOUBLE holds every integer of up to 53 bits, so INT widens to it and BIGINT does not.
DOUBLE_BITS = 53

NEW_COLUMN = "Add the change under a new column name, or write a new topic."


def evolve(old: pa.Schema, new: pa.Schema, *, key: tuple[str, ...] = (), event_time: str | None = None) -> pa.Schema:
    """The schema that follows ``old`` when ``new`` is declared; ``SchemaConflict`` when none can.

    A declaration equal to an *earlier* version (a process with older code) is not a change: the caller checks the
    stored versions first. Here a missing column or a narrower type is refused.

    >>> from headwater.log.schema.normalization import normalize_schema
    >>> old, new = map(normalize_schema, ("id INT, name STRING", "id BIGINT, name STRING, note STRING"))
    >>> print(evolve(old, new, key=("id",)))
    id: int64
    name: string
    note: string
    >>> evolve(old, normalize_schema("id INT, name DOUBLE"))
    Traceback (most recent call last):
        ...
    headwater.errors.SchemaConflict: column "name" cannot change from STRING to DOUBLE
      The types are not of one kind.
      Hint: Add the change under a new column name, or write a new topic.
    """
    added = [field for field in new if field.name not in old.names]
    missing = [field for field in old if field.name not in new.names]
    if missing:
        _refuse_missing(missing[0], new)
    for field in added:
        _refuse_required(field)
    kept = [_evolve_column(field, new.field(field.name), key=key, event_time=event_time) for field in old]
    return pa.schema(kept + added)


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether every value of ``old`` is a value of ``new``: the same type, or a wider one of its kind.

    >>> widens(pa.int32(), pa.float64()), widens(pa.int64(), pa.float64())
    (True, False)
    """
    if old == new:
        return True
    if old in WHOLE_BITS:
        wide = WHOLE_BITS.get(new, DOUBLE_BITS if new == pa.float64() else 0)
        return WHOLE_BITS[old] <= wide
    if kinds.is_float32(old):
        return bool(new == pa.float64())
    if kinds.is_decimal(old) and kinds.is_decimal(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    if kinds.is_list(old) and kinds.is_list(new):
        return widens(old.value_type, new.value_type)
    if kinds.is_map(old) and kinds.is_map(new):
        return bool(old.key_type == new.key_type) and widens(old.item_type, new.item_type)
    if kinds.is_struct(old) and kinds.is_struct(new):
        return _covers_fields(list(new), list(old))
    return False


def conform(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """A batch of an older version in the later version ``target``. Free when they are equal.

    >>> from headwater.log.schema.normalization import normalize_schema
    >>> old = pa.record_batch({"id": pa.array([1], pa.int32())})
    >>> conform(old, normalize_schema("note STRING, id BIGINT")).to_pylist()
    [{'note': None, 'id': 1}]
    """
    if batch.schema.equals(target):
        return batch
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays = []
    for field in target:
        column = columns.get(field.name)
        if column is not None and not widens(column.type, field.type):
            _refuse(
                field.name, column.type, field.type, "The batch was not written under an older version.", NEW_COLUMN
            )
        arrays.append(pa.nulls(batch.num_rows, field.type) if column is None else _widen(column, field.type))
    if not arrays:  # a projection to no columns still has its rows
        return batch.select([])
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _covers_fields(latest: list[pa.Field], declared: list[pa.Field]) -> bool:
    given = {field.name: field for field in declared}
    if not given.keys() <= {field.name for field in latest}:
        return False
    for field in latest:
        older = given.get(field.name)
        if older is None:
            if not field.nullable:
                return False
        elif not widens(older.type, field.type) or (older.nullable and not field.nullable):
            return False
    return True


def _evolve_column(old: pa.Field, new: pa.Field, *, key: tuple[str, ...], event_time: str | None) -> pa.Field:
    name = old.name
    role = "the key" if name in key else "the event time" if name == event_time else None
    if old.nullable and not new.nullable:
        _refuse(
            name, old.type, new.type, "It may hold nulls already, so it cannot become NOT NULL.", "Leave it nullable."
        )
    if role and new.nullable and not old.nullable:
        _refuse(name, old.type, new.type, f"It is {role}, which is never null.", "Leave it NOT NULL.")
    if not widens(old.type, new.type):
        _refuse(name, old.type, new.type, _why_not(old.type, new.type), NEW_COLUMN)
    if role == "the event time" and old.type != new.type:
        _refuse(name, old.type, new.type, "It is the event time, whose type is fixed.", NEW_COLUMN)
    if role == "the key" and old.type != new.type and not (old.type in WHOLE_BITS and new.type in WHOLE_BITS):
        _refuse(name, old.type, new.type, "It is part of the key; a key may only widen among the integers.", NEW_COLUMN)
    return pa.field(name, _merge(old.type, new.type), nullable=new.nullable)


def _merge(old: pa.DataType, new: pa.DataType) -> pa.DataType:
    """The wider type. A struct keeps the old order of its fields, so a new order alone is no new version."""
    if kinds.is_list(old):
        return pa.list_(_merge(old.value_type, new.value_type))
    if kinds.is_map(old):
        return pa.map_(old.key_type, _merge(old.item_type, new.item_type))
    if kinds.is_struct(old):
        news, names = {field.name: field for field in new}, {field.name for field in old}
        kept = [news[field.name].with_type(_merge(field.type, news[field.name].type)) for field in old]
        return pa.struct(kept + [field for field in new if field.name not in names])
    return new


def _why_not(old: pa.DataType, new: pa.DataType) -> str:
    if widens(new, old):
        return "The new type is narrower; stored values might not fit it."
    if old == pa.int64() and new == pa.float64():
        return "A DOUBLE cannot hold every BIGINT exactly."
    if kinds.is_decimal(old) and kinds.is_decimal(new):
        return "The new type has fewer digits before or after the point."
    if kinds.is_struct(old) and kinds.is_struct(new):
        return _why_not_struct(old, new)
    if kinds.is_list(old) and kinds.is_list(new):
        return f"In its elements: {_why_not(old.value_type, new.value_type)}"
    if kinds.is_map(old) and kinds.is_map(new):
        if old.key_type != new.key_type:
            return "A MAP's key type cannot change."
        return f"In its values: {_why_not(old.item_type, new.item_type)}"
    return "The types are not of one kind."


def _why_not_struct(old: pa.DataType, new: pa.DataType) -> str:
    olds, news = ({field.name: field for field in arrow} for arrow in (old, new))
    for name, field in olds.items():
        if name not in news:
            return f'Its field "{name}" was removed.'
        if not widens(field.type, news[name].type):
            types = f"from {spark_type(field.type)} to {spark_type(news[name].type)}"
            return f'Its field "{name}" changed {types}. {_why_not(field.type, news[name].type)}'
        if field.nullable and not news[name].nullable:
            return f'Its field "{name}" cannot become NOT NULL.'
    added = next(name for name, field in news.items() if name not in olds and not field.nullable)
    return f'Its new field "{added}" must be nullable.'


def _refuse_missing(field: pa.Field, new: pa.Schema) -> NoReturn:
    stored = spark_type(field.type)
    detail = f"It is stored as {stored}; columns are known by name and are neither removed nor renamed."
    hint = f'Keep "{field.name} {stored}" in the declaration; new rows may leave it null.'
    if not field.nullable:
        hint = f'Keep "{field.name} {stored} NOT NULL" in the declaration; every row must have it.'
    for name in new.names:
        if name.lower() == field.name.lower():
            hint = f'Write "{field.name}" instead of "{name}"; Spark treats them as equal.'
    raise SchemaConflict(
        f'column "{field.name}" is missing in the new schema',
        detail=detail,
        hint=hint,
        column=field.name,
        old_type=stored,
        new_type=None,
    )


def _refuse_required(field: pa.Field) -> None:
    if not field.nullable:
        raise SchemaConflict(
            f'the new column "{field.name}" is NOT NULL, but the rows already stored have no value for it',
            hint=f"Declare it nullable: {field.name} {spark_type(field.type)}",
            column=field.name,
            old_type=None,
            new_type=spark_type(field.type),
        )


def _refuse(name: str, old: pa.DataType, new: pa.DataType, detail: str, hint: str) -> NoReturn:
    change = f"from {spark_type(old)} to {spark_type(new)}" if old != new else f"({spark_type(old)})"
    raise SchemaConflict(
        f'column "{name}" cannot change {change}',
        detail=detail,
        hint=hint,
        column=name,
        old_type=spark_type(old),
        new_type=spark_type(new),
    )


def _widen(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The array in a type that ``widens`` its own. Lists and structs keep their offsets and null bits."""
    if array.type == target:
        return array
    if kinds.is_struct(target):
        parts = {field.name: part for field, part in zip(array.type, array.flatten(), strict=True)}
        arrays = [
            _widen(parts[field.name], field.type) if field.name in parts else pa.nulls(len(array), field.type)
            for field in target
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(arrays, fields=list(target), mask=mask)
    if kinds.is_list(target):
        mask = array.is_null() if array.null_count else None
        # from_arrays takes a mask only for an array that starts at its buffer's start.
        offsets = pa.array(array.offsets.to_numpy(), pa.int32())
        return pa.ListArray.from_arrays(offsets, _widen(array.values, target.value_type), type=target, mask=mask)
    if kinds.is_map(target):
        mask = array.is_null() if array.null_count else None
        offsets = pa.array(array.offsets.to_numpy(), pa.int32())
        keys, items = array.values.flatten()
        return pa.MapArray.from_arrays(offsets, keys, _widen(items, target.item_type), type=target, mask=mask)
    return array.cast(target)
