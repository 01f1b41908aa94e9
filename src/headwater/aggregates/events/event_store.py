"""Event store: a history of events that is appended to under conditions, read by query, and followed.

What it is: ``EventStore``, over one topic of the log; made by ``app.event_store`` and used by aggregates.
Invariants: an append is whole, and its condition (the version of a stream, a query that must find nothing) is checked
under the partition's lock, so it is exact over processes. Positions of a partition have no gaps and are seen in order:
a reader never passes over an event that is committed later. Events are never removed.
Not here: rules and commands (``aggregates/aggregate_repository.py``).
Read next: ``event_condition.py``, ``event_index.py``; ``docs/aggregates.md``.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater.aggregates.events.event_condition import EventCondition, RequestKnown
from headwater.aggregates.events.event_index import EventIndex
from headwater.aggregates.events.event_query import Query
from headwater.aggregates.events.event_rows import EventDraft, EventRows, personal_events
from headwater.aggregates.events.event_types import Event, EventType, RecordedEvent
from headwater.durations import Duration, to_seconds
from headwater.errors import InvalidDeclaration, Misuse, RequestConflict, VersionConflict
from headwater.log.commits.request_ids import check_id
from headwater.log.contract import Capability, EventLog, EventTopic, EventTransaction, require
from headwater.log.schema.event_metadata import Metadata, with_metadata
from headwater.log.storage import routing
from headwater.log.storage.framing import StoredRow
from headwater.log.token import Token

EVENTS_AT_ONCE = 4_096  # of a stream that is read from end to end
ATTEMPTS_MAX = 100  # of an append without an expected version, each of which another writer came before
EVERYTHING = Query()
WAIT_S = 60.0  # a subscriber without a time-out looks at this interval, even if it is not woken
Given = Event | tuple[str, Mapping[str, Any]] | Any  # the last: an instance of a declared dataclass


@dataclass(frozen=True)
class AppendedEvents:
    """What an append has written: where its events end, and the token that views are asked with.

    >>> AppendedEvents(2, 1, Token({"bookings": {0: 2}})).position
    2
    """

    position: int
    version: int | None
    token: Token
    repeated: bool = False


@dataclass
class FoundEvents:
    """The events that a query finds, and ``head``, the position up to which it has looked.

    ``head`` is what ``append(…, after=head)`` takes: nothing that matters may have come since.

    >>> found = FoundEvents([], 3)
    >>> len(found), found.head
    (0, 3)
    """

    events: list[RecordedEvent]
    head: int

    def __iter__(self) -> Iterator[RecordedEvent]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)


class EventStore:
    """Events of declared types, with tags; made by ``app.event_store``.

    >>> import headwater as hw, tempfile
    >>> from headwater.aggregates import Event, Query
    >>> app = hw.App("school", home=tempfile.mkdtemp())
    >>> store = app.event_store("courses", {"enrolled": "course BIGINT, student STRING"})
    >>> full = Query(types="enrolled", tags="course:7")
    >>> seen = store.read(full)  # nobody yet
    >>> ada = Event("enrolled", {"course": 7, "student": "ada"}, tags=["course:7", "student:ada"])
    >>> store.append([ada], fail_if=full, after=seen.head).position
    1
    >>> store.append([ada], fail_if=full, after=seen.head)
    Traceback (most recent call last):
        ...
    headwater.errors.AppendConflict: "courses" has an event that the append must not find: enrolled with course:7, \
at position 1
      It came after position 0. Nothing was written.
      Hint: Read again, decide again, and append with after= the head that you have read.
    >>> [(event.type, event.data, event.position) for event in store.read(Query(tags="student:ada"))]
    [('enrolled', {'course': 7, 'student': 'ada'}, 1)]
    """

    def __init__(self, log: EventLog, name: str, types: Iterable[EventType], **options: Any) -> None:
        require(log, Capability.CONDITIONAL_APPENDS, f'the history "{name}"')
        extra: pa.Schema | None = options.pop("extra", None)
        streams: bool = options.pop("streams", options.get("partitions", 1) > 1)
        personal: str | None = options.pop("personal", None)  # the subject whose ids the streams are
        self.rows = EventRows(types, extra)
        self.name = name
        self.streams = streams  # every event has one, and they decide its partition
        ordered: dict[str, Any] = {"ordered_by": "stream"} if streams else {}
        stored = log.find_topic(name)  # other code may have declared more types, and more fields of them
        columns = self.rows.schema if stored is None else self.rows.beside(stored.schema)
        if personal is not None:
            options["privacy"] = personal_events(personal, columns)
        self.topic: EventTopic = log.topic(name, columns, event_time="at", events=True, **ordered, **options)
        self._indexes = [EventIndex(self.topic, number, self.rows) for number in range(self.topic.settings.partitions)]
        self._routes: dict[str, int] = {}

    # Writing

    def append(
        self,
        events: Iterable[Given],
        *,
        fail_if: Query | None = None,
        after: int | None = None,
        stream: str | None = None,
        expected: int | None = None,
        request_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> AppendedEvents:
        """Append events, all or none, if what is expected holds.

        ``fail_if``: a query that must find no event after the position ``after`` (None: none at all). ``stream`` and
        ``expected``: the number of events that the stream has. ``request_id``: an append that is repeated is recognised
        and returns what the first one did. The check is made under the partition's lock: exact over processes.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("bank", home=tempfile.mkdtemp())
        >>> store = app.event_store("bookings", {"paid": "cents BIGINT"})
        >>> store.append([("paid", {"cents": 5})], stream="7", expected=0).version
        1
        >>> [store.append([("paid", {"cents": 5})], request_id="r-1").repeated for attempt in range(2)]
        [False, True]
        """
        drafts = self._drafts(events, stream, request_id)
        appended = self.append_drafts(
            drafts,
            stream=stream,
            expected=expected,
            fail_if=fail_if,
            after=after,
            request_id=request_id,
            metadata=metadata,
            keep=True,
        )
        if appended.repeated:
            self._refuse_other_events(drafts, self._indexes[self.partition_of(stream)])
        return appended

    def append_in(
        self,
        transaction: EventTransaction,
        events: Iterable[Given],
        *,
        fail_if: Query | None = None,
        after: int | None = None,
        stream: str | None = None,
        expected: int | None = None,
    ) -> None:
        """Append events in a transaction, with rows of other topics: all or none, if what is expected holds.

        The condition is checked when the transaction is committed, on what was there before it.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("bank", home=tempfile.mkdtemp())
        >>> store = app.event_store("bookings", {"paid": "cents BIGINT"})
        >>> balances = app.table("balances", "id BIGINT, cents BIGINT", key="id")
        >>> with app.transaction() as t:
        ...     store.append_in(t, [("paid", {"cents": 5})], stream="7", expected=0)
        ...     t.upsert(balances, [{"id": 7, "cents": 5}])
        >>> store.version("7")
        1
        """
        drafts = self._drafts(events, stream, None)
        partition = self.partition_of(stream)
        index = self._indexes[partition]
        if stream is not None:
            expected = self.version(stream) if expected is None else expected
            _number(drafts, expected)
        batch = self.rows.batch(drafts, self.topic.schema)
        condition = EventCondition(self.name, index, drafts, stream, expected, fail_if, _position(after))
        transaction.append_if(self.topic, batch, partition=partition, condition=condition)

    def append_drafts(
        self,
        drafts: Sequence[EventDraft],
        *,
        stream: str | None = None,
        expected: int | None = None,
        fail_if: Query | None = None,
        after: int | None = None,
        request_id: str | None = None,
        metadata: Metadata | None = None,
        keep: bool = False,
    ) -> AppendedEvents:
        """Append events whose rows are complete but for their versions; ``keep``: they will be read here soon.

        A request that was written before is answered by what it has written: whether this one is its repetition is for
        the caller to say. (A command that was decided over an old state may have given other events.)
        """
        partition = self.partition_of(stream)
        if request_id is not None:
            check_id(request_id)
        index = self._indexes[partition]
        if not index.position:  # read before the partition is locked, so that nobody waits for it
            index.catch_up()
        for _ in range(ATTEMPTS_MAX):
            if stream is not None and expected is None:
                index.catch_up()
            base = index.version(stream) if expected is None and stream is not None else expected
            if stream is not None:
                _number(drafts, base or 0)
            rows: pa.RecordBatch | StoredRow
            if metadata is None:
                rows = self.rows.stored(drafts, self.topic.schema)
            else:
                rows = with_metadata(self.rows.batch(drafts, self.topic.schema), metadata)
            seen = base if stream is not None else None
            known_after, kept = _position(after), keep and metadata is None
            condition = EventCondition(
                self.name, index, drafts, stream, seen, fail_if, known_after, request_id, keep=kept
            )
            try:
                token = self.topic.append_if(rows, partition=partition, condition=condition)
            except RequestKnown as known:
                return self._repeated(known, index)
            except VersionConflict:
                if expected is not None:
                    raise
                continue
            position = token.frontier[self.name][partition]
            return AppendedEvents(position, drafts[-1].version, token)
        raise VersionConflict(
            f'"{stream}" of "{self.name}" changed {ATTEMPTS_MAX} times while the append was tried',
            hint="Many writers append to this stream. Try again, or append in larger lots.",
        )

    def _repeated(self, known: RequestKnown, index: EventIndex) -> AppendedEvents:
        """The answer of the first append of a request."""
        last = index.events([known.offset + known.count - 1])[0]
        token = Token({self.name: {index.partition: last.position}}, repeated=True)
        return AppendedEvents(last.position, last.version, token, repeated=True)

    def _drafts(self, events: Iterable[Given], stream: str | None, request_id: str | None) -> list[EventDraft]:
        drafts = [self._draft(event) for event in events]
        if not drafts:
            raise InvalidDeclaration("an append needs an event", hint="Give at least one.")
        self._check_tags(drafts)
        moment = self.topic.clock.now_us()
        for draft in drafts:
            draft.stream, draft.at_us, draft.request_id = stream, moment, request_id
        return drafts

    def _refuse_other_events(self, drafts: Sequence[EventDraft], index: EventIndex) -> None:
        """Refuse a request that has written other events before: of other types, or with other data or tags."""
        first, count = index.request(drafts[0].stream, str(drafts[0].request_id)) or (0, 0)
        written = index.events(range(first, first + count))
        if [event.type for event in written] != [draft.type for draft in drafts]:
            raise RequestConflict(
                f'request "{drafts[0].request_id}" was written before, with other events',
                detail=f"It wrote {', '.join(event.type for event in written)} at position {first + 1}.",
                hint="Give each request an id of its own.",
                request_id=drafts[0].request_id,
            )
        given = self.rows.events(self.rows.batch(drafts), index.partition, range(first, first + count))
        for one, other in zip(written, given, strict=True):
            if one.data != other.data or list(one.tags) != list(other.tags):
                raise RequestConflict(
                    f'request "{one.request_id}" was written before, with other data of "{one.type}"',
                    detail=f"It is at position {one.position}. Nothing was written.",
                    hint="Give each request an id of its own.",
                    request_id=one.request_id,
                )

    def _draft(self, given: Given) -> EventDraft:
        if isinstance(given, Event):
            event = given
        elif isinstance(given, tuple) and len(given) == 2:
            event = Event(*given)
        elif dataclasses.is_dataclass(given) and not isinstance(given, type):
            data = {each.name: getattr(given, each.name) for each in dataclasses.fields(given)}
            event = Event(type(given).__name__, data)
        else:
            raise InvalidDeclaration(
                f"an event cannot be {type(given).__name__}", hint='Give Event("paid", {"cents": 5}, tags=["order:7"]).'
            )
        self.rows.type(event.type)
        return EventDraft(event.type, event.data, event.tags)

    def _check_tags(self, drafts: Sequence[EventDraft]) -> None:
        for draft in drafts:
            if isinstance(draft.tags, str) or not all(isinstance(tag, str) and tag for tag in draft.tags):
                raise InvalidDeclaration(
                    f"tags of an event are a list of texts, not {draft.tags!r}", hint='For example tags=["course:7"].'
                )

    # Reading

    def read(
        self,
        query: Query | None = None,
        *,
        after: int | None = None,
        limit: int | None = None,
        stream: str | None = None,
    ) -> FoundEvents:
        """The events that match, in order, and the head up to which was read.

        With ``limit`` no more than so many: then the head is the position of the last one, if others follow. Upcasters
        bring their data to the newest version of their types.

        >>> import headwater as hw, tempfile
        >>> store = hw.App("bank", home=tempfile.mkdtemp()).event_store("bookings", {"paid": "cents BIGINT"})
        >>> _ = store.append([("paid", {"cents": 5}), ("paid", {"cents": 6})])
        >>> found = store.read(after=1)
        >>> [event.data["cents"] for event in found], found.head
        ([6], 2)
        """
        index, begin = self._indexes[self.partition_of(stream)], _position(after)
        if limit is not None and (type(limit) is not int or limit < 0):
            raise Misuse(f"limit cannot be {limit!r}", hint="Give a whole number of events from 0 on.")
        head = index.catch_up()
        offsets: Sequence[int]
        if stream is not None:
            offsets = [offset for offset in index.stream_offsets(stream) if begin <= offset < head]
            events = [event for event in index.events(offsets) if (query or EVERYTHING).matches(event.type, event.tags)]
            found, whole = (events, True) if limit is None else (events[:limit], len(events) <= limit)
        else:
            offsets = [offset for offset in index.matches(query or EVERYTHING, begin) if offset < head]
            whole = limit is None or len(offsets) <= limit
            found = index.events(offsets if limit is None else offsets[:limit])
        if not whole:  # whoever appends after the head has seen everything before it
            head = found[-1].position if found else begin
        return FoundEvents(self._upcast(found), head)

    def each_of(self, stream: str, *, after: int = 0) -> Iterator[RecordedEvent]:
        """The events of a stream after a position, in order; some thousands of them are in memory at a time.

        >>> import headwater as hw, tempfile
        >>> store = hw.App("bank", home=tempfile.mkdtemp()).event_store("bookings", {"paid": "cents BIGINT"})
        >>> _ = store.append([("paid", {"cents": 5}), ("paid", {"cents": 6})], stream="7")
        >>> [event.data["cents"] for event in store.each_of("7", after=1)]
        [6]
        """
        index = self.index(stream)
        head = index.catch_up()
        offsets = index.stream_offsets(stream)
        place, stop = bisect_left(offsets, after), bisect_left(offsets, head)
        while place < stop:
            until = min(stop, place + EVENTS_AT_ONCE)
            yield from self._upcast(index.events(offsets[place:until]))
            place = until

    def subscribe(
        self, query: Query | None = None, *, after: int | None = None, timeout: Duration | None = None
    ) -> Iterator[RecordedEvent]:
        """Every event that matches, those that come later too; ends after ``timeout`` without one.

        >>> import headwater as hw, tempfile
        >>> store = hw.App("bank", home=tempfile.mkdtemp()).event_store("bookings", {"paid": "cents BIGINT"})
        >>> _ = store.append([("paid", {"cents": 5})])
        >>> [event.data for event in store.subscribe(timeout="10 milliseconds")]
        [{'cents': 5}]
        """
        seconds = None if timeout is None else to_seconds(timeout, what="timeout")
        positions = dict.fromkeys(range(len(self._indexes)), _position(after))
        while True:
            found = False
            for number, index in enumerate(self._indexes):
                head = index.catch_up()
                offsets = [offset for offset in index.matches(query or EVERYTHING, positions[number]) if offset < head]
                for begin in range(0, len(offsets), 1024):
                    for event in self._upcast(index.events(offsets[begin : begin + 1024])):
                        found = True
                        yield event
                positions[number] = head
            grown = found or self.topic.wait(positions, timeout=WAIT_S if seconds is None else seconds)
            if not grown and (seconds is not None or self.topic.log.closed):
                return

    def _upcast(self, events: list[RecordedEvent]) -> list[RecordedEvent]:
        """Events of older versions of their types as those of the newest one."""
        if all(event.type_version == self.rows.type_version(event.type) for event in events):
            return events
        brought = []
        for event in events:
            known = self.rows.types.get(event.type)
            if known is not None and event.type_version != known.version:
                where = f'"{self.name}" at position {event.position}'
                data = known.upcast(event.data, event.type_version, where)
                event = dataclasses.replace(event, data=data, type_version=known.version)
            brought.append(event)
        return brought

    def version(self, stream: str) -> int:
        """The number of events of a stream.

        >>> import headwater as hw, tempfile
        >>> store = hw.App("bank", home=tempfile.mkdtemp()).event_store("bookings", {"paid": "cents BIGINT"})
        >>> store.version("7")
        0
        """
        index = self.index(stream)
        index.catch_up()
        return index.version(stream)

    @property
    def head(self) -> int:
        """The position of the last event, of a store of one partition."""
        return self._indexes[self.partition_of(None)].catch_up()

    def index(self, stream: str) -> EventIndex:
        """The index of the partition that a stream is in."""
        return self._indexes[self.partition_of(stream)]

    @property
    def indexes(self) -> Sequence[EventIndex]:
        """The indexes of all partitions."""
        return self._indexes

    def partition_of(self, stream: str | None) -> int:
        """The partition of a stream; refused where none is named and there are several."""
        if stream is None:
            if self.streams:
                raise Misuse(
                    f'"{self.name}" has streams in {len(self._indexes)} partitions, and none is named',
                    detail="A condition is decided in one partition: that of a stream.",
                    hint="Name the stream. For a rule over several streams use a store of one partition, or claims.",
                )
            return 0
        if not isinstance(stream, str) or not stream:
            raise InvalidDeclaration(f"a stream is named by a text, not {stream!r}")
        known = self._routes.get(stream)
        if known is None:
            partitions = len(self._indexes)
            if partitions == 1:
                return 0
            known = routing.partition_of_text(stream, partitions)
            if len(self._routes) > 1_000_000:
                self._routes.clear()
            self._routes[stream] = known
        return known

    def __repr__(self) -> str:
        return f"EventStore({self.name}, {', '.join(self.rows.types)})"


def _position(after: int | None) -> int:
    """A position that somebody gives: nothing is at 0, and before it nothing can be."""
    if after is None:
        return 0
    if type(after) is not int or after < 0:
        raise Misuse(f"after cannot be {after!r}", hint="Give a position that read has returned, or 0.")
    return after


def _number(drafts: Sequence[EventDraft], version: int) -> None:
    """Give each event its version; a rejected command has none."""
    for draft in drafts:
        if draft.counted:
            version += 1
            draft.version = version
        else:
            draft.version = None
