"""Personal rows: what an erasure makes of a person's records.

What it is: ``PersonalRows``, the rules of one topic for one subject, and applying them to a batch of its rows. Topics
with copies of rows have the rules of the topic that these are of: dead letters, and rows that came too late for a view.
Invariants: a row of the person keeps all but its personal columns: these become null, or where the column takes no null
the empty value of its type (an empty text, zero). Where the topic's key is personal the record is removed whole. The
event time stays. Applying the rules twice is the same as once. The same rules hold for segments, for the state that
views keep of a topic, and for what a capture brings again, so that all of them agree.
Not here: whose rows these are (``erased_people.py``), writing (``segment_erasure.py``).
Read next: ``segment_erasure.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headwater.log.erasure.erased_people import Erased, Mask
from headwater.log.groups.dead_letters import SCHEMA as LETTERS

if TYPE_CHECKING:
    from headwater.log.contract import EventTopic

ERASED_REASON = "erased"
LATE = ".late"  # in the names of topics of late rows (views/event_time/late_rows.py)


@dataclass(frozen=True)
class PersonalRule:
    """The personal columns of a topic whose person one column names."""

    by: str
    columns: tuple[str, ...]
    removes: bool  # the key is among them: the record goes


@dataclass(frozen=True)
class ErasedBatch:
    """A batch after an erasure."""

    rows: pa.RecordBatch
    kept: Mask | None  # which rows of the batch are still there; None: all of them
    found: Mask  # which rows of the batch were the person's

    @property
    def count(self) -> int:
        """How many rows were the person's."""
        return int(self.found.sum())


class PersonalRows:
    """The rules of one topic for one subject.

    >>> import headwater as hw, tempfile
    >>> from headwater.log.table import declare_table
    >>> declared = {"id": hw.Personal("user_id"), "name": hw.Personal("user_id", by="id")}
    >>> topic = hw.Log(tempfile.mkdtemp()).topic("visits", "id BIGINT, name STRING, page STRING", privacy=declared)
    >>> from headwater.log.erasure.erased_people import ErasedPeople
    >>> people = ErasedPeople.of("user_id", "7", b"salt")
    >>> rows = pa.record_batch({"id": [7, 8], "name": ["Ada", "Bob"], "page": ["a", "b"]})
    >>> PersonalRows.of_topic(topic, "user_id").erase(rows, people).rows.to_pylist()
    [{'id': None, 'name': None, 'page': 'a'}, {'id': 8, 'name': 'Bob', 'page': 'b'}]
    """

    def __init__(
        self, rules: Sequence[PersonalRule], strict: Iterable[str] = (), letters_of: Sequence[str] = ()
    ) -> None:
        self.rules = tuple(rules)
        self.strict = frozenset(strict)  # columns that take no null
        self.letters_of = tuple(letters_of)  # of a topic of dead letters: the topics whose rows are in them

    @staticmethod
    def of_topic(topic: EventTopic, subject: str) -> PersonalRows | None:
        """What a topic's declaration says; None when nothing in it is of this subject."""
        settings, by = topic.settings, dict[str, list[str]]()
        for name, personal in topic.privacy.items():
            if personal.subject == subject:
                by.setdefault(personal.by or name, []).append(name)
        rules = [
            PersonalRule(
                column,
                tuple(name for name in names if name != settings.event_time),
                any(name in settings.key for name in names),
            )
            for column, names in by.items()
        ]
        strict = {field.name for field in topic.schema if not field.nullable}
        return PersonalRows(rules, strict) if rules else None

    def of_letters(self, topic: str) -> PersonalRows:
        """The same rules for dead letters of a topic."""
        return type(self)(self.rules, self.strict, (topic,))

    def of_copies(self, schema: pa.Schema) -> PersonalRows | None:
        """The same rules for a topic with copies of the rows; None when it has none of their columns."""
        rules = [
            replace(rule, columns=tuple(name for name in rule.columns if name in schema.names), removes=False)
            for rule in self.rules
            if rule.by in schema.names
        ]
        return type(self)(rules, (field.name for field in schema if not field.nullable)) if rules else None

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The columns that tell whose a row is."""
        return ("topic", "row") if self.letters_of else tuple(dict.fromkeys(rule.by for rule in self.rules))

    def found_in(self, batch: pa.RecordBatch, people: Erased) -> Mask:
        """Which rows are the people's."""
        if self.letters_of:
            return self._letters_found(batch, people)
        found = np.zeros(batch.num_rows, np.bool_)
        for rule in self.rules:
            if rule.by in batch.schema.names:
                found |= self._found_by(rule, batch, people)
        return found

    def erase(self, batch: pa.RecordBatch, people: Erased) -> ErasedBatch:
        """The batch without what is the people's."""
        found = self.found_in(batch, people)
        if not found.any():
            return ErasedBatch(batch, None, found)
        if self.letters_of:
            return ErasedBatch(self._letters_erased(batch, found, people), None, found)
        kept, columns = np.ones(batch.num_rows, np.bool_), dict(zip(batch.schema.names, batch.columns, strict=True))
        for rule in self.rules:
            if rule.by not in batch.schema.names:
                continue
            theirs = self._found_by(rule, batch, people)
            if rule.removes:
                kept &= ~theirs
            for name in rule.columns:
                if name in columns:
                    field = batch.schema.field(name)
                    columns[name] = _blanked(columns[name], theirs, empty=name in self.strict or not field.nullable)
        rows = pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)
        return ErasedBatch(rows, None, found) if kept.all() else ErasedBatch(rows.filter(pa.array(kept)), kept, found)

    def touched(self, batch: pa.RecordBatch, people: Erased) -> list[tuple[tuple[str, ...], Mask]]:
        """Which columns ``erase`` changes, each with the rows in which it does."""
        if self.letters_of:
            return [(("row", "reason"), self._letters_found(batch, people))]
        rules = [rule for rule in self.rules if rule.by in batch.schema.names]
        return [(rule.columns, self._found_by(rule, batch, people)) for rule in rules]

    def _found_by(self, rule: PersonalRule, batch: pa.RecordBatch, people: Erased) -> Mask:
        """Which rows have something in a rule's columns that is to go."""
        return people.found_in(batch.column(rule.by))

    def _named_by(self, rule: PersonalRule, values: Mapping[str, Any], people: Erased) -> bool:
        """The same of one row as JSON."""
        return people.has(values.get(rule.by))

    # Dead letters: rows as JSON

    def _letters_found(self, batch: pa.RecordBatch, people: Erased) -> Mask:
        letters = zip(batch.column("topic").to_pylist(), batch.column("row").to_pylist(), strict=True)
        return np.array([self._is_theirs(topic, row, people) for topic, row in letters], np.bool_)

    def _is_theirs(self, topic: str, row: str | None, people: Erased) -> bool:
        if topic not in self.letters_of or row is None:
            return False
        values = json.loads(row)
        return any(self._named_by(rule, values, people) for rule in self.rules)

    def _letters_erased(self, batch: pa.RecordBatch, found: Mask, people: Erased) -> pa.RecordBatch:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        rows = columns["row"].to_pylist()
        for place in np.flatnonzero(found).tolist():
            rows[place] = self.letter_row(rows[place], people)
        columns["row"] = pa.array(rows, batch.schema.field("row").type)
        if "reason" in columns:  # an error's text may quote the row
            reasons = columns["reason"].to_pylist()
            columns["reason"] = pa.array(
                [ERASED_REASON if theirs else reason for reason, theirs in zip(reasons, found.tolist(), strict=True)],
                batch.schema.field("reason").type,
            )
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)

    def letter_row(self, row: str, people: Erased) -> str:
        """The JSON of a letter's row without what is the people's."""
        values = json.loads(row)
        for rule in self.rules:
            if self._named_by(rule, values, people):
                values = {name: None if name in rule.columns else value for name, value in values.items()}
        return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def rows_of(topic: EventTopic, subject: str, every: Iterable[EventTopic]) -> list[PersonalRows]:
    """The rules of a topic for a subject: its own, or of the topics whose rows it has copies of; few or none."""
    return rules_with_copies(topic, lambda each: PersonalRows.of_topic(each, subject), every)


def rules_with_copies(
    topic: EventTopic, rules_of: Callable[[EventTopic], PersonalRows | None], every: Iterable[EventTopic]
) -> list[PersonalRows]:
    """The rules of a topic, or of the topics whose rows it has copies of; ``rules_of``: a topic's own."""
    own = rules_of(topic)
    if own is not None:
        return [own]
    found: list[PersonalRows] = []
    letters = topic.schema.names == LETTERS.names and topic.name.endswith(".dead")
    late = topic.name.endswith(LATE) or f"{LATE}." in topic.name
    for other in every if letters or late else ():
        rules = rules_of(other)
        if rules is None:
            continue
        if letters and topic.name.startswith(f"{other.name}."):
            found.append(rules.of_letters(other.name))
        elif late and set(other.schema.names) <= set(topic.schema.names):
            copies = rules.of_copies(topic.schema)
            found += [copies] if copies is not None else []
    return found


def _blanked(column: pa.Array, theirs: Mask, *, empty: bool) -> pa.Array:
    blank = pa.nulls(1, column.type) if not empty else empty_value(column.type)
    # ``take`` serves nested types too, which ``if_else`` does not.
    both = pa.concat_arrays([column, blank])
    places = np.where(theirs, len(column), np.arange(len(column)))
    return both.take(pa.array(places))


def empty_value(kind: pa.DataType) -> pa.Array:
    """One value that says nothing, for a column that takes no null.

    >>> empty_value(pa.string()).to_pylist(), empty_value(pa.int64()).to_pylist(), empty_value(pa.bool_()).to_pylist()
    ([''], [0], [False])
    """
    value: Any = 0
    if pa.types.is_struct(kind):
        value = {}
    elif pa.types.is_nested(kind):
        value = []
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        value = ""
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        value = b""
    elif pa.types.is_fixed_size_binary(kind):
        value = bytes(kind.byte_width)
    elif pa.types.is_boolean(kind):
        value = False
    elif pa.types.is_temporal(kind):
        return pa.array([0], pa.int64() if kind.bit_width == 64 else pa.int32()).view(kind)
    return pa.array([value], kind)
