"""Log erasure: a person is removed from every topic of a home, and from its catalog.

What it is: ``LogErasure`` goes over all topics with personal columns of a subject, and over those with copies of their
rows; ``resume`` ends what a process that died has begun; ``kept_out`` is what is asked of rows that a capture brings.
Invariants: the record is durable before the first byte changes, and in phase LOG until the last one has; one process at
a time works on a home. A second run finds nothing more. The catalog's file is written anew at the end, so that SQLite's
free pages hold nothing.
Not here: one partition (``segment_erasure.py``); views, sinks, backups and the certificate (``upkeep/erasure/``).
Read next: ``segment_erasure.py``.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import Conflict, Misuse
from headwater.hints import suggestion
from headwater.log.erasure.erased_people import Erased, ErasedPeople
from headwater.log.erasure.erasure_records import LOG, ErasureRecord, ErasureRecords
from headwater.log.erasure.expired_rows import ExpiredRows
from headwater.log.erasure.personal_rows import ERASED_REASON, PersonalRows, rules_with_copies
from headwater.log.erasure.purposes import Purposes
from headwater.log.erasure.segment_erasure import (
    Clean,
    ErasedPartition,
    erase_partition,
    find_in_partition,
    refuse_beside_backup,
)
from headwater.log.storage.locks import FileLock

if TYPE_CHECKING:
    from headwater.log.home import Log
    from headwater.log.topic import Topic

logger = logging.getLogger("headwater.log")

LOCK = "erasure.lock"


@dataclass(frozen=True)
class ErasedTopic:
    """What an erasure found in a topic, or would."""

    name: str
    copies: bool  # of other topics' rows: dead letters, late rows
    erased: ErasedPartition


class LogErasure:
    """One person in one home.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> declared = {"user_id": hw.Personal("user_id"), "page": hw.Personal("user_id", by="user_id")}
    >>> visits = log.topic("visits", "user_id BIGINT, page STRING", privacy=declared)
    >>> _ = visits.append([{"user_id": 7, "page": "a"}, {"user_id": 8, "page": "b"}])
    >>> [(each.name, each.erased.rows) for each in LogErasure(log, ErasedPeople.of("user_id", "7", b"")).run()]
    [('visits', 1)]
    >>> [row["page"] for row in visits.rows()]
    [None, 'b']
    """

    def __init__(self, log: Log, people: Erased, clean: Clean | None = None) -> None:
        self.log = log
        self.people = people
        self.clean = clean  # of a home unpacked from a backup, see ``erase_partition``

    def topics(self) -> Iterator[tuple[Topic, list[PersonalRows]]]:
        """The topics with personal columns that are meant, or with copies of such rows."""
        every = self.log.topics()
        for topic in every:
            rules = rules_with_copies(topic, self.people.rules_of, every)
            if rules:
                yield topic, rules

    def find(self) -> list[ErasedTopic]:
        """What ``run`` would erase; nothing is changed."""
        found = []
        for topic, rules in self.topics():
            numbers = range(topic.settings.partitions)
            rows = sum(find_in_partition(topic, number, rules, self.people) for number in numbers)
            found.append(ErasedTopic(topic.name, not topic.privacy, ErasedPartition(rows)))
        return found

    def run(self) -> list[ErasedTopic]:
        """Erase; what was found, topic by topic."""
        self._letters_in_catalog()
        self._order_keys()
        found = []
        for topic, rules in self.topics():
            done = ErasedPartition()
            for number in range(topic.settings.partitions):
                done += erase_partition(topic, number, rules, self.people, self.clean)
            found.append(ErasedTopic(topic.name, not topic.privacy, done))
        self.log.catalog.vacuum()
        return found

    def _letters_in_catalog(self) -> None:
        """Dead letters that are not in their topics yet."""
        catalog = self.log.catalog
        rules = {topic.name: self.people.rules_of(topic) for topic in self.log.topics()}
        rows = catalog.read(
            "SELECT d.*, t.name AS topic FROM dead_letters d JOIN groups g ON g.id = d.group_id "
            "JOIN topics t ON t.id = g.topic_id"
        )
        changed = []
        for row in rows:
            own = rules.get(row["topic"])
            if own is None:
                continue
            letters = own.of_letters(row["topic"])
            letter = pa.RecordBatch.from_pydict({"topic": [row["topic"]], "row": [row["row"]]})
            if letters.found_in(letter, self.people).any():
                place = (row["group_id"], row["sequence"], row["partition"], row["offset"])
                changed.append((letters.letter_row(row["row"], self.people), ERASED_REASON, *place))
        if changed:
            with catalog.write(durable=True) as db:
                db.executemany(
                    "UPDATE dead_letters SET row = ?, reason = ? "
                    "WHERE group_id = ? AND sequence = ? AND partition = ? AND offset = ?",
                    changed,
                )

    def _order_keys(self) -> None:
        """The values by which work groups order messages that are not settled: these are then in no order."""
        catalog, columns = self.log.catalog, set[str]()
        for _, rules in self.topics():
            columns |= {rule.by for each in rules for rule in each.rules}
        keys = catalog.read("SELECT DISTINCT order_key FROM work_details WHERE order_key IS NOT NULL")
        theirs = [
            (row["order_key"],)
            for row in keys
            if any(name in columns and self.people.has(value) for name, value in json.loads(row["order_key"]).items())
        ]
        if theirs:
            with catalog.write(durable=True) as db:
                db.executemany("UPDATE work_details SET order_key = NULL WHERE order_key = ?", theirs)


def subjects(log: Log) -> dict[str, list[str]]:
    """The subjects that topics declare: {subject: the names of the topics}."""
    found: dict[str, list[str]] = {}
    for topic in log.topics():
        for subject in dict.fromkeys(personal.subject for personal in topic.privacy.values()):
            found.setdefault(subject, []).append(topic.name)
    return found


def check_subject(log: Log, subject: str) -> None:
    """Refuse a subject that no topic declares."""
    known = subjects(log)
    if subject not in known:
        raise Misuse(
            f'no topic of this home has personal columns of the subject "{subject}"',
            hint=suggestion(subject, sorted(known))
            or 'Declare them: log.topic(…, privacy={"email": hw.Personal("user_id", by="id")}), see docs/erasure.md.',
            subject=subject,
        )


@contextlib.contextmanager
def at_work(log: Log, *, wait: bool) -> Iterator[bool]:
    """The right to erase in a home: one process at a time; False when another one has it."""
    lock = FileLock(log.home / LOCK)
    try:
        got = lock.acquire(blocking=wait)
        try:
            yield got
        finally:
            if got:
                lock.release()
    finally:
        lock.close()


def erase_person(log: Log, subject: str, value: str) -> tuple[ErasureRecord, list[ErasedTopic]]:
    """Erase a person from a home's log: the record, and what was found."""
    check_subject(log, subject)
    records = ErasureRecords(log.catalog)
    with at_work(log, wait=True):
        known = records.find(subject, value)
        work = LogErasure(log, ErasedPeople.of(subject, value, b""))
        if known is not None and known.phase != LOG and not names_of(work.find()):
            return known, work.run()  # asked again: what views have done stands
        refuse_beside_backup(log.home, "Nothing was changed.")
        record = records.request(subject, value, now_us=log.clock.now_us())
        found = work.run()
        records.finish_log(record)
    return record, found


def resume(log: Log) -> bool:
    """End the erasures that a process has begun; False while that cannot be: it is tried again."""
    records = ErasureRecords(log.catalog)
    if not records.in_phase(LOG):
        return True
    with at_work(log, wait=False) as got:
        if got:
            try:
                end_begun(log)
            except Conflict as error:  # a backup copies files, or the person's rows are appended all the time
                logger.warning("an erasure waits: %s", error.message)
                return False
    return got


def end_begun(log: Log) -> list[ErasedTopic]:
    """End the erasures that were begun, and let purposes end that this home never looked at; what was found.

    A home that was restored never did: so what had ended does not come back. The caller has the right to work.
    """
    from headwater.log.erasure.log_expiry import expire_first

    return [*end_records(log), *expire_first(log)]


def end_records(log: Log) -> list[ErasedTopic]:
    """End the erasures that were begun; what was found."""
    records, found = ErasureRecords(log.catalog), list[ErasedTopic]()
    for record in records.in_phase(LOG):
        found += LogErasure(log, record.erased).run()
        records.finish_log(record)
    return found


class KeptOut:
    """Rows of people who were erased, or too old ones, which a capture brings again: they are not let in, or blanked.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> users = log.topic("users", "id BIGINT, name STRING", key="id", privacy={"id": hw.Personal("user_id")})
    >>> _ = erase_person(log, "user_id", "7")
    >>> rows, _ = KeptOut(users).without(pa.record_batch({"id": [7, 8], "name": ["Ada", "Bob"]}), None)
    >>> rows.to_pylist()
    [{'id': 8, 'name': 'Bob'}]
    """

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.records = ErasureRecords(topic.log.catalog)
        self.purposes = Purposes(topic.log.catalog)

    def without(self, batch: pa.RecordBatch, deleted: pa.Array | None) -> tuple[pa.RecordBatch, pa.Array | None]:
        """The rows without what was erased, with the mark of each."""
        for subject in dict.fromkeys(personal.subject for personal in self.topic.privacy.values()):
            rules = PersonalRows.of_topic(self.topic, subject)
            for people in self.records.people(subject):
                assert rules is not None
                erased = rules.erase(batch, people)
                batch = erased.rows
                if deleted is not None and erased.kept is not None:
                    deleted = deleted.filter(pa.array(erased.kept))
        expired = ExpiredRows.at(self.topic.log.clock.now_us(), self.purposes.all().values())
        ended = expired.rules_of(self.topic)
        if ended is not None:
            batch = ended.erase(batch, expired).rows
        return batch, deleted


def names_of(found: Sequence[ErasedTopic]) -> list[str]:
    """The topics in which something was found."""
    return [each.name for each in found if each.erased.rows]
