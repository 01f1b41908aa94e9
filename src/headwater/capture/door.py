"""The door of a capture: what of a table's columns is taken, and in which form.

What it is: ``Door``, the user's declaration (``columns``, ``mask``, ``hash``), and ``OpenDoor``, the same with its
secrets, which says of a table's columns what becomes of them; ``at_door`` turns rows as they were read.
Invariants: rows pass it before anything is kept of them: the log, remembered large values and positions of a backfill
never have a value that is left out, masked or hashed. A column that came later is not taken where ``columns`` is given.
A column that is to be masked or hashed and is not there stops the capture: it may have been renamed. Equal values have
equal hashes from backfill and stream, and wherever the same secret is used.
Not here: masks for readers (``views/privacy``), which apply to what is in the log.
Read next: ``text_rows.py``, ``docs/privacy.md``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headwater.capture.database import Losses, SourceColumn, SourceTable, Unsent
from headwater.capture.text_rows import TextRows
from headwater.errors import InvalidDeclaration
from headwater.hints import suggestion
from headwater.log.contract import EventLog
from headwater.log.schema.column_masks import REDACTED, ColumnMasks
from headwater.log.schema.ddl import spark_type
from headwater.log.schema.personal_columns import MASKS, Mask

SECRET_BYTES_MIN = 16


@dataclass(frozen=True)
class Door:
    """What a source says of its columns.

    >>> Door.declared(["id", "email"], {"card": "null"}, ["email"], "env:SECRET")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: mask names "card", which is not among columns
      Hint: Add it to columns, or leave it out of mask.
    """

    columns: tuple[str, ...] | None = None
    masks: tuple[tuple[str, Mask], ...] = ()
    hashed: tuple[str, ...] = ()
    secret: str | None = None

    @staticmethod
    def declared(
        columns: Sequence[str] | None, mask: Mapping[str, Mask] | None, hash: Sequence[str], hash_key: str | None
    ) -> Door | None:
        """The declaration, checked; None when everything is taken as it is."""
        for what, given in (("columns", columns), ("hash", hash)):
            if isinstance(given, str) or not all(isinstance(each, str) for each in given or ()):
                raise InvalidDeclaration(f"{what} cannot be {given!r}", hint=f'Give a list: {what}=["email"].')
        masks = dict(mask or {})
        if columns is None and not masks and not hash:
            return None
        for column, each in masks.items():
            if each not in MASKS:
                raise InvalidDeclaration(f"mask cannot be {each!r}", hint=f"Use one of: {', '.join(MASKS)}.")
            if column in hash:
                raise InvalidDeclaration(f'"{column}" is masked and hashed', hint="Choose one of the two.")
        for what, names in (("mask", list(masks)), ("hash", list(hash))):
            other = next((name for name in names if columns is not None and name not in columns), None)
            if other is not None:
                raise InvalidDeclaration(
                    f'{what} names "{other}", which is not among columns',
                    hint=f"Add it to columns, or leave it out of {what}.",
                )
        if hash and hash_key is None:
            raise InvalidDeclaration(
                "hash needs a secret",
                detail="Without one a hash is found again by trying values.",
                hint='Name a variable or a file that holds it: hash_key="env:NAME" or hash_key="file:PATH".',
            )
        return Door(None if columns is None else tuple(columns), tuple(sorted(masks.items())), tuple(hash), hash_key)

    def opened(self, log: EventLog) -> OpenDoor:
        """The door with its secrets."""
        secret = secret_of(self.secret) if self.hashed and self.secret is not None else b""
        home = log.local.catalog.mask_secret() if any(mask == "hash" for _, mask in self.masks) else b""
        return OpenDoor(self, secret, ColumnMasks(home))


def secret_of(named: str) -> bytes:
    """The secret that ``env:NAME`` or ``file:PATH`` names.

    >>> secret_of("top secret")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: hash_key names no variable and no file
      Hint: Write hash_key="env:NAME" or hash_key="file:PATH"; the secret itself does not belong in the program.
    """
    kind, _, name = named.partition(":")
    if kind not in ("env", "file") or not name:
        raise InvalidDeclaration(
            "hash_key names no variable and no file",
            hint='Write hash_key="env:NAME" or hash_key="file:PATH"; the secret itself does not belong in the program.',
        )
    try:
        found = os.environb.get(name.encode(), b"") if kind == "env" else Path(name).read_bytes()
    except OSError as error:
        raise InvalidDeclaration(
            f"the secret for hash cannot be read: {name}: {error.strerror}", hint="Make the file, for its reader alone."
        ) from error
    if len(found.strip()) < SECRET_BYTES_MIN:
        raise InvalidDeclaration(
            f"the secret for hash in {named} has {len(found.strip())} bytes, and needs {SECRET_BYTES_MIN}",
            hint="Make one: openssl rand -hex 32",
        )
    return found.strip()


@dataclass(frozen=True)
class OpenDoor:
    """A door with its secrets: it turns a table's columns into those that the log gets."""

    door: Door
    secret: bytes
    masks: ColumnMasks

    @property
    def fingerprint(self) -> str:
        """What tells one door from another, without the secret."""
        secret = hmac.digest(self.secret, b"headwater door", hashlib.sha256).hex()[:16] if self.secret else ""
        return json.dumps([self.door.columns, self.door.masks, self.door.hashed, secret])

    def applied(self, shape: SourceTable) -> SourceTable:
        """The table with what becomes of each of its columns."""
        door, names = self.door, [column.name for column in shape.columns]
        for what, named in (("mask", [name for name, _ in door.masks]), ("hash", door.hashed)):
            gone = next((name for name in named if name not in names), None)
            if gone is not None:
                raise InvalidDeclaration(
                    f'{what} names "{gone}", which is not a column of {shape.table}', hint=suggestion(gone, names)
                )
        for name in shape.key:
            if door.columns is not None and name not in door.columns:
                raise InvalidDeclaration(
                    f'the key column "{name}" of {shape.table} cannot be left out',
                    hint='Take it, or hash it: hash=["…"].',
                )
            if name in dict(door.masks):
                raise InvalidDeclaration(
                    f'the key column "{name}" of {shape.table} cannot be masked',
                    detail="Rows of different keys would be one.",
                    hint=f'Hash it: hash=["{name}"].',
                )
        return replace(shape, columns=tuple(map(self._column, shape.columns)))

    def check(self, shape: SourceTable, stored: Sequence[str]) -> None:
        """Refuse names that neither the table has, nor our topic from before."""
        names = [column.name for column in shape.columns]
        unknown = next((name for name in self.door.columns or () if name not in names and name not in stored), None)
        if unknown is not None:
            raise InvalidDeclaration(
                f'columns names "{unknown}", which is not a column of {shape.table}', hint=suggestion(unknown, names)
            )

    def _column(self, column: SourceColumn) -> SourceColumn:
        door, name = self.door, column.name
        if door.columns is not None and name not in door.columns:
            return replace(column, taken=False, weight=0)
        if name in door.hashed:
            return replace(column, logged=pa.string(), enter=self._hashing(column))
        mask = dict(door.masks).get(name)
        if mask == "null":
            return replace(
                column, logged=column.arrow, weight=0, enter=lambda texts, _: pa.nulls(len(texts), column.arrow)
            )
        if mask is not None and not kinds.is_string(column.arrow):
            raise InvalidDeclaration(
                f'"{name}" is {spark_type(column.arrow)} and cannot take mask="{mask}" before it is stored',
                hint=f'Use mask={{"{name}": "null"}}, or hash=["{name}"].',
            )
        if mask == "redact":
            return replace(column, logged=pa.string(), weight=0, enter=lambda texts, unsent: _redacted(texts, unsent))
        if mask == "hash":
            return replace(column, logged=pa.string(), enter=lambda texts, _: self._masked(_typed(column, texts)))
        return column

    def _masked(self, values: pa.Array) -> pa.Array:
        batch = pa.record_batch({"value": values})
        return self.masks.batch(batch, {"value": "hash"}).column("value").cast(pa.string())

    def _hashing(self, column: SourceColumn) -> Callable[[pa.Array, Unsent], pa.Array]:
        kind = column.arrow
        if not (
            kinds.is_string(kind)
            or kinds.is_binary(kind)
            or kinds.is_integer(kind)
            or kinds.is_decimal(kind)
            or kinds.is_date(kind)
        ):
            raise InvalidDeclaration(
                f'"{column.name}" is {spark_type(kind)} and cannot be hashed',
                hint="Texts, whole numbers, decimals, dates and bytes can. Leave it out, or mask it by null.",
            )

        def enter(texts: pa.Array, _: Unsent) -> pa.Array:
            values = _typed(column, texts)
            if not kinds.is_binary(kind):
                values = values.cast(pa.string())
            encoded = values.dictionary_encode()
            return pa.array(map(self._digest, encoded.dictionary.to_pylist()), pa.string()).take(encoded.indices)

        return enter

    def _digest(self, value: str | bytes) -> str:
        given = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        return hmac.digest(self.secret, given, hashlib.sha256).hex()


def _typed(column: SourceColumn, texts: pa.Array) -> pa.Array:
    """Values as the log would have them: the same from backfill and stream."""
    read = column.read(texts, column.arrow, Losses())
    return read if read.type == column.arrow else read.cast(column.arrow)


def _redacted(texts: pa.Array, unsent: Unsent) -> pa.Array:
    there = texts.is_valid()
    if unsent is not None:  # a value that was not sent again is not null
        there = pc.or_(there, pa.array(unsent))
    return pc.if_else(there, pa.scalar(REDACTED), pa.scalar(None, pa.string()))


def at_door(rows: TextRows, shape: SourceTable) -> TextRows:
    """Rows as they may be kept. Of a column that is not taken there is nothing left."""
    if all(column.taken and column.enter is None for column in shape.columns):
        return rows
    columns = []
    for place, column in enumerate(shape.columns):
        values = rows.columns[place]
        if not column.taken:
            values = pa.nulls(len(rows), values.type)
        elif column.enter is not None:
            values = column.enter(values, rows.unchanged.get(place))
        columns.append(values)
    return replace(rows, columns=columns)
