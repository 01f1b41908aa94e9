"""Expired rows: rows that are older than the purposes of some of their columns.

What it is: ``ExpiredRows``, up to which event time each purpose has ended, as an erasure takes it in place of persons;
``ExpiringColumns``, what that makes of the rows of one topic.
Invariants: a column goes from a row when every purpose of it has ended for the row's event time; it is blanked as an
erasure does, and the row stays. A row whose columns are blank is not found again.
Not here: declared purposes (``purposes.py``), writing (``segment_erasure.py``).
Read next: ``log_expiry.py``.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.clock import to_us
from headwater.log.erasure.erased_people import Erased, Mask
from headwater.log.erasure.personal_rows import PersonalRows, PersonalRule, empty_value

if TYPE_CHECKING:
    from headwater.log.contract import EventTopic
    from headwater.log.erasure.purposes import Purpose

TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class ExpiringRule(PersonalRule):
    """Columns that go from rows whose event time, in ``by``, is before a time."""

    before_us: int = 0


@dataclass(frozen=True)
class ExpiredRows:
    """Up to which event time purposes have ended: {purpose: microseconds}. ``topics``: only these; None: all.

    >>> import headwater as hw, tempfile
    >>> address = hw.Personal("user_id", by="user_id", purpose=["shipping", "returns"])
    >>> privacy = {"user_id": hw.Personal("user_id"), "address": address}
    >>> schema = "user_id BIGINT, address STRING, at TIMESTAMP_NTZ"
    >>> topic = hw.Log(tempfile.mkdtemp()).topic("orders", schema, event_time="at", privacy=privacy)
    >>> ExpiredRows({"shipping": 10}).rules_of(topic) is None  # the other purpose holds it
    True
    >>> expired = ExpiredRows({"shipping": 10, "returns": 5})
    >>> times = pa.array([4, 5], pa.timestamp("us"))
    >>> rows = pa.record_batch({"user_id": [1, 2], "address": ["a", "b"], "at": times})
    >>> expired.rules_of(topic).erase(rows, expired).rows.column("address").to_pylist()
    [None, 'b']
    """

    before_us: Mapping[str, int]
    topics: frozenset[str] | None = None

    @staticmethod
    def at(now_us: int, purposes: Iterable[Purpose]) -> ExpiredRows:
        """What is too old at a time."""
        return ExpiredRows({each.name: now_us - each.keep_us for each in purposes if each.keep_us is not None})

    def with_topics(self, names: Iterable[str] | None) -> ExpiredRows:
        """The same for these topics, besides those that it is for."""
        both = None if names is None else frozenset(names) | (self.topics or frozenset())
        return ExpiredRows(self.before_us, both)

    def rules_of(self, topic: EventTopic) -> PersonalRows | None:
        """Which columns of a topic have ended, and when."""
        time = topic.settings.event_time
        if time is None or (self.topics is not None and topic.name not in self.topics):
            return None
        by_end: dict[int, list[str]] = {}
        for name, personal in topic.privacy.items():
            ends = [self.before_us.get(purpose) for purpose in personal.purposes]
            known = [end for end in ends if end is not None]
            if known and len(known) == len(ends) and name not in (*topic.settings.routed_by, time):
                by_end.setdefault(min(known), []).append(name)
        rules = [ExpiringRule(time, tuple(names), removes=False, before_us=end) for end, names in by_end.items()]
        strict = {field.name for field in topic.schema if not field.nullable}
        return ExpiringColumns(rules, strict) if rules else None

    # No row is meant by one value alone.

    def has(self, value: Any) -> bool:  # noqa: ARG002
        """False: how old a row is, is asked with its columns."""
        return False

    def found_in(self, column: pa.Array | pa.ChunkedArray) -> Mask:
        """No row, for the same reason."""
        return np.zeros(len(column), np.bool_)

    def to_json(self) -> str:
        """The text that is kept.

        >>> expired = ExpiredRows({"shipping": 10}, frozenset({"orders"}))
        >>> ExpiredRows.from_json(expired.to_json()) == expired
        True
        """
        topics = None if self.topics is None else sorted(self.topics)
        return json.dumps({"before_us": dict(self.before_us), "topics": topics})

    @staticmethod
    def from_json(text: str) -> ExpiredRows:
        """What ``to_json`` wrote."""
        values = json.loads(text)
        topics = values["topics"]
        return ExpiredRows(values["before_us"], None if topics is None else frozenset(topics))


class ExpiringColumns(PersonalRows):
    """What has ended in the rows of one topic. Its rules are ``ExpiringRule``s, which know the time."""

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The columns that tell which rows still have something that has ended."""
        if self.letters_of:
            return super().read_columns
        return tuple(dict.fromkeys(name for rule in self.rules for name in (rule.by, *rule.columns)))

    def _found_by(self, rule: PersonalRule, batch: pa.RecordBatch, people: Erased) -> Mask:  # noqa: ARG002
        assert isinstance(rule, ExpiringRule)
        times = batch.column(rule.by).cast(TIME)
        older = pc.fill_null(pc.less(times, pa.scalar(rule.before_us, TIME)), False).to_numpy(zero_copy_only=False)
        if not older.any():
            return np.asarray(older, np.bool_)
        filled = np.zeros(batch.num_rows, np.bool_)
        for name in rule.columns:
            if name in batch.schema.names:
                strict = name in self.strict or not batch.schema.field(name).nullable
                filled |= _filled(batch.column(name), strict=strict)
        return np.asarray(older & filled, np.bool_)

    def _named_by(self, rule: PersonalRule, values: Mapping[str, Any], people: Erased) -> bool:  # noqa: ARG002
        assert isinstance(rule, ExpiringRule)
        time = values.get(rule.by)
        if not isinstance(time, str) or all(values.get(name) is None for name in rule.columns):
            return False
        moment = dt.datetime.fromisoformat(time)
        return to_us(moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)) < rule.before_us


def _filled(column: pa.Array, *, strict: bool) -> Mask:
    """Which values are not what blanking leaves."""
    there = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    if not strict:
        return there
    empty = empty_value(column.type)[0]
    try:
        return np.asarray(
            there & ~pc.fill_null(pc.equal(column, empty), False).to_numpy(zero_copy_only=False), np.bool_
        )
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # nested: by the values
        blank = empty.as_py()
        return there & np.array([value != blank for value in column.to_pylist()], np.bool_)
