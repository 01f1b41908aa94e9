"""Large values: unchanged values that an update does not send.

What it is: PostgreSQL stores large values outside their row (TOAST); an update that does not change such a value sends
a mark in its place. ``LargeValues`` remembers them by key and fills them in.
Invariants: values are stored after the rows are durable in their topic and before the marker, so they are never ahead
of a row that needs an older value. A crash between may leave older ones: at the start, those of rows that no marker
covers are noted from the topic (``TableFollower.note_unmarked``). A missing value is looked up there: slow, and exact.
Not here: storage of the values (``capture_state.py``). Read next: ``change_writer.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.capture.capture_state import CaptureState
from headwater.capture.database import SourceTable
from headwater.capture.text_rows import TextRows

# A row of more than some 2000 bytes has its large values moved out, down to those of 24 bytes. Sizes are estimated
# from texts, so we begin earlier.
ROW_BYTES_MIN = 1400
VALUE_BYTES_MIN = 24


class LargeValues:
    """The large values of one table."""

    def __init__(self, table: str, state: CaptureState) -> None:
        self.table = table
        self.state = state
        self._fresh: dict[tuple[bytes, str], str | None] = {}  # since the last save

    def fill(self, rows: TextRows, shape: SourceTable) -> tuple[TextRows, list[tuple[int, int, int]]]:
        """The rows with all known values filled in, and the places (row, column, row of the key) of unknown ones."""
        if not shape.has_large:
            return rows, []
        lists: dict[int, list[Any]] = {place: rows.columns[place].to_pylist() for place in rows.unchanged}
        missing: list[tuple[int, int, int]] = []
        large = large_rows(rows, shape)
        touched = large | rows.gone
        for absent in rows.unchanged.values():
            touched |= absent
        places = np.nonzero(touched)[0].tolist()
        if not places:
            return rows, []
        keys = keys_of(rows, shape, [*places, *(place - 1 for place in rows.moved)]) if shape.key else {}
        weighty = [place for place, column in enumerate(shape.columns) if column.weight]
        for row in places:
            if rows.gone[row]:
                continue
            for column in weighty:
                name = shape.columns[column].name
                mask = rows.unchanged.get(column)
                if mask is not None and mask[row]:
                    known = self._find(rows, lists, row, column, keys, name)
                    if known is None:
                        missing.append((row, column, row - 1 if row in rows.moved else row))
                        continue
                    lists[column][row] = known
                    if row in rows.moved and shape.key:
                        self._fresh[keys[row], name] = known
                elif large[row] and shape.key:
                    text = rows.columns[column][row].as_py()
                    if text is not None and len(text) > VALUE_BYTES_MIN:
                        self._fresh[keys[row], name] = text
        columns = [
            pa.array(lists[place], pa.string()) if place in lists else column
            for place, column in enumerate(rows.columns)
        ]
        return rows.with_columns(columns), missing

    def _find(
        self, rows: TextRows, lists: dict[int, list[Any]], row: int, column: int, keys: dict[int, bytes], name: str
    ) -> str | None:
        if row in rows.moved:
            before: str | None = lists[column][row - 1]  # REPLICA IDENTITY FULL sends the old row whole
            if before is not None:
                return before
        key = keys.get(row - 1 if row in rows.moved else row)
        if key is None:
            return None
        if (key, name) in self._fresh:
            return self._fresh[key, name]
        return self.state.large_value(self.table, key, name)

    def note(self, rows: TextRows, shape: SourceTable) -> None:
        """Remember the large values of appended rows."""
        if shape.has_large and shape.key:
            self.fill(rows, shape)

    def remember(self, keys: Sequence[bytes], column: str, values: Sequence[str | None]) -> None:
        """Remember values of a column, each of the key at its place."""
        self._fresh.update(((key, column), value) for key, value in zip(keys, values, strict=True) if value is not None)

    def save(self) -> None:
        """Store the values since the last call. The caller has made the rows durable."""
        if self._fresh:
            self.state.save_large_values(self.table, self._fresh)
            self._fresh = {}


def large_rows(rows: TextRows, shape: SourceTable) -> Any:
    """The rows that may have values stored outside the row."""
    size = np.full(len(rows), 8 * len(shape.columns), np.int64)
    for texts, column in zip(rows.columns, shape.columns, strict=True):
        if column.weight:
            lengths = pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False)
            size += column.weight * lengths
    return size >= ROW_BYTES_MIN


def keys_of(rows: TextRows, shape: SourceTable, places: list[int]) -> dict[int, bytes]:
    """The bytes of some rows' keys."""
    wanted = sorted(set(places))
    columns = [rows.columns[place].take(pa.array(wanted)) for place in shape.key_places]
    return dict(zip(wanted, key_bytes(columns), strict=True))


def key_bytes(columns: Sequence[pa.Array]) -> list[bytes]:
    """The bytes of each key, from its columns.

    >>> key_bytes([pa.array([7])]) == key_bytes([pa.array(["7"])])
    True
    """
    # As text: the backfill has numbers where the stream has their texts.
    texts = [column.cast(pa.string()).to_pylist() for column in columns]
    return [repr(key).encode() for key in zip(*texts, strict=True)]
