"""Maintenance: one round over all topics of a home.

What it is: ``maintain`` rolls old segments, seals, compacts, watches readers, applies retention and returns a report.
Invariants: a second run changes nothing more; several processes may run it at once (one at a time per partition); a
failed step is reported and does not stop the others. Readers are warned before retention drops anything.
Not here: the steps (``sealing.py``, ``compaction.py``, ``retention.py``, ``reader_alerts.py``), the
thread (``background.py``). Read next: ``compaction.py``, ``retention.py``, ``reader_alerts.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.errors import CorruptSegment, HeadwaterError, ReadOnlyHome, UnknownTopic
from headwater.log.commits.request_ids import HOME, REMEMBERED_US
from headwater.log.maintenance.alerts import ALERTS_TOPIC, Alert, note_corruption, publish
from headwater.log.maintenance.compaction import compact_partition
from headwater.log.maintenance.reader_alerts import watch_readers
from headwater.log.maintenance.retention import retain_partition
from headwater.log.maintenance.sealing import never, seal_closed
from headwater.log.storage.partition_layout import spans_of

if TYPE_CHECKING:
    from headwater.log.home import Log
    from headwater.log.topic import Topic


@dataclass(frozen=True)
class Step:
    """One step that was done, or that failed."""

    topic: str
    partition: int | None
    action: str  # roll, seal, compact, retain, watch, publish alerts
    message: str
    numbers: dict[str, int] = field(default_factory=dict)
    failed: bool = False

    def __str__(self) -> str:
        where = self.topic if self.partition is None else f"{self.topic}[{self.partition}]"
        return f"{where}: {self.action} failed: {self.message}" if self.failed else f"{where}: {self.message}"


@dataclass(frozen=True)
class MaintenanceReport:
    """The result of one round of ``Log.maintain``.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> clicks = log.topic("clicks", "url STRING")
    >>> report = log.maintain()
    >>> report.ok, report.steps
    (True, ())
    """

    topics: int
    partitions: int
    steps: tuple[Step, ...]
    alerts: tuple[Alert, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        return not any(step.failed for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok, "alerts": [alert.to_dict() for alert in self.alerts]}

    def __str__(self) -> str:
        head = f"{self.topics} topics, {self.partitions} partitions in {self.seconds:.2f} s"
        lines = [*map(str, self.steps), *(f"alert {alert}" for alert in self.alerts)]
        return "\n  ".join([f"Maintained {head}:", *lines]) if lines else f"Nothing to do: {head}"


def maintain(log: Log, *, wait: bool = True, stopping: Callable[[], bool] = never) -> MaintenanceReport:
    """One round over all topics.

    ``wait``: also for partitions that another process works on, which are skipped otherwise. ``stopping`` is called
    between steps and ends the round early.
    """
    if log.read_only:
        raise ReadOnlyHome(f"the home {log.home} cannot be written", hint="Run it where the home is writable.")
    return _Round(log, wait, stopping).run()


class _Round:
    def __init__(self, log: Log, wait: bool, stopping: Callable[[], bool]) -> None:
        self.log = log
        self.wait = wait
        self.stopping = stopping
        self.steps: list[Step] = []
        self.alerts: list[Alert] = []
        self.topics = self.partitions = 0

    def run(self) -> MaintenanceReport:
        began = self.log.clock.monotonic()
        for name in self.log.registry.names():
            if self.stopping():
                break
            try:
                topic = self.log.get_topic(name)
            except UnknownTopic:
                continue  # deleted since the list was made
            self.topics += 1
            self._maintain_topic(topic)
        seconds = self.log.clock.monotonic() - began
        return MaintenanceReport(self.topics, self.partitions, tuple(self.steps), tuple(self.alerts), seconds)

    def _maintain_topic(self, topic: Topic) -> None:
        numbers = range(topic.settings.partitions)
        for number in numbers:
            if self.stopping():
                return
            self.partitions += 1
            self._shape(topic, number)
        self._watch(topic)
        with self._step(topic, None, "forget ids"):
            forget_ids(topic)
        for number in numbers:
            with self._step(topic, number, "retain"):
                retained = retain_partition(topic, number, wait=self.wait)
                if retained is not None:
                    self._did(topic, number, "retain", str(retained), asdict(retained))
        if any(step.action == "retain" and step.topic == topic.name for step in self.steps):
            self._watch(topic)

    def _shape(self, topic: Topic, number: int) -> None:
        with self._step(topic, number, "roll"):
            if roll_if_old(topic, number):
                self._did(topic, number, "roll", "rolled the active segment")
        with self._step(topic, number, "seal"):
            sealed = seal_closed(topic, number, wait=self.wait, stopping=self.stopping)
            if sealed:
                self._did(topic, number, "seal", f"sealed {sealed} segments", {"segments": sealed})
        if topic.settings.compact:
            with self._step(topic, number, "compact"):
                compacted = compact_partition(topic, number, wait=self.wait, stopping=self.stopping)
                if compacted is not None:
                    self._did(topic, number, "compact", str(compacted), asdict(compacted))

    def _watch(self, topic: Topic) -> None:
        if topic.name == ALERTS_TOPIC:
            return  # no alerts about the topic of alerts
        with self._step(topic, None, "watch"):
            watch_readers(topic)
        with self._step(topic, None, "publish alerts"):
            self.alerts += publish(self.log)

    def _did(self, topic: Topic, number: int, action: str, message: str, numbers: dict[str, int] | None = None) -> None:
        self.steps.append(Step(topic.name, number, action, message, numbers or {}))

    @contextmanager
    def _step(self, topic: Topic, number: int | None, action: str) -> Iterator[None]:
        try:
            yield
        except (HeadwaterError, OSError) as error:
            row = self.log.registry.find(topic.name)
            if row is None or row.id != topic.id:
                return  # deleted meanwhile
            if isinstance(error, CorruptSegment) and number is not None:
                note_corruption(topic, number, str(error.data.get("file", "")), error.message)
            self.steps.append(Step(topic.name, number, action, str(error), failed=True))


def forget_ids(topic: Topic) -> None:
    """Forget request ids that are older than the topic declares, and old ones of transactions."""
    now_us, ids = topic.clock.now_us(), topic.log.request_ids
    ids.forget(topic.id, now_us - topic.settings.remember_ids_ms * 1000)
    ids.forget(HOME, now_us - REMEMBERED_US)


def roll_if_old(topic: Topic, number: int) -> bool:
    """Roll the active segment when its first row is older than ``segment_ms_max``; True when it did."""
    limit_us = topic.clock.now_us() - topic.settings.segment_ms_max * 1000
    spans = spans_of(topic, number)
    # Checked before the lock: a round over many quiet partitions should not open each for writing.
    if not spans or not spans[-1].active or spans[-1].oldest_us > limit_us:
        return False
    return topic.partition(number).roll(older_than_us=limit_us)
