"""Undo: inverse events for what somebody wrote in a span of time.

What it is: ``undo`` finds the changes of tables that a producer or an actor appended between two moments, and appends
what takes them back: for a key the row that it had before the first of them, or a tombstone; for a table without a key
the opposite weight.
Invariants: the log is only appended to, by one transaction. Its request id is made of what was asked, so that a
repeated undo is recognised; its rows have that id as ``_causation_id``. A key that somebody else changed afterwards
is a conflict and stays, unless forced. A key that changes between the look and the commit refuses all of it. The row
before is never guessed: where retention or compaction may have taken it, that is a conflict that cannot be forced.
Not here: which rows of a log are equal (``log/schema/row_identity.py``); the commit (``log/commits/transaction.py``).
Read next: ``docs/why.md``, ``log/table.py``.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.clock import to_us
from headwater.errors import Misuse, UndoRefused
from headwater.hints import suggestion
from headwater.log.commits.request_ids import HOME
from headwater.log.commits.value_versions import values_of
from headwater.log.multiset import Multiset
from headwater.log.schema.event_metadata import METADATA_COLUMNS, Metadata
from headwater.log.schema.normalization import WEIGHT
from headwater.log.schema.row_conversion import to_rows
from headwater.log.schema.row_identity import row_identities
from headwater.log.table import Table
from headwater.log.token import Token

if TYPE_CHECKING:
    from headwater.log.home import Log
    from headwater.log.topic import Topic

MARKS = ("_offset", "_appended_at", "_producer", *METADATA_COLUMNS)
Value = tuple[Any, ...]


@dataclass(frozen=True)
class UndoScope:
    """Whose changes are undone, and of when."""

    since: dt.datetime
    until: dt.datetime
    producer: str | None = None
    actor: str | None = None

    def id(self, topics: Sequence[str]) -> str:
        """The id of the undo: the same for the same question."""
        said = [sorted(topics), self.producer, self.actor, to_us(self.since), to_us(self.until)]
        return f"undo-{hashlib.sha256(json.dumps(said).encode()).hexdigest()[:20]}"


@dataclass(frozen=True)
class UndoChange:
    """One inverse event."""

    topic: str
    action: str  # upsert, delete or insert
    row: dict[str, Any]  # of a delete by key: the key
    events: int  # that it takes back
    first: str  # the place of the first of them: users[0]@17

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return dict(vars(self))


@dataclass(frozen=True)
class UndoConflict:
    """Changes that are left as they are."""

    topic: str
    row: dict[str, Any]  # the key; of a table without one the row
    reason: str
    first: str

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return dict(vars(self))


@dataclass(frozen=True)
class UndoReport:
    """What an undo has written, or would write."""

    id: str
    events: int  # that are in its scope
    changes: tuple[UndoChange, ...] = ()
    conflicts: tuple[UndoConflict, ...] = ()
    dry_run: bool = False
    token: Token | None = None
    repeated: bool = False  # it was done before

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            **vars(self),
            "changes": [change.to_dict() for change in self.changes],
            "conflicts": [conflict.to_dict() for conflict in self.conflicts],
            "token": None if self.token is None else str(self.token),
        }


@dataclass
class _KeyHistory:
    """What the log says of one key."""

    key: dict[str, Any]
    value: Value
    partition: int
    first: int
    events: int = 0
    before: dict[str, Any] | None = None  # the row before the first change; None: there was none
    before_offset: int = -1
    other: str = ""  # who changed it afterwards
    last: int = 0  # the offset of its last record
    deleted: bool = False  # by its last record
    done: bool = False  # this undo has restored it


@dataclass(frozen=True)
class _MissingRecords:
    """Which records of a partition are not there any more."""

    start: int  # retention has taken those before
    gaps: tuple[int, ...]  # compaction has taken some just before each of these offsets
    sealed: int  # compaction looks at records up to here, and leaves the last one of each key

    def may_hold_the_row_before(self, each: _KeyHistory) -> bool:
        """Whether the row before a key's first change may have been among them."""
        if each.before_offset < 0 and self.start > 0:
            return True
        return each.first < self.sealed and any(each.before_offset < gap <= each.first for gap in self.gaps)


@dataclass
class _Plan:
    """What an undo of one topic writes."""

    topic: Topic
    events: int = 0
    changes: list[UndoChange] = field(default_factory=list)
    conflicts: list[UndoConflict] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)  # upserted or inserted
    keys: list[dict[str, Any]] = field(default_factory=list)  # deleted
    versions: dict[Value, int] = field(default_factory=dict)


def undo(
    log: Log,
    topics: Sequence[str],
    scope: UndoScope,
    *,
    force: bool = False,
    dry_run: bool = False,
    by: str | None = None,
) -> UndoReport:
    """Take back what a producer or an actor changed in some tables; see ``App.undo``."""
    _check(log, topics, scope)
    found = [log.get_topic(name) for name in dict.fromkeys(topics)]
    for topic in found:
        _refuse(topic)
    undo_id = scope.id([topic.name for topic in found])
    request_id = f"{undo_id}-forced" if force else undo_id  # it may follow one that was not
    known = _known(log, request_id)
    if known is not None:
        return UndoReport(undo_id, 0, token=known, repeated=True)
    plans = [_planned(topic, scope, undo_id, force=force) for topic in found]
    told = UndoReport(
        undo_id,
        sum(plan.events for plan in plans),
        tuple(change for plan in plans for change in plan.changes),
        tuple(conflict for plan in plans for conflict in plan.conflicts),
        dry_run,
    )
    if dry_run or not told.changes:
        return told
    with log.transaction(request_id=request_id, metadata=Metadata(actor=by, causation_id=undo_id)) as t:
        for plan in plans:
            _write(t, plan)
    return UndoReport(undo_id, told.events, told.changes, told.conflicts, token=t.token, repeated=t.token.repeated)


def _check(log: Log, topics: Sequence[str], scope: UndoScope) -> None:
    if not topics:
        raise Misuse("an undo names the tables that it is about", hint="Give one or more names.")
    if scope.producer is None and scope.actor is None:
        raise Misuse(
            "an undo is about somebody's changes",
            hint="Give a producer or an actor: headwater undo users --producer importer --from … --to …",
        )
    if scope.since >= scope.until:
        raise Misuse(f"the time from {scope.since} to {scope.until} is empty", hint="Give the earlier moment first.")
    if scope.producer is not None:
        names = {name for topic in topics for name in log.get_topic(topic).producer_names().values()}
        if scope.producer not in names:
            raise Misuse(
                f'no producer "{scope.producer}" has written to {", ".join(topics)}',
                hint=suggestion(scope.producer, sorted(names)),
                producer=scope.producer,
            )


def _refuse(topic: Topic) -> None:
    if topic.settings.captured_by is not None:
        raise UndoRefused(
            f'table "{topic.name}" follows another database, by the capture "{topic.settings.captured_by}"',
            hint="Undo it there: the capture brings what changes.",
            topic=topic.name,
        )
    if not topic.settings.key and not topic.row().is_multiset:
        raise UndoRefused(
            f'topic "{topic.name}" has no key: its rows are events, and no other event takes one back by itself',
            hint="Append events that say so, as your views read them (an amount of the opposite sign, a type "
            '"cancelled"), or keep such rows in a table: app.table.',
            topic=topic.name,
        )


def _known(log: Log, request_id: str) -> Token | None:
    rows = log.catalog.read("SELECT token FROM request_ids WHERE scope = ? AND id = ?", (HOME, request_id))
    return Token(Token.parse(rows[0]["token"]).frontier, repeated=True) if rows else None


def _planned(topic: Topic, scope: UndoScope, undo_id: str, *, force: bool) -> _Plan:
    return (_of_keys if topic.settings.key else _of_rows)(topic, scope, undo_id, force=force)


# Finding


def _selected(topic: Topic, batch: pa.RecordBatch, scope: UndoScope) -> pa.Array:
    """Which records of a batch are in the scope."""
    times = batch.column("_appended_at").cast(pa.int64())
    mask = pc.and_(pc.greater_equal(times, to_us(scope.since)), pc.less(times, to_us(scope.until)))
    if scope.producer is not None:
        numbers = [number for number, name in topic.producer_names().items() if name == scope.producer]
        mask = pc.and_(mask, pc.is_in(batch.column("_producer"), pa.array(numbers, pa.int64())))
    if scope.actor is not None:
        mask = pc.and_(mask, pc.equal(batch.column("_actor"), scope.actor))
    return pc.fill_null(mask, False)


def _batches(topic: Topic, partition: int, stop: int, columns: Iterable[str]) -> Iterator[pa.RecordBatch]:
    start = topic.start_offsets()[partition]
    for batch in topic.read_partition(partition, start, stop=stop, columns=list(columns)):
        if batch.num_rows:
            yield batch.data


# Tables with a key


def _of_keys(topic: Topic, scope: UndoScope, undo_id: str, *, force: bool) -> _Plan:
    plan = _Plan(topic)
    for partition, stop in sorted(topic.end_offsets().items()):
        histories = _touched(topic, partition, stop, scope)
        if not histories:
            continue
        missing = _read_histories(topic, partition, stop, scope, histories, undo_id)
        for each in histories.values():
            plan.events += each.events
            _decide(plan, each, missing, force=force)
    return plan


def _touched(topic: Topic, partition: int, stop: int, scope: UndoScope) -> dict[bytes, _KeyHistory]:
    """The keys that changes in the scope are about."""
    key = list(topic.settings.key)
    found: dict[bytes, _KeyHistory] = {}
    for batch in _batches(topic, partition, stop, [*key, *MARKS]):
        mask = _selected(topic, batch, scope)
        if not pc.any(mask).as_py():
            continue
        some = batch.filter(mask)
        keys = some.select(key)
        offsets = some.column("_offset").to_pylist()
        for identity, row, value, offset in zip(
            row_identities(keys), to_rows(keys), values_of(keys, key), offsets, strict=True
        ):
            known = found.setdefault(identity, _KeyHistory(row, value, partition, offset))
            known.events += 1
    return found


def _read_histories(
    topic: Topic, partition: int, stop: int, scope: UndoScope, histories: Mapping[bytes, _KeyHistory], undo_id: str
) -> _MissingRecords:
    """Fill the histories; returns which records of the partition are gone."""
    key, own = list(topic.settings.key), list(topic.schema.names)
    producers = topic.producer_names()
    start = topic.start_offsets()[partition]
    gaps: list[int] = []
    following = start
    for batch in _batches(topic, partition, stop, [*own, "_deleted", *MARKS]):
        offsets = batch.column("_offset").to_pylist()
        for offset in offsets:
            if offset != following:
                gaps.append(offset)
            following = offset + 1
        places = [
            (place, identity)
            for place, identity in enumerate(row_identities(batch.select(key)))
            if identity in histories
        ]
        if not places:
            continue
        mask = _selected(topic, batch, scope).to_pylist()
        rows = to_rows(batch.take(pa.array([place for place, _ in places])))
        for (place, identity), row in zip(places, rows, strict=True):
            each = histories[identity]
            offset, gone = offsets[place], bool(row["_deleted"])
            if offset < each.first:
                each.before = None if gone else {name: row[name] for name in own}
                each.before_offset = offset
            elif not mask[place]:
                each.done = row["_causation_id"] == undo_id
                each.other = "" if each.done else _who(topic, partition, offset, row, producers)
            else:
                each.done = False
            each.last, each.deleted = offset, gone
    sealed = [file.segment.next_offset for file in topic.files({partition: start}, {partition: stop}).files]
    return _MissingRecords(start, tuple(gaps), max(sealed, default=0))


def _who(topic: Topic, partition: int, offset: int, row: Mapping[str, Any], producers: Mapping[int, str]) -> str:
    said = [("producer", producers.get(row["_producer"])), ("actor", row["_actor"])]
    by = " and ".join(f'{name} "{value}"' for name, value in said if value is not None)
    return f"changed since, at {topic.name}[{partition}]@{offset}" + (f" by {by}" if by else "")


def _decide(plan: _Plan, each: _KeyHistory, missing: _MissingRecords, *, force: bool) -> None:
    topic = plan.topic
    first = f"{topic.name}[{each.partition}]@{each.first}"
    if each.done:
        return
    if missing.may_hold_the_row_before(each):
        reason = "the row before it is not in the log any more: retention or compaction has taken it"
        plan.conflicts.append(UndoConflict(topic.name, each.key, reason, first))
        return
    if each.other and not force:
        plan.conflicts.append(UndoConflict(topic.name, each.key, each.other, first))
        return
    if each.before is None and each.deleted:
        return  # there was none, and there is none
    plan.versions[each.value] = 0 if each.deleted else each.last + 1
    if each.before is not None:
        plan.rows.append(each.before)
        plan.changes.append(UndoChange(topic.name, "upsert", each.before, each.events, first))
    else:
        plan.keys.append(each.key)
        plan.changes.append(UndoChange(topic.name, "delete", each.key, each.events, first))


# Tables without a key


def _of_rows(topic: Topic, scope: UndoScope, undo_id: str, *, force: bool) -> _Plan:
    plan = _Plan(topic)
    names = [name for name in topic.schema.names if name != WEIGHT]
    weights: Counter[bytes] = Counter()
    rows: dict[bytes, dict[str, Any]] = {}
    firsts: dict[bytes, str] = {}
    events: Counter[bytes] = Counter()
    for partition, stop in sorted(topic.end_offsets().items()):
        for batch in _batches(topic, partition, stop, [*names, WEIGHT, *MARKS]):
            some = batch.filter(_selected(topic, batch, scope))
            undone = pc.equal(batch.column("_causation_id"), undo_id)
            for part, sign in ((some, 1), (batch.filter(pc.fill_null(undone, False)), 0)):
                listed = zip(
                    row_identities(part.select(names)),
                    to_rows(part.select([*names, WEIGHT])),
                    part.column("_offset").to_pylist(),
                    strict=True,
                )
                for identity, row, offset in listed:
                    weight = row.pop(WEIGHT)
                    weights[identity] += weight  # what this undo wrote before counts against it
                    rows[identity] = row
                    if sign:
                        events[identity] += 1
                        firsts.setdefault(identity, f"{topic.name}[{partition}]@{offset}")
    plan.events = sum(events.values())
    _balance(plan, weights, rows, firsts, events, force=force)
    return plan


def _balance(
    plan: _Plan,
    weights: Mapping[bytes, int],
    rows: Mapping[bytes, dict[str, Any]],
    firsts: Mapping[bytes, str],
    events: Mapping[bytes, int],
    *,
    force: bool,
) -> None:
    """Turn the weights that were added into the rows to be taken away, as far as they are there."""
    topic = plan.topic
    there = Multiset(topic)
    there.catch_up()
    for identity, weight in weights.items():
        row, first = rows[identity], firsts.get(identity, "")
        if weight < 0:
            plan.rows += [row] * -weight
            plan.changes.append(UndoChange(topic.name, "insert", row, events[identity], first))
            continue
        count = min(weight, there.count(identity))
        if count < weight:
            reason = f"{weight - count} of {weight} equal rows are not there any more: somebody has deleted them"
            plan.conflicts.append(UndoConflict(topic.name, row, reason, first))
            if not force:
                continue
        if count:
            plan.keys += [row] * count
            plan.changes.append(UndoChange(topic.name, "delete", row, events[identity], first))


# Writing


def _write(t: Any, plan: _Plan) -> None:
    topic, table = plan.topic, Table(plan.topic)
    if table.is_multiset:
        if plan.rows:
            t.insert(table, plan.rows)
        if plan.keys:
            t.delete(table, plan.keys)
        return
    if plan.rows:
        t.append_batch(topic, table.upserts(plan.rows), versions=plan.versions)
    if plan.keys:
        t.append_batch(topic, table.deletes(plan.keys), deleted=True, versions=plan.versions)
