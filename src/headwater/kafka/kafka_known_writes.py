"""Known writes: appends to a log on Kafka that are recognised when they are repeated.

What it is: ``KnownWrites``: the sequences of named producers, request ids, the ids of an inlet's messages, and the
positions of readers of foreign sources; each a receipt that is committed with the rows.
Invariants: what was written under a number or an id is not written again, over threads, processes and crashes, and the
repeated append gets the answer of the first. A producer whose name a newer one has opened is refused. Ids are forgotten
after the topic's ``remember_ids``; of a producer's numbers the last ``RANGES_MAX`` gaps are remembered.
Not here: how receipts are kept (``kafka_receipts.py``). Read next: ``kafka_receipts.py``, ``kafka_unit.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.kafka.kafka_receipts import Key, NotedWrite, Notes, Receipt, Remembered
from headwater.kafka.kafka_transactions import KafkaRecord, Places, Positions
from headwater.kafka.kafka_values import of_producer, producer_number
from headwater.log.commits.append_request import taken_over, too_late
from headwater.log.commits.request_ids import IdsKnown, check_id, other_rows
from headwater.log.commits.sequence_ranges import CHUNKS_PER_SEQUENCE, SequenceRanges
from headwater.log.commits.stored_positions import PositionMoved
from headwater.log.contract import OpenedProducer
from headwater.log.token import Token
from headwater.log.topic_appender import AppendIdentity

if TYPE_CHECKING:
    from headwater.kafka.kafka_log import KafkaLog
    from headwater.kafka.kafka_topic import KafkaTopic

PRODUCER, ID, POSITION = "producer", "id", "position"  # the kinds of receipts
RANGES_MAX = 32  # of a producer's numbers: they are in every one of its receipts
FORGOTTEN_AT_ONCE = 200

Records = Iterable[tuple[str, KafkaRecord]]


class KnownWrites:
    """Writes with an identity, to one log."""

    def __init__(self, log: KafkaLog) -> None:
        self._log = log

    # Named producers

    def open_producer(self, topic: KafkaTopic, name: str) -> OpenedProducer:
        """Open a named producer; the previous holder of the name is shut out."""
        key, opened = _producer(topic, name), list[OpenedProducer]()

        def decide(seen: Remembered) -> NotedWrite:
            known = seen.get(key) or _unopened()
            epoch = known["epoch"] + 1
            opened.append(OpenedProducer(producer_number(name), epoch, SequenceRanges.parse(known["seen"]).last))
            return NotedWrite((), lambda _: {key: {**known, "epoch": epoch}})

        self._log.receipts.write((PRODUCER, name), decide)
        return opened[-1]

    def append_numbered(
        self,
        topic: KafkaTopic,
        batch: pa.RecordBatch,
        identity: AppendIdentity,
        deleted: bool | pa.Array = False,
        partition: int | None = None,
    ) -> Token:
        """Append rows under a producer's number, unless they are there; an epoch of 0 is not checked."""
        name, sequence, epoch = identity.producer, identity.sequence, identity.epoch
        assert name is not None
        assert sequence is not None
        key, stored, answers = _producer(topic, name), stored_sequence(identity), list[Token]()

        def decide(seen: Remembered) -> NotedWrite | None:
            known = seen.get(key) or _unopened()
            if epoch and known["epoch"] != epoch:
                raise taken_over(name, epoch, known["epoch"])
            ranges = SequenceRanges.parse(known["seen"], ranges_max=RANGES_MAX)
            before = Token.parse(known["token"])
            if _has(ranges, sequence, stored):
                answers.append(before)
                return None
            if sequence < ranges.known_from:
                raise too_late(name, sequence, ranges, f'topic "{topic.name}"')

            def notes(places: Places) -> Notes:
                token = self._log.token_of(places)
                answers.append(token)
                ranges.add(stored)
                return {key: {"epoch": known["epoch"], "seen": str(ranges), "token": str(before | token)}}

            rows = topic.appender.records(batch, deleted, partition)
            return NotedWrite(((kafka_name, of_producer(record, name)) for kafka_name, record in rows), notes)

        self._log.receipts.write((PRODUCER, name), decide)
        return self._log.seen(answers[-1])

    def write_of_producer(
        self, topic: KafkaTopic, name: str, epoch: int, records: Records, positions: Positions | None
    ) -> Token:
        """Write messages, unless a newer producer has opened the name."""
        key, every, answers = _producer(topic, name), list(records), list[Token]()
        own = uuid.uuid4().hex  # by which a commit without a clear answer is recognised

        def decide(seen: Remembered) -> NotedWrite | None:
            known = seen.get(key) or _unopened()
            if known.get("last") == own:
                answers.append(Token.parse(known["written"]))
                return None
            if known["epoch"] != epoch:
                raise taken_over(name, epoch, known["epoch"])

            def notes(places: Places) -> Notes:
                answers.append(self._log.token_of(places))
                return {key: {**known, "last": own, "written": str(answers[-1])}}

            return NotedWrite(every, notes, positions)

        self._log.receipts.write((PRODUCER, name), decide)
        return self._log.seen(answers[-1])

    def producer_names(self, topic: KafkaTopic) -> dict[int, str]:
        """The names of a topic's producers, by their numbers."""
        every = self._log.receipts.all(PRODUCER)
        return {producer_number(key[1]): key[1] for key in every if key[2] == str(topic.id)}

    # Request ids and messages

    def write_requested(
        self, scope: int, request_id: str, content: bytes, records: Records, positions: Positions | None, kept_us: int
    ) -> Token:
        """Write messages under a request id, unless it is remembered: then the answer is the first one's."""
        key, answers = (ID, str(scope), check_id(request_id)), list[Token]()
        every = list(records)  # it may be tried again

        def decide(seen: Remembered) -> NotedWrite | None:
            known = seen.get(key)
            if known is not None:
                if known["content"] != content.hex():
                    raise other_rows(request_id, known["token"])
                answers.append(Token(Token.parse(known["token"]).frontier, repeated=True))
                return None
            now_us = self._log.clock.now_us()

            def notes(places: Places) -> Notes:
                token = self._log.token_of(places)
                answers.append(token)
                noted: dict[Key, Receipt | None] = _forgotten(seen, now_us - kept_us)
                noted[key] = {"content": content.hex(), "token": str(token), "us": now_us}
                return noted

            return NotedWrite(every, notes, positions)

        self._log.receipts.write((ID, str(scope)), decide)
        return self._log.seen(answers[-1])

    def append_messages(self, topic: KafkaTopic, batch: pa.RecordBatch, ids: Collection[str]) -> Token:
        """Append the rows of messages and remember their ids, together; ``IdsKnown`` when one of them is remembered."""
        keys = [(ID, str(topic.id), each) for each in ids]

        def decide(seen: Remembered) -> NotedWrite:
            if any(seen.get(key) is not None for key in keys):
                raise IdsKnown
            now_us = self._log.clock.now_us()
            noted: dict[Key, Receipt | None] = _forgotten(seen, now_us - topic.settings.remember_ids_ms * 1000)
            noted |= {key: {"content": "", "token": "", "us": now_us} for key in keys}
            return NotedWrite(topic.appender.records(batch), lambda _: noted)

        return self._log.seen(self._log.token_of(self._log.receipts.write((ID, str(topic.id)), decide)))

    def known_ids(self, topic: KafkaTopic, ids: Iterable[str]) -> set[str]:
        """Those of some ids that are remembered."""
        seen = self._log.receipts.look((ID, str(topic.id)))
        return {each for each in ids if seen.get((ID, str(topic.id), each)) is not None}

    # Positions

    def stored_position(self, reader: str) -> str | None:
        """Where a reader of a foreign source is."""
        known = self._log.receipts.look((POSITION, reader)).get((POSITION, reader))
        return None if known is None else str(known["position"])

    def write_positioned(
        self, reader: str, before: str | None, after: str, records: Records, positions: Positions | None = None
    ) -> Token:
        """Write messages and move a reader's position; ``PositionMoved`` when it is not where it was."""
        key, every = (POSITION, reader), list(records)

        def decide(seen: Remembered) -> NotedWrite:
            known = seen.get(key)
            if (None if known is None else known["position"]) != before:
                raise PositionMoved(reader)
            return NotedWrite(every, lambda _: {key: {"position": after}}, positions)

        return self._log.seen(self._log.token_of(self._log.receipts.write((POSITION, reader), decide)))

    def forget_topic(self, topic_id: int) -> None:
        """Delete what is remembered of a topic."""
        self._log.receipts.forget(PRODUCER, lambda key: key[2] == str(topic_id))
        self._log.receipts.forget(ID, lambda key: key[1] == str(topic_id))


def stored_sequence(identity: AppendIdentity) -> int:
    """The number of an append as it is stored: the caller's, and the place in its batch.

    >>> stored_sequence(AppendIdentity("importer", 7, first_chunk=2)) == 7 * CHUNKS_PER_SEQUENCE + 2
    True
    """
    return (identity.sequence or 0) * CHUNKS_PER_SEQUENCE + identity.first_chunk


def _producer(topic: KafkaTopic, name: str) -> Key:
    return PRODUCER, name, str(topic.id)


def _unopened() -> Receipt:
    return {"epoch": 0, "seen": str(SequenceRanges()), "token": ""}


def _has(ranges: SequenceRanges, sequence: int, stored: int) -> bool:
    if sequence == ranges.last_number:  # a large batch may come in several appends of one number
        return stored <= ranges.last
    return sequence in ranges


def _forgotten(seen: Remembered, before_us: int) -> dict[Key, Receipt | None]:
    return {key: None for key, receipt in seen.oldest(FORGOTTEN_AT_ONCE) if receipt["us"] < before_us}
