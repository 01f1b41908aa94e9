"""Versions: how far each stream or key of a partition has got, for conditional appends.

What it is: ``ValueVersions``, kept in memory by a process that appends with conditions, and read from the log when it
is first needed; ``AppendCondition``, what an append expects.
Invariants: a condition is checked under the partition's lock, on all rows that are in the partition then, so of two
writers with the same expectation one is refused. The version of a stream (``ordered_by``) is the number of its rows;
that of a table's row is the offset after its last record, and 0 when there is none or it was deleted.
Not here: the append (``log/storage/partition_writer.py``). Read next: ``log/topic_appender.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import InvalidDeclaration, Misuse, VersionConflict

if TYPE_CHECKING:
    from headwater.log.topic import Topic

Value = tuple[Any, ...]
Expected = int | str  # a version, "none" or "exists"
ExpectedVersions = Mapping[Value, int]  # of each value its own version


@dataclass(frozen=True)
class AppendCondition:
    """What an append to one partition expects of the values that its rows have."""

    versions: ValueVersions
    values: Sequence[Value]
    expected: Expected | ExpectedVersions

    def check(self, end: int) -> None:
        """Raise ``VersionConflict`` unless it holds for the rows before ``end``, which is the partition's end."""
        self.versions.catch_up(end)
        for value in self.values:
            version = self.versions.of(value)
            expected = self.expected[value] if isinstance(self.expected, Mapping) else self.expected
            held = version > 0 if expected == "exists" else version == (0 if expected == "none" else expected)
            if not held:
                raise self.versions.conflict(value, expected, version)

    def took(self, end: int, rows: int) -> None:
        """Note that the append was written, so that its rows are not read back; the partition's lock is still held."""
        if len(self.values) == 1:
            self.versions.took(self.values[0], end, rows)


def check_expected(expected: Expected) -> Expected:
    """Refuse what cannot be expected.

    >>> check_expected("always")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: expected cannot be 'always'
      Hint: Use a version, "none" or "exists".
    """
    plain = isinstance(expected, int) and not isinstance(expected, bool) and expected >= 0
    if not plain and expected not in ("none", "exists"):
        raise InvalidDeclaration(f"expected cannot be {expected!r}", hint='Use a version, "none" or "exists".')
    return expected


class ValueVersions:
    """The versions of one partition. The caller holds the partition's lock, or asks for what may be old at once."""

    def __init__(self, topic: Topic, number: int) -> None:
        self._topic = topic
        self._number = number
        self._columns = topic.settings.routed_by
        self._position = 0
        self._versions: dict[Value, int] = {}
        self._reader = topic.new_reader(number)  # reading through the topic would take the locks of other partitions

    def of(self, value: Value) -> int:
        """The version of a stream or key, 0 for one that is not there."""
        return self._versions.get(value, 0)

    def catch_up(self, end: int) -> None:
        """Read the rows up to the partition's end."""
        if self._position >= end:
            return
        topic, keyed = self._topic, bool(self._topic.settings.key)
        start = self._reader.start_offset()
        if start > self._position:
            if not keyed:
                raise Misuse(
                    f'topic "{topic.name}" has lost rows to retention, so versions of its streams are not known',
                    hint="Declare a topic for conditional appends without retention.",
                    topic=topic.name,
                )
            self._position = start
        columns = [*self._columns, "_offset", *(["_deleted"] if keyed else [])]
        for batch in self._reader.read(self._position, end, columns):
            self._take(batch.data, keyed=keyed)
        self._position = end

    def took(self, value: Value, end: int, rows: int) -> None:
        """Count rows of one value that were written up to the partition's ``end``."""
        if self._position == end - rows:
            keyed = bool(self._topic.settings.key)
            self._versions[value] = end if keyed else self._versions.get(value, 0) + rows
            self._position = end

    def _take(self, rows: pa.RecordBatch, *, keyed: bool) -> None:
        values = values_of(rows, self._columns)
        versions = self._versions
        if not keyed:
            for value in values:
                versions[value] = versions.get(value, 0) + 1
            return
        offsets, deleted = rows.column("_offset").to_pylist(), rows.column("_deleted").to_pylist()
        for value, offset, gone in zip(values, offsets, deleted, strict=True):
            if gone:
                versions.pop(value, None)
            else:
                versions[value] = offset + 1

    def conflict(self, value: Value, expected: Expected, version: int) -> VersionConflict:
        """The error of an expectation that does not hold."""
        named = ", ".join(f"{column}={part!r}" for column, part in zip(self._columns, value, strict=True))
        now = f"has version {version}" if version else "is not there"
        return VersionConflict(
            f'{named} of "{self._topic.name}" {now}; expected was {expected!r}',
            detail="Another writer came first. Nothing was written.",
            hint="Read it again, decide again, and append with the version that you have seen.",
            topic=self._topic.name,
            value=list(value),
            version=version,
            expected=expected,
        )


def values_of(rows: pa.RecordBatch, columns: Sequence[str]) -> list[Value]:
    """The values of these columns, row by row."""
    return list(zip(*(rows.column(name).to_pylist() for name in columns), strict=True))
