"""Personal columns: which columns of a topic say something of a person, of whom, what for, and how they are masked.

What it is: ``Personal``, the declaration of one column; ``resolved``, the check of a topic's declarations against its
columns, which fills in the column that holds the person's id.
Invariants: a stored declaration names a column of the topic, and in ``by`` the one that holds the id (itself, if it is
the id); the column of an id is personal too, of the same subject; a mask fits the column's type.
Not here: where it is stored (``log/topic_settings.py``), masks applied, personal columns of views.
Read next: ``log/topic_declaration.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

import pyarrow as pa
import pyarrow.types as kinds

from headwater.errors import InvalidDeclaration
from headwater.hints import suggestion
from headwater.log.schema.ddl import spark_type
from headwater.log.schema.normalization import WEIGHT

Mask = Literal["hash", "redact", "null"]
MASKS: tuple[str, ...] = get_args(Mask)
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class Personal:
    """A column that says something of a person.

    ``subject`` is the kind of the person's id, one word over all topics; ``by`` the column of the same row that holds
    the id. ``purpose`` says what it is kept for, one word or several. ``mask`` is what readers without the right get
    instead: a keyed ``"hash"``, which is the same for equal values; ``"redact"``, the text ``***``; or ``"null"``.

    >>> Personal("user_id", by="id", purpose="billing", mask="hash")
    Personal(subject='user_id', by='id', purpose='billing', mask='hash')
    >>> Personal("user_id", mask="rot13")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: mask cannot be 'rot13'
      Hint: Use one of: hash, redact, null.
    """

    subject: str
    by: str | None = None
    purpose: str | tuple[str, ...] | None = None
    mask: Mask | None = None

    def __init__(
        self,
        subject: str,
        *,
        by: str | None = None,
        purpose: str | Sequence[str] | None = None,
        mask: Mask | None = None,
    ) -> None:
        if purpose is not None and not isinstance(purpose, str):
            purpose = purpose[0] if len(purpose) == 1 else tuple(purpose) or None
        for name, value in (("subject", subject), ("by", by), ("purpose", purpose), ("mask", mask)):
            object.__setattr__(self, name, value)
        for name, value in (("subject", subject), *(("purpose", each) for each in self.purposes)):
            if not (isinstance(value, str) and WORD.fullmatch(value)):
                raise InvalidDeclaration(
                    f"{name} cannot be {value!r}", hint='Use one word, as in "user_id" or "shipping".'
                )
        if mask is not None and mask not in MASKS:
            raise InvalidDeclaration(f"mask cannot be {mask!r}", hint=f"Use one of: {', '.join(MASKS)}.")

    @property
    def purposes(self) -> tuple[str, ...]:
        """What it is kept for: no word, one or several.

        >>> Personal("user_id", purpose=["billing", "shipping"]).purposes, Personal("user_id").purposes
        (('billing', 'shipping'), ())
        """
        return self.purpose if isinstance(self.purpose, tuple) else () if self.purpose is None else (self.purpose,)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Personal:
        """The declaration that ``dataclasses.asdict`` has written.

        >>> Personal.from_dict({"subject": "user_id", "mask": "null"})
        Personal(subject='user_id', by=None, purpose=None, mask='null')
        """
        known = ("by", "purpose", "mask")
        return Personal(values["subject"], **{name: values[name] for name in known if values.get(name) is not None})


def declared_privacy(given: object) -> dict[str, Personal]:
    """What a declaration says under ``privacy``, if it has the form; without the columns it cannot be checked further.

    >>> declared_privacy({"email": "user_id"})
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: privacy of column "email" cannot be 'user_id'
      Hint: Write privacy={"email": hw.Personal("user_id")}.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidDeclaration(
            f"privacy cannot be {given!r}", hint='Name columns: privacy={"email": hw.Personal("user_id", by="id")}.'
        )
    for column, personal in given.items():
        if not isinstance(personal, Personal):
            raise InvalidDeclaration(
                f'privacy of column "{column}" cannot be {personal!r}',
                hint=f'Write privacy={{"{column}": hw.Personal("user_id")}}.',
            )
    return dict(cast("Mapping[str, Personal]", given))


def resolved(privacy: Mapping[str, Personal], schema: pa.Schema) -> dict[str, Personal]:
    """The declarations with the column of the id filled in, checked against the topic's columns.

    >>> from headwater.log.schema.ddl import parse_ddl
    >>> users = {"id": Personal("user_id"), "email": Personal("user_id", by="id", mask="hash")}
    >>> resolved(users, parse_ddl("id BIGINT, email STRING"))["id"]
    Personal(subject='user_id', by='id', purpose=None, mask=None)
    """
    columns = [name for name in schema.names if name != WEIGHT]
    for column, personal in privacy.items():
        if column not in columns:
            raise InvalidDeclaration(
                f'privacy names "{column}", which is not a column',
                detail="A whole column is declared; a field of a STRUCT has no declaration of its own."
                if "." in column
                else None,
                hint=suggestion(column, columns),
                column=column,
            )
        _check_mask(personal, schema.field(column))
    found = {column: replace(personal, by=_id_column(column, privacy)) for column, personal in privacy.items()}
    for column, personal in found.items():
        _check_id(column, personal, found, schema)
    return found


def _id_column(column: str, privacy: Mapping[str, Personal]) -> str:
    """The column that holds the id, as declared, or the only one of the subject that can be meant."""
    personal = privacy[column]
    if personal.by is not None:
        return personal.by
    same = {name: each for name, each in privacy.items() if each.subject == personal.subject}
    named = {each.by for each in same.values() if each.by is not None}
    if column in named:  # another column says that its id is here
        return column
    without = [name for name, each in same.items() if each.by is None]
    candidates = named or {name for name in without if same[name] == Personal(personal.subject)} or set(without)
    if len(candidates) != 1:
        raise InvalidDeclaration(
            f'column "{column}" is personal, and it is not said which column holds its {personal.subject}',
            detail=f"It could be each of: {', '.join(sorted(candidates))}.",
            hint=f'Write hw.Personal("{personal.subject}", by="…"); an id names itself: by="{column}".',
            column=column,
        )
    return next(iter(candidates))


def _check_id(column: str, personal: Personal, found: Mapping[str, Personal], schema: pa.Schema) -> None:
    by = cast("str", personal.by)
    names = [name for name in schema.names if name != WEIGHT]
    if by not in names:
        raise InvalidDeclaration(
            f'by="{by}" of personal column "{column}" is not a column',
            detail="The id is a whole column, not a field of a STRUCT." if "." in by else None,
            hint=suggestion(by, names),
            column=column,
        )
    if kinds.is_nested(schema.field(by).type):
        raise InvalidDeclaration(
            f'by="{by}" of personal column "{column}" is {spark_type(schema.field(by).type)}, which is no id',
            hint="Name a column of a simple type that holds the person's id.",
            column=column,
        )
    if by not in found:
        raise InvalidDeclaration(
            f'column "{by}" holds the {personal.subject} of "{column}" and is not declared personal',
            hint=f'Add it: privacy={{"{by}": hw.Personal("{personal.subject}"), …}}.',
            column=by,
        )
    if found[by].subject != personal.subject or found[by].by != by:
        raise InvalidDeclaration(
            f'column "{column}" is of {personal.subject}, whose id is said to be in "{by}", '
            f"which is of {found[by].subject} by {found[by].by}",
            detail="The two declarations contradict each other.",
            hint=f'Give "{column}" the subject of "{by}", or name the column that holds its {personal.subject}.',
            column=column,
        )


def _check_mask(personal: Personal, field: pa.Field) -> None:
    if personal.mask is None or takes_mask(personal.mask, field.type, nullable=field.nullable):
        return
    type_shown = spark_type(field.type) + ("" if field.nullable else " NOT NULL")
    fitting = [mask for mask in MASKS if takes_mask(mask, field.type, nullable=field.nullable)]
    raise InvalidDeclaration(
        f'column "{field.name}" is {type_shown} and cannot take mask="{personal.mask}"',
        detail="A hash needs STRING, BINARY or BIGINT; redact STRING; null a column that may be null.",
        hint=f"Use one of: {', '.join(fitting)}." if fitting else "Leave mask out, or store the column as STRING.",
        column=field.name,
    )


def takes_mask(mask: str, kind: pa.DataType, *, nullable: bool) -> bool:
    """Whether a masked value of this kind is still a value of the type.

    >>> [takes_mask(mask, pa.int64(), nullable=True) for mask in MASKS]
    [True, False, True]
    """
    if mask == "null":
        return nullable
    if kinds.is_string(kind):
        return True
    return mask == "hash" and (kinds.is_binary(kind) or kind == pa.int64())
