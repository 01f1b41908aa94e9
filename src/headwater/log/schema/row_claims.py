"""Row claims: which readers a row is for, by the value of a column.

What it is: the check of ``rows_by={column: claim}``, which a topic, a table or a view declares: a reader is shown the
rows in whose column stands a value of the reader's own claim.
Invariants: the columns are STRING or whole numbers, whose text is the same wherever it is compared.
Not here: readers (``views/privacy/row_rules.py``), where it is stored (``log/topic_settings.py``).
Read next: ``views/privacy/row_rules.py``; ``docs/privacy.md``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.types as kinds

from headwater.errors import InvalidDeclaration
from headwater.hints import suggestion
from headwater.log.schema.ddl import spark_type
from headwater.log.schema.normalization import WEIGHT

CLAIM = re.compile(r"[A-Za-z_][A-Za-z0-9_.:/-]{0,199}")


def declared_rows_by(given: object) -> dict[str, str]:
    """What a declaration says under ``rows_by``, if it has the form.

    >>> declared_rows_by({"tenant": "tenant"})
    {'tenant': 'tenant'}
    >>> declared_rows_by("tenant")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: rows_by cannot be 'tenant'
      Hint: Name a column, and the claim that readers have: rows_by={"tenant": "tenant"}.
    """
    if given is None:
        return {}
    hint = 'Name a column, and the claim that readers have: rows_by={"tenant": "tenant"}.'
    if not isinstance(given, Mapping):
        raise InvalidDeclaration(f"rows_by cannot be {given!r}", hint=hint)
    for column, claim in given.items():
        if not isinstance(column, str) or not isinstance(claim, str) or not CLAIM.fullmatch(claim):
            raise InvalidDeclaration(f"rows_by cannot have {column!r}: {claim!r}", hint=hint)
    return dict(given)


def check_rows_by(rows_by: Mapping[str, str], schema: pa.Schema) -> None:
    """Refuse columns that are not there, and those whose values are not compared as text.

    >>> check_rows_by({"weight": "tenant"}, pa.schema([("weight", pa.float64())]))
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: rows_by names "weight", which is DOUBLE
      Hint: Name a column that is STRING or a whole number.
    """
    columns = [name for name in schema.names if name != WEIGHT]
    for column in rows_by:
        if column not in columns:
            raise InvalidDeclaration(
                f'rows_by names "{column}", which is not a column', hint=suggestion(column, columns), column=column
            )
        if not is_compared(schema.field(column).type):
            raise InvalidDeclaration(
                f'rows_by names "{column}", which is {spark_type(schema.field(column).type)}',
                hint="Name a column that is STRING or a whole number.",
                column=column,
            )


def is_compared(kind: pa.DataType) -> bool:
    """Whether values of a column can be compared with those of a claim.

    >>> is_compared(pa.string()), is_compared(pa.int64()), is_compared(pa.float64())
    (True, True, False)
    """
    return bool(kinds.is_string(kind) or kinds.is_integer(kind))
