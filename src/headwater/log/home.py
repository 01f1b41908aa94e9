"""Home: one directory that holds one log.

What it is: ``Log`` opens or creates a home directory, declares and finds topics, and holds shared resources.
Invariants: many processes may open a home at once; opening reads no rows and starts no thread; a home of a newer format
is refused unchanged; a directory with other content is not turned into a home.
Not here: Spark, views and apps (``app.py``). Read next: ``topic.py``; ``docs/internals/files.md``.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack, cast

import pyarrow as pa

from headwater.clock import Clock
from headwater.durations import Duration, to_seconds
from headwater.errors import ClosedError, ReadOnlyHome, UnknownTopic
from headwater.hints import suggestion
from headwater.log import topic_reader
from headwater.log.catalog.catalog import Catalog
from headwater.log.catalog.encrypted_volume import is_required, require_encrypted
from headwater.log.catalog.home_folder import prepare
from headwater.log.catalog.registry import Registry, TopicRow
from headwater.log.commits import consistent_cut
from headwater.log.commits.commit_records import CommitRecords
from headwater.log.commits.cut_numbers import CutCounter, StoppedCounter
from headwater.log.commits.request_ids import TABLE_REQUEST_IDS, RequestIds
from headwater.log.commits.stored_positions import TABLE_STORED_POSITIONS, StoredPositions
from headwater.log.commits.transaction import Transaction
from headwater.log.contract import Capability, EventTopic
from headwater.log.maintenance.audit_trail import AuditEntry, local_user, note_audit, note_settings
from headwater.log.maintenance.background import Cleaner, Flusher, Sealer
from headwater.log.maintenance.sealing import seal_partition
from headwater.log.storage.files import Files
from headwater.log.storage.recovery import Recovery
from headwater.log.storage.wake import Waker
from headwater.log.token import Token
from headwater.log.topic import Topic
from headwater.log.topic_declaration import open_or_declare
from headwater.log.topic_settings import TopicOptions

if TYPE_CHECKING:
    from headwater.log.groups.consumer import ConsumerOptions
    from headwater.log.groups.subscription import Subscription
    from headwater.log.maintenance.alerts import Alert
    from headwater.log.maintenance.home_check import CheckReport
    from headwater.log.maintenance.maintenance import MaintenanceReport
    from headwater.log.producer import Producer
    from headwater.log.schema.event_metadata import Metadata
    from headwater.log.topic_partitions import TopicPartitions

logger = logging.getLogger("headwater.log")


class Log:
    """One ordered, typed log in a directory.

    >>> import headwater as hw, tempfile
    >>> with hw.Log(tempfile.mkdtemp()) as log:
    ...     clicks = log.topic("clicks", "url STRING, at TIMESTAMP", event_time="at")
    ...     [topic.name for topic in log.topics()]
    ['clicks']
    >>> log = hw.Log(log.home)  # closed by the block above, and opened again
    >>> log.maintain().steps, log.check().problems
    ((), ())
    >>> log.delete_topic("clicks")
    >>> log.close()
    """

    def __init__(
        self,
        home: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        on_alert: Callable[[Alert], None] | None = None,
        create: bool = True,
        maintenance_interval: Duration | None = "30 seconds",
    ) -> None:
        self.home = Path(home).expanduser().absolute()
        self.clock = clock or Clock()
        self.files = files or Files()
        self.on_alert = on_alert
        self.maintenance_interval = (
            None if maintenance_interval is None else to_seconds(maintenance_interval, what="maintenance_interval")
        )
        self.closed = False
        self.recoveries: list[Recovery] = []
        if is_required():  # by the machine; an app that says so has looked at more
            require_encrypted({"the home": self.home})
        self.read_only = prepare(self.home, self.files, create=create)
        self.catalog = Catalog(self.home / "catalog.sqlite", read_only=self.read_only, tables=_tables())
        self.registry = Registry(self.catalog)
        self._topics: dict[str, Topic] = {}
        self.commit_records = CommitRecords(self.home, self.catalog, self.files)
        self.request_ids = RequestIds(self.catalog)
        self.positions = StoredPositions(self.catalog)
        self._start_helpers()
        atexit.register(_close, weakref.ref(self))

    def _start_helpers(self) -> None:
        self._pid = os.getpid()
        self.cut_counter = CutCounter(self.home, self.clock, self.files) if not self.read_only else StoppedCounter()
        self.waker = Waker()
        self._flusher = Flusher()
        self._sealer = Sealer(self._seal_all)
        self._cleaner = Cleaner(
            weakref.WeakMethod(self._maintain), None if self.read_only else self.maintenance_interval
        )

    # What it is

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it offers beyond appending and reading: everything."""
        return frozenset(Capability)

    @property
    def address(self) -> str:
        """What opens it in another process: the home's path."""
        return str(self.home)

    @property
    def identity(self) -> str:
        """The home's random id, made on first use.

        >>> import headwater as hw, tempfile
        >>> log = hw.Log(tempfile.mkdtemp())
        >>> log.identity == log.identity, len(log.identity)
        (True, 16)
        """
        return self.catalog.home_id()

    @property
    def shown(self) -> str:
        """The address for people."""
        return str(self.home)

    @property
    def has_local(self) -> bool:
        """Always: it is its own home."""
        return True

    @property
    def local(self) -> Log:
        """The home of the apps that read it: this one."""
        return self

    # Topics

    def topic(self, name: str, schema: str | pa.Schema, **settings: Unpack[TopicOptions]) -> Topic:
        """Declare a topic: make it, or let its columns and settings grow. ``get_topic`` finds one that exists.

        ``settings``: key, event_time, partitions, fsync, retention="7 days" and so on; see ``docs/log.md``.
        Declaring again with more columns makes a new schema version.

        >>> import headwater as hw, tempfile
        >>> log = hw.Log(tempfile.mkdtemp())
        >>> log.topic("users", "id BIGINT, name STRING", key="id").schema_version
        1
        >>> log.topic("users", "id BIGINT, name STRING, country STRING", key="id").schema_version
        2
        """
        self.check_open()
        if self.read_only:
            raise ReadOnlyHome(f"the home {self.home} cannot be written", hint="Find topics: log.get_topic(name).")
        return self._declared(name, schema, settings, multiset=False)

    def get_topic(self, name: str) -> Topic:
        """The topic of this name.

        >>> import headwater as hw, tempfile
        >>> log = hw.Log(tempfile.mkdtemp())
        >>> _ = log.topic("users", "id BIGINT, name STRING", key="id")
        >>> log.get_topic("user")
        Traceback (most recent call last):
            ...
        headwater.errors.UnknownTopic: no topic "user" in this home
          Hint: Did you mean "users"?
        """
        self.check_open()
        row = self.registry.find(name)
        if row is None:
            raise UnknownTopic(
                f'no topic "{name}" in this home', hint=suggestion(name, self.registry.names()), topic=name
            )
        return self.opened(row)

    def find_topic(self, name: str) -> Topic | None:
        """The topic of this name, if there is one."""
        row = self.registry.find(name)
        return None if row is None else self.opened(row)

    def multiset(self, name: str, schema: str | pa.Schema, **settings: Any) -> Topic:
        """Declare the topic of a table without a key: its rows have weights."""
        self.check_open()
        if self.read_only:
            raise ReadOnlyHome(f"the home {self.home} cannot be written", hint="Find tables: app.get_table(name).")
        return self._declared(name, schema, settings, multiset=True)

    def _declared(self, name: str, schema: str | pa.Schema, settings: Mapping[str, Any], *, multiset: bool) -> Topic:
        before = self.registry.find(name)
        row = open_or_declare(self.registry, name, schema, settings, self.clock.now_us(), multiset=multiset)
        if before is not None and before.settings != row.settings:
            note_settings(self, name, before.settings, row.settings)
        return self.opened(row)

    def topic_names(self) -> list[str]:
        """The names of all topics, sorted."""
        return self.registry.names()

    def opened(self, row: TopicRow) -> Topic:
        """The handle of a topic that the catalog knows; the same one each time."""
        topic = self._topics.get(row.name)
        if topic is None or topic.id != row.id:
            topic = self._topics[row.name] = Topic(self, row)
        elif topic.row() is not row:
            topic.refresh()
        self._cleaner.start()
        return topic

    def topics(self) -> list[Topic]:
        """All topics, by name."""
        return [self.get_topic(name) for name in self.registry.names()]

    def subscribe(self, topics: str | Sequence[str], group: str, **options: Unpack[ConsumerOptions]) -> Subscription:
        """A consumer of several topics, by their names or by a pattern (``"orders.*"``). See ``Subscription``.

        >>> import headwater as hw, tempfile
        >>> log = hw.Log(tempfile.mkdtemp())
        >>> _ = log.topic("orders.de", "amount DOUBLE").append([{"amount": 9.5}])
        >>> with log.subscribe("orders.*", "billing") as subscription:
        ...     subscription.poll(timeout=10).to_pylist()
        [{'amount': 9.5}]
        """
        from headwater.log.groups.subscription import Subscription

        return Subscription(self, topics, group, **options)

    def delete_topic(self, name: str) -> None:
        """Remove a topic, its rows and its groups, for good."""
        from headwater.log.maintenance.alerts import end_of_topic

        topic = self.get_topic(name)
        directory = topic.directory
        note_audit(self, AuditEntry("settings", local_user(), name, detail="deleted"))
        self.registry.delete(topic.id)
        # One partition after the other: there may be more of them than descriptors. A writer that waits for the lock
        # finds the files gone and raises.
        for number in range(topic.settings.partitions):
            with contextlib.suppress(FileNotFoundError), topic.partition(number).lock:
                shutil.rmtree(directory / str(number), ignore_errors=True)
        shutil.rmtree(directory, ignore_errors=True)
        topic.close()
        self._topics.pop(name, None)
        end_of_topic(self, topic.id)

    # Several topics at once

    def wait_for(self, token: Token | str, *, timeout: Duration = "30 seconds") -> None:
        """Wait until this home holds what a token names, for tokens of a home whose topics are copied here.

        >>> import headwater as hw, tempfile
        >>> log = hw.Log(tempfile.mkdtemp())
        >>> log.wait_for(log.topic("orders", "n INT").append([{"n": 1}]))
        >>> log.wait_for("orders:0=2", timeout=0)
        Traceback (most recent call last):
            ...
        headwater.errors.NotYetCovered: this home has not got orders:0=2 after 0 s
          Its topic orders ends at {0: 1}.
          Hint: Is the token of another home? Its topics must be copied here: headwater mirror.
        """
        hint = "Is the token of another home? Its topics must be copied here: headwater mirror."
        topic_reader.wait_for(self, token, timeout, who="this home", hint=hint)

    def transaction(
        self,
        *,
        request_id: str | None = None,
        producer: Producer | None = None,
        after: Token | str | None = None,
        metadata: Metadata | None = None,
    ) -> Transaction:
        """Rows of several topics and tables, positions and acknowledgements, all or none: see ``Transaction``.

        ``request_id``: a transaction that is repeated with its id is recognised. ``producer``: a named one; when a
        newer producer has taken its name, the commit is refused. ``after``: wait first until this home holds a token.
        ``metadata``: of all its rows, see ``Metadata``.

        >>> import headwater as hw, tempfile
        >>> log = hw.Log(tempfile.mkdtemp())
        >>> debits, credits = log.topic("debits", "cents BIGINT"), log.topic("credits", "cents BIGINT")
        >>> with log.transaction() as t:
        ...     t.append(debits, [{"cents": 500}])
        ...     t.append(credits, [{"cents": 500}])
        >>> str(t.token)
        'credits:0=1;debits:0=1'
        """
        if after is not None:
            self.wait_for(after)
        return Transaction(self, request_id=request_id, producer=producer, metadata=metadata)

    def stored_position(self, reader: str) -> str | None:
        """Where a reader of a foreign source is: what ``Transaction.store_position`` stored last.

        >>> import headwater as hw, tempfile
        >>> log = hw.Log(tempfile.mkdtemp())
        >>> with log.transaction() as t:
        ...     t.store_position("importer", before=None, after="page 7")
        >>> log.stored_position("importer"), log.stored_position("other")
        ('page 7', None)
        """
        return self.positions.find(reader)

    # Maintenance

    def maintain(self) -> MaintenanceReport:
        """Run one round of maintenance over all topics: seal, compact, retain, watch lag; returns a report.

        A process that has a topic open does this by itself every ``maintenance_interval`` seconds.
        """
        from headwater.log.erasure.log_erasure import resume
        from headwater.log.maintenance.maintenance import maintain

        self.check_open()
        if not self.read_only:
            resume(self)
        return maintain(self)

    def check(self, *, progress: Callable[[int, int], None] | None = None) -> CheckReport:
        """Verify every checksum, index, offset and catalog row; returns a report. Safe on a live home.

        ``progress`` is called with the bytes done and the bytes in all.
        """
        from headwater.log.maintenance.home_check import check

        self.check_open()
        return check(self, progress=progress)

    def cut(self, topics: Iterable[EventTopic]) -> dict[str, dict[int, int]]:
        """The ends of these topics at one moment: no append or transaction is cut, and no row lacks its cause.

        If a row lies before the cut, so does every row whose append had returned when that row's append began.

        >>> import headwater as hw, tempfile
        >>> log = hw.Log(tempfile.mkdtemp())
        >>> orders = log.topic("orders", "order_id BIGINT", key="order_id", partitions=2)
        >>> _ = orders.append([{"order_id": n} for n in range(100)])
        >>> sum(log.cut([orders])["orders"].values())
        100
        """
        return consistent_cut.ends(self, cast("Iterable[Topic]", topics))

    def limited_cut(
        self,
        topics: Sequence[EventTopic],
        begin: Mapping[str, Mapping[int, int]],
        end: Mapping[str, Mapping[int, int]],
        offsets_max: Mapping[str, int | None],
    ) -> dict[str, dict[int, int]]:
        """The latest cut up to ``end`` at which no topic has more than its rows after ``begin``; at least one."""
        return consistent_cut.limited(cast("Sequence[Topic]", topics), begin, end, offsets_max)

    def settle_commits(self) -> None:
        """List or cut off what commits of processes that died left behind. No commit may be under way."""
        self.commit_records.settle(self._recover_part)

    def _recover_part(self, place: tuple[str, int]) -> None:
        directory, number = place
        topic_id, _, name = directory.partition("-")
        row = self.registry.find(name)
        if row is not None and row.id == int(topic_id):
            self.opened(row).partition(number).take_up()

    def _maintain(self) -> None:
        from headwater.log.erasure.log_erasure import resume
        from headwater.log.maintenance.maintenance import maintain

        resume(self)
        report = maintain(self, wait=False, stopping=lambda: self._cleaner.closing)
        for step in report.steps:
            logger.log(logging.WARNING if step.failed else logging.INFO, "%s", step)

    def mark_dirty(self, partition: Any) -> None:
        """A partition has appends that need a sync within its topic's interval."""
        self._flusher.mark(partition)

    def wake_maintenance(self) -> None:
        """A segment was rolled: seal it in the background."""
        self._sealer.wake()

    def _seal_all(self) -> None:
        for topic in list(self._topics.values()):
            for number in range(topic.settings.partitions):
                # One at a time, so that closing waits for one segment at most.
                while not self._sealer.closing and seal_partition(topic, number, at_most=1):
                    pass

    def note_recovery(self, topic: TopicPartitions, partition: int, recovery: Recovery) -> None:
        """Record a recovery, and move back groups that are beyond the partition's end."""
        from headwater.log.groups.groups import clamp_positions

        self.recoveries.append(recovery)
        if not recovery.empty:
            with self.catalog.write(durable=True) as db:
                clamp_positions(db, topic.id, partition, recovery.next_offset)

    # Life

    def check_open(self) -> None:
        """Refuse to work after ``close``."""
        if self.closed:
            raise ClosedError(f"the log {self.home} was closed", hint="Open it again: Log(home).")
        if self._pid != os.getpid():
            # A forked child (multiprocessing's default on Linux) has the parent's descriptors, whose locks do not
            # keep the two apart, and none of its threads: make new ones.
            self.cut_counter.abandon()
            self._start_helpers()
            for topic in self._topics.values():
                topic.after_fork()

    def close(self) -> None:
        """Sync everything and release all resources."""
        if self.closed or self._pid != os.getpid():
            return
        self._cleaner.close()
        try:
            self._flusher.close()
        finally:  # a failed last sync is raised after everything was closed
            self._sealer.close()
            self.closed = True
            self.waker.close()
            self.cut_counter.close()
            for topic in self._topics.values():
                topic.close()
            self.catalog.close()

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Log({str(self.home)!r})"


def _close(reference: weakref.ref[Log]) -> None:
    """At the end of the process: sync the appends of a log that was not closed."""
    log = reference()
    if log is not None:
        log.close()


def _tables() -> tuple[str, ...]:
    from headwater.log.catalog.catalog_tables import TABLES_ABOVE_LOG
    from headwater.log.erasure.erasure_records import TABLES_ERASURES
    from headwater.log.erasure.purposes import TABLES_PURPOSES
    from headwater.log.groups.consumer import TABLES_CONSUMERS
    from headwater.log.groups.readers import TABLES_READERS
    from headwater.log.groups.worker import TABLES_WORKERS
    from headwater.log.maintenance.alerts import TABLES_ALERTS
    from headwater.log.proof.checkpoints import TABLES_PROOF

    groups = (TABLES_CONSUMERS, TABLES_WORKERS, TABLES_READERS)
    own = (TABLES_ABOVE_LOG, TABLES_ALERTS, TABLES_ERASURES, TABLES_PURPOSES, TABLES_PROOF)
    return (*own, *groups, TABLE_REQUEST_IDS, TABLE_STORED_POSITIONS)
