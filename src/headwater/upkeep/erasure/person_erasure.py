"""Person erasure: one person, everywhere in a home, and what is said of the places outside of it.

What it is: ``PersonErasure`` goes through the places in the order in which they feed one another: topics, captures'
files, logs for people, the views of apps, their sinks, backups; then it searches what it has done, and certifies.
Invariants: the record is durable before anything changes, and a run that was killed is ended by the next tick, or by
the same call. Nothing is called done that was not done; what was not looked at is said to be not covered.
Not here: each place's own work (``log/erasure/``, ``views/lifecycle/erasure_rebuild.py``, ``backup_erasure.py``).
Read next: ``erasure_certificate.py``; ``docs/erasure.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.encryption.encryption_key import KeySource
from headwater.errors import Misuse
from headwater.log.erasure.erased_people import ErasedPeople
from headwater.log.erasure.erasure_records import ErasureRecords
from headwater.log.erasure.log_erasure import LogErasure, check_subject, erase_person
from headwater.log.maintenance.audit_trail import AuditEntry, local_user, note_audit
from headwater.log.maintenance.removal_pin import FILE as BACKUP_LOCK
from headwater.upkeep.erasure.erased_places import erase_places, places_of, scan_place
from headwater.upkeep.erasure.erasure_certificate import ErasureCertificate, PlaceState
from headwater.upkeep.erasure.erasure_round import DONE, PENDING, ErasureRound, count_of, told_of
from headwater.upkeep.erasure.residue_scan import Residue, ScanReport, SoughtPerson, scan, usable_markers

if TYPE_CHECKING:
    from headwater.log.home import Log
    from headwater.log.topic import Topic
    from headwater.views.runtime import AppRuntime

LOG_TEXT_BYTES_MIN = 6  # values that are replaced in logs for people; shorter ones are parts of other words
VALUES_MAX = 10_000
BACKUPS_WAIT_S = 20.0  # for a backup that is under way
NO_PLACE, NEVER_MADE = "backups", "none was ever made of this home"
NAME_IT = "no place was named: headwater erase … --backups PLACE"
SHOWN = 3  # places of a residue scan that a certificate names


class PersonErasure(ErasureRound):
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
        super().__init__(log, runtime=runtime, forget_in_sinks=forget_in_sinks, wait_s=wait_s)
        self.subject = subject
        self.value = value
        self.backups = backups
        self.keys = keys
        self.markers = markers

    # What would be done

    def find(self) -> ErasureCertificate:
        """What ``run`` would do; nothing is changed."""
        people = ErasedPeople.of(self.subject, self.value, b"")
        for each in LogErasure(self.log, people).find():
            rows = each.erased.rows
            if rows:
                self.note(f"topic {each.name}", PlaceState.WOULD, count_of(rows, "row"), rows)
        for app, tick in self.apps():
            if tick:
                self.note(
                    f"views of {app}", PlaceState.WOULD, "recomputed where they read these topics, history forgotten"
                )
        return ErasureCertificate(self.subject, "", self.log.clock.now_us(), tuple(self.places))

    # Doing it

    def run(self) -> ErasureCertificate:
        """Erase the person, and certify."""
        texts = self._texts()
        record, found = erase_person(self.log, self.subject, self.value)
        for each in found:
            self.note(f"topic {each.name}", DONE, told_of(each), each.erased.rows)
        self.consumers(found)
        self.captures(self._topics())
        self.snapshots()
        self._histories()
        self._logs_for_people(texts)
        self.views(record)
        restored = bool(self.log.catalog.read("SELECT 1 FROM restores LIMIT 1"))
        ever = restored or (self.log.home / BACKUP_LOCK).exists()
        backups = erase_places(self.log, self.backups, self.keys, record, self.value, wait_s=BACKUPS_WAIT_S)
        self.places += backups
        if not backups:
            self.note(*((NO_PLACE, PlaceState.NOT_COVERED, NAME_IT) if ever else (NO_PLACE, DONE, NEVER_MADE)))
        self._scan()
        certificate = ErasureCertificate(self.subject, record.hash, self.log.clock.now_us(), tuple(self.places))
        ErasureRecords(self.log.catalog).certify(record, certificate.to_json())
        rows = sum(each.erased.rows for each in found)
        note_audit(self.log, AuditEntry("erase", local_user(), self.subject, rows=rows, detail=f"record {record.id}"))
        return certificate

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

    def _histories(self) -> None:
        for topic in self.log.topics():
            if topic.settings.events and not topic.privacy:
                self.note(
                    f"history {topic.name}",
                    PlaceState.NOT_COVERED,
                    "no personal columns are declared for its events; nobody looked at what is in them",
                )

    def _logs_for_people(self, texts: Sequence[str]) -> None:
        changed = 0
        for path in sorted((self.log.home / "views").glob("*/*.log*")):
            changed += _overwritten(path, texts)
        self.note("logs for people", DONE, f"{count_of(changed, 'place')} overwritten")

    # Looking again

    def _scan(self) -> None:
        report = look_for(self.log, self.subject, self.value, self.markers)
        state = DONE if report.ok else PENDING
        lines = str(report).splitlines()
        more = f" and {len(lines) - 1 - SHOWN} more" if len(lines) > SHOWN + 1 else ""
        self.note("residue scan", state, " ".join(each.strip() for each in lines[: SHOWN + 1]) + more)


def look_for(
    log: Log,
    subject: str,
    value: str,
    markers: Sequence[str] = (),
    folders: Collection[Path] = (),
    backups: Mapping[str, KeySource | None] | None = None,
) -> ScanReport:
    """Search a home, and other folders, for a person: by the id in the subject's columns, and by texts.

    ``backups``: those at these places, with their keys, and at all others that the home knows; None: none.
    """
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
    for place in () if backups is None else places_of(log, list(backups)):
        scan_place(log, place, (backups or {}).get(place), sought, report)
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


def _is_text(field: pa.Field) -> bool:
    return bool(pa.types.is_string(field.type) or pa.types.is_large_string(field.type))
