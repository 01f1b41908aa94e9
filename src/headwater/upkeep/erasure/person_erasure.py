"""Person erasure: one person, everywhere in a home, and what is said of the places outside of it.

What it is: ``PersonErasure`` goes through the places in the order in which they feed one another: topics, captures'
files, logs for people, the views of apps, their sinks, backups; then it searches what it has done, and certifies.
Invariants: the record is durable before anything changes, and a run that was killed is ended by the next tick, or by
the same call. Nothing is called done that was not done; what was not looked at is said to be not covered.
Not here: each place's own work (``log/erasure/``, ``views/lifecycle/erasure_rebuild.py``, ``backup_erasure.py``).
Read next: ``erasure_certificate.py``; ``docs/erasure.md``.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.encryption.encryption_key import KeySource
from headwater.errors import Misuse
from headwater.log.catalog.sqlite_file import rewritten
from headwater.log.erasure.erased_people import ErasedPeople
from headwater.log.erasure.erasure_records import ErasureRecord, ErasureRecords
from headwater.log.erasure.log_erasure import ErasedTopic, LogErasure, check_subject, erase_person, names_of
from headwater.log.maintenance.audit_trail import AuditEntry, local_user, note_audit
from headwater.log.maintenance.removal_pin import FILE as BACKUP_LOCK
from headwater.upkeep.erasure.backup_erasure import tell_places
from headwater.upkeep.erasure.erasure_certificate import ErasureCertificate, PlaceReport, PlaceState
from headwater.upkeep.erasure.residue_scan import Residue, ScanReport, SoughtPerson, scan, usable_markers
from headwater.views.lifecycle.erasure_follower import ErasureFollower
from headwater.views.lifecycle.liveness import signs_of
from headwater.views.state.manifest import Manifests

if TYPE_CHECKING:
    from headwater.log.home import Log
    from headwater.log.topic import Topic
    from headwater.views.runtime import AppRuntime

DONE, PENDING, IMPOSSIBLE = PlaceState.DONE, PlaceState.PENDING, PlaceState.IMPOSSIBLE
LOG_TEXT_BYTES_MIN = 6  # values that are replaced in logs for people; shorter ones are parts of other words
VALUES_MAX = 10_000
LOOK_S = 0.2
SHOWN = 3  # places of a residue scan that a certificate names


class PersonErasure:
    """One person of a home. With ``runtime`` the views of that app follow at once.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> visits = log.topic("visits", "user_id BIGINT", privacy={"user_id": hw.Personal("user_id")})
    >>> _ = visits.append([{"user_id": 7}, {"user_id": 8}])
    >>> print(PersonErasure(log, "user_id", "7").run().places[0].detail)
    1 row in 1 segment
    """

    def __init__(
        self,
        log: Log,
        subject: str,
        value: str,
        *,
        runtime: AppRuntime | None = None,
        forget_in_sinks: Callable[[], None] = lambda: None,
        backups: Sequence[str] = (),
        keys: Mapping[str, KeySource] = MappingProxyType({}),  # of encrypted backups, by place
        markers: Sequence[str] = (),
        wait_s: float = 60.0,
    ) -> None:
        check_subject(log, subject)
        self.log = log
        self.subject = subject
        self.value = value
        self.runtime = runtime
        self.forget_in_sinks = forget_in_sinks
        self.backups = backups
        self.keys = keys
        self.markers = markers
        self.wait_s = wait_s  # for processes that run apps
        self.places: list[PlaceReport] = []

    # What would be done

    def find(self) -> ErasureCertificate:
        """What ``run`` would do; nothing is changed."""
        people = ErasedPeople.of(self.subject, self.value, b"")
        for each in LogErasure(self.log, people).find():
            rows = each.erased.rows
            if rows:
                self._note(f"topic {each.name}", PlaceState.WOULD, _count(rows, "row"), rows)
        for app, tick in self._apps():
            if tick:
                self._note(
                    f"views of {app}", PlaceState.WOULD, "recomputed where they read these topics, history forgotten"
                )
        return ErasureCertificate(self.subject, "", self.log.clock.now_us(), tuple(self.places))

    # Doing it

    def run(self) -> ErasureCertificate:
        """Erase the person, and certify."""
        texts = self._texts()
        record, found = erase_person(self.log, self.subject, self.value)
        for each in found:
            self._note(f"topic {each.name}", DONE, _told(each), each.erased.rows)
        self._consumers(found)
        self._captures()
        self._aggregates()
        self._logs_for_people(texts)
        self._views(record)
        restored = bool(self.log.catalog.read("SELECT 1 FROM restores LIMIT 1"))
        ever = restored or (self.log.home / BACKUP_LOCK).exists()
        self.places += tell_places(self.backups, record, self.keys, ever=ever)
        self._scan()
        certificate = ErasureCertificate(self.subject, record.hash, self.log.clock.now_us(), tuple(self.places))
        ErasureRecords(self.log.catalog).certify(record, certificate.to_json())
        rows = sum(each.erased.rows for each in found)
        note_audit(self.log, AuditEntry("erase", local_user(), self.subject, rows=rows, detail=f"record {record.id}"))
        return certificate

    def _note(self, place: str, state: PlaceState, detail: str, rows: int | None = None) -> None:
        self.places.append(PlaceReport(place, state, detail, rows))

    def _topics(self) -> list[Topic]:
        return [topic for topic, _ in LogErasure(self.log, ErasedPeople.of(self.subject, self.value, b"")).topics()]

    def _texts(self) -> list[str]:
        """The person's texts, which logs for people may quote."""
        people, found = ErasedPeople.of(self.subject, self.value, b""), {self.value, *self.markers}
        for topic, rules in LogErasure(self.log, people).topics():
            columns = [name for name, field in zip(topic.schema.names, topic.schema, strict=True) if _is_text(field)]
            wanted = [*dict.fromkeys([*(name for each in rules for name in each.read_columns), *topic.privacy])]
            for batch in topic.read(columns=wanted) if topic.privacy else ():
                for each in rules:
                    theirs = batch.data.filter(pa.array(each.found_in(batch.data, people)))
                    for name in columns:
                        if name in theirs.schema.names and len(found) < VALUES_MAX:
                            found |= {text for text in theirs.column(name).to_pylist() if text}
        return sorted(text for text in found if len(text.encode()) >= LOG_TEXT_BYTES_MIN)

    def _consumers(self, found: Sequence[ErasedTopic]) -> None:
        for name in names_of(found):
            groups = [group.name for group in self.log.get_topic(name).groups()]
            if groups:
                self._note(
                    f"groups of {name}",
                    IMPOSSIBLE,
                    f"{', '.join(sorted(groups))} have read rows and keep what they made of them: tell who runs them",
                )

    def _captures(self) -> None:
        """Large values that captures remember by key: they look them up again when they need them."""
        names = [topic.name for topic in self._topics() if topic.settings.captured_by is not None]
        for path in sorted((self.log.home / "captures").glob("*.sqlite")):
            with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as db:
                db.executemany("DELETE FROM large WHERE name = ?", [(name,) for name in names])
                done = rewritten(db)
            told = "large values of its tables are forgotten" if done else "a reader keeps its log: run this again"
            self._note(f"capture {path.stem}", DONE if done else PENDING, told)
        if names:
            self._note(
                f"databases of {', '.join(names)}",
                IMPOSSIBLE,
                "delete the person there: what is read from there again is not let in here",
            )

    def _aggregates(self) -> None:
        for path in sorted((self.log.home / "aggregates").glob("*.sqlite")):
            for each in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
                self.log.files.unlink(each, label="erase.remove_snapshots")
            self._note(f"snapshots of {path.stem}", DONE, "removed; aggregates are read from their events")
        for topic in self.log.topics():
            if topic.settings.events and not topic.privacy:
                self._note(
                    f"history {topic.name}",
                    PlaceState.NOT_COVERED,
                    "no personal columns are declared for its events; nobody looked at what is in them",
                )

    def _logs_for_people(self, texts: Sequence[str]) -> None:
        changed = 0
        for path in sorted((self.log.home / "views").glob("*/*.log*")):
            changed += _overwritten(path, texts)
        self._note("logs for people", DONE, f"{_count(changed, 'place')} overwritten")

    # Views and sinks

    def _apps(self) -> list[tuple[str, int]]:
        return [
            (row["name"], row["tick"]) for row in self.log.catalog.read("SELECT name, tick FROM apps ORDER BY name")
        ]

    def _views(self, record: ErasureRecord) -> None:
        records = ErasureRecords(self.log.catalog)
        for app, tick in self._apps():
            address = (
                self.runtime.manifests.address() if self.runtime is not None and self.runtime.name == app else None
            )
            if not tick:
                records.followed(app, [record], 0)
                self._note(f"views of {app}", DONE, "it has none yet")
            elif address is not None:
                self._note(
                    f"state of {app}", PlaceState.NOT_COVERED, f"it is at {address}: objects of earlier ticks stay"
                )
            if not tick:
                continue
            if self._runs_elsewhere(app):
                self._await(app, record)
            elif self.runtime is not None and self.runtime.name == app:
                self._follow(self.runtime, record)
            else:
                self._note(f"views of {app}", PENDING, "they follow before the app's next tick: it is not running")

    def _runs_elsewhere(self, app: str) -> bool:
        """Whether another process runs the app, which this one must not shut out."""
        own = self.runtime is not None and self.runtime.name == app and self.runtime._engine is not None
        epoch = Manifests(self.log.catalog, app).epoch()
        return not own and signs_of(self.log.home / "views" / app, epoch).alive

    def _await(self, app: str, record: ErasureRecord) -> None:
        """The process that runs the app corrects its views before its next tick."""
        records, deadline = ErasureRecords(self.log.catalog), time.monotonic() + self.wait_s
        while app not in records.standing(record) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        standing = records.standing(record).get(app)
        told = f"the process that runs it has not followed after {self.wait_s:g} s: ask again"
        if standing is not None:
            told = f"corrected with tick {standing[0]}; earlier ticks are forgotten a minute after it: ask again then"
        if standing is not None and standing[1]:
            told = f"corrected with tick {standing[0]}; every earlier one is forgotten"
        self._note(f"views of {app}", DONE if standing is not None and standing[1] else PENDING, told)
        self._sinks(app, record)

    def _follow(self, runtime: AppRuntime, record: ErasureRecord) -> None:
        with runtime.mapped_errors():
            runtime.tick()  # before which the views are corrected
            self.forget_in_sinks()
            done = ErasureFollower(runtime.engine, runtime.log, runtime.spark, runtime.scratch).forget()
        standing = ErasureRecords(self.log.catalog).standing(record).get(runtime.name)
        told = "a reader keeps the log of a database file: run this again"
        if standing is not None and done:
            told = f"corrected with tick {standing[0]}; every earlier one is forgotten"
        self._note(f"views of {runtime.name}", DONE if standing is not None and done else PENDING, told)
        paused = sorted(runtime.engine.paused)
        if paused:
            self._note(
                f"paused views of {runtime.name}",
                PENDING,
                f"{', '.join(paused)}: they are corrected when they are resumed",
            )
        self._sinks(runtime.name, record)

    def _sinks(self, app: str, record: ErasureRecord) -> None:
        """What the app's sinks have answered."""
        for name, answer in ErasureRecords(self.log.catalog).sinks(app, record).items():
            if answer is None:
                self._note(f"sink {name}", PENDING, "it is cleared when the app has forgotten earlier ticks")
            elif answer[0] is None:
                self._note(f"sink {name}", DONE, "the rows left with the change, and nothing of them is kept")
            else:
                self._note(f"sink {name}", IMPOSSIBLE if answer[1] else PENDING, answer[0])

    # Looking again

    def _scan(self) -> None:
        report = look_for(self.log, self.subject, self.value, self.markers)
        state = DONE if report.ok else PENDING
        lines = str(report).splitlines()
        more = f" and {len(lines) - 1 - SHOWN} more" if len(lines) > SHOWN + 1 else ""
        self._note("residue scan", state, " ".join(each.strip() for each in lines[: SHOWN + 1]) + more)


def look_for(
    log: Log, subject: str, value: str, markers: Sequence[str] = (), folders: Collection[Path] = ()
) -> ScanReport:
    """Search a home, and other folders, for a person: by the id in the subject's columns, and by texts."""
    check_subject(log, subject)
    people = ErasedPeople.of(subject, value, b"")
    of_topics, others = dict[int, frozenset[str]](), set[str]()
    for topic in log.topics():
        ids = {name for name, each in topic.privacy.items() if each.subject == subject and each.by == name}
        of_topics[topic.id] = frozenset(ids)
        others |= set(topic.schema.names) - ids
    # Elsewhere, as in views, a name tells only if it never means anything else.
    everywhere = frozenset().union(*of_topics.values()) - others
    sought = SoughtPerson([people], everywhere, of_topics, usable_markers(value, markers))
    report = scan([log.home, *folders], sought)
    for each in LogErasure(log, people).find():  # segments that are Arrow are not read by value above
        if each.erased.rows:
            report.found.append(Residue(f"topic {each.name}", "rows", each.erased.rows))
    return report


def certificate_of(log: Log, subject: str, value: str) -> ErasureCertificate:
    """The certificate that was given last for a person."""
    record = ErasureRecords(log.catalog).find(subject, value)
    if record is None or record.certificate is None:
        raise Misuse(f"nobody of this {subject} was erased here", hint="headwater erase SUBJECT=ID erases a person.")
    return ErasureCertificate.from_json(record.certificate)


def parse_person(words: Sequence[str]) -> tuple[str, str]:
    """The subject and the id of ``user_id=7``.

    >>> parse_person(["user_id=7"])
    ('user_id', '7')
    >>> parse_person(["7"])
    Traceback (most recent call last):
        ...
    headwater.errors.Misuse: a person is given as SUBJECT=ID, as in user_id=7
      Hint: headwater topic describe tells the subjects of a topic's personal columns.
    """
    subject, equals, value = words[0].partition("=") if len(words) == 1 else ("", "", "")
    if not (subject and equals and value):
        raise Misuse(
            "a person is given as SUBJECT=ID, as in user_id=7",
            hint="headwater topic describe tells the subjects of a topic's personal columns.",
        )
    return subject, value


def _overwritten(path: Path, texts: Sequence[str]) -> int:
    """Replace texts in a file by as many signs, in place: its writer goes on. How many were replaced."""
    data, count = path.read_bytes(), 0
    with path.open("r+b") as file:
        for text in (text.encode() for text in texts):
            at = data.find(text)
            while at >= 0:
                file.seek(at)
                file.write(b"#" * len(text))
                count, at = count + 1, data.find(text, at + len(text))
    return count


def _told(each: ErasedTopic) -> str:
    done = each.erased
    if not done.rows:
        return "no row of the person"
    parts = [_count(done.segments, "segment")] if done.segments else []
    parts += [f"{_count(done.archived, 'file')} of the archive"] if done.archived else []
    return f"{_count(done.rows, 'row')} in {' and '.join(parts)}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _is_text(field: pa.Field) -> bool:
    return bool(pa.types.is_string(field.type) or pa.types.is_large_string(field.type))
