"""Purpose expiry: what is kept longer than its purposes goes from a whole home, as a person does by an erasure.

What it is: ``PurposeExpiry`` blanks what has ended in topics, and goes on to captures' files, snapshots of aggregates,
the views of apps and their sinks; ``ExpirySchedule`` is the thread that does so while an app runs.
Invariants: where nothing has ended nothing is touched, and views and sinks go on. What apps have not followed yet is
said to be pending; asking again tells what became of it.
Not here: the log (``log/erasure/log_expiry.py``), declared purposes (``log/erasure/purposes.py``).
Read next: ``erasure_round.py``; ``docs/privacy.md``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headwater.clock import format_us
from headwater.errors import HeadwaterError
from headwater.log.erasure.erasure_records import ErasureRecords
from headwater.log.erasure.log_erasure import names_of
from headwater.log.erasure.log_expiry import expire_log, expired_now, find_expired
from headwater.log.erasure.purposes import Purposes, misspelled
from headwater.log.home import Log
from headwater.log.maintenance.audit_trail import AuditEntry, local_user, note_audit
from headwater.upkeep.erasure.erasure_certificate import PlaceReport, PlaceState, table_of
from headwater.upkeep.erasure.erasure_round import DONE, ErasureRound, count_of, told_of
from headwater.upkeep.routine import Routine

logger = logging.getLogger("headwater.privacy")

EVERY_US = 86_400_000_000
LOOK_SECONDS = 10.0
RETRY_US = 5 * 60 * 1_000_000


@dataclass(frozen=True)
class ExpiryReport:
    """What an expiry did: place by place, and up to which event time each purpose has ended."""

    ended: dict[str, str]  # {purpose: time}
    rows: int
    places: tuple[PlaceReport, ...]
    kept_forever: tuple[str, ...]  # sentences: columns of purposes that nobody has declared

    @property
    def complete(self) -> bool:
        """Whether nothing is left to be done."""
        return all(place.state is not PlaceState.PENDING for place in self.places)

    def to_dict(self) -> dict[str, Any]:
        """The shape programs get."""
        places = [{**vars(place), "state": str(place.state)} for place in self.places]
        kept = list(self.kept_forever)
        return {"ended": self.ended, "rows": self.rows, "complete": self.complete, "places": places, "undeclared": kept}

    def __str__(self) -> str:
        before = ", ".join(f"{name} before {time}" for name, time in self.ended.items())
        head = f"{count_of(self.rows, 'row')} of {before}" if before else "no purpose ends"
        return "\n".join([head, *table_of(self.places), *self.kept_forever])


class PurposeExpiry(ErasureRound):
    """What has ended in a home. With ``runtime`` the views of that app follow at once.

    >>> import headwater as hw, tempfile
    >>> print(PurposeExpiry(hw.Log(tempfile.mkdtemp())).run())
    no purpose ends
    """

    leftover = PlaceState.NOT_COVERED  # a routine does not wait for it
    at_the_source = "rows stay there; what is read from there again comes in blanked"

    def find(self) -> ExpiryReport:
        """What ``run`` would do; nothing is changed."""
        rows = 0
        for each in find_expired(self.log):
            rows += each.erased.rows
            if each.erased.rows:
                self.note(f"topic {each.name}", PlaceState.WOULD, count_of(each.erased.rows, "row"), each.erased.rows)
        return self._report(rows)

    def run(self) -> ExpiryReport:
        """Blank what has ended, and tell; of what was found earlier, what views and sinks have done meanwhile."""
        record, found = expire_log(self.log)
        for each in found:
            self.note(f"topic {each.name}", DONE, told_of(each), each.erased.rows)
        rows = sum(each.erased.rows for each in found)
        if record is not None:
            self.consumers(found)
            self.captures([self.log.get_topic(name) for name in names_of(found)])
            self.snapshots()
            ended = ", ".join(self._ended())
            note_audit(self.log, AuditEntry("expire", local_user(), ended, rows=rows, detail=f"record {record.id}"))
        record = record or ErasureRecords(self.log.catalog).expiry()
        if record is not None:
            self.views(record)
        return self._report(rows)

    def _ended(self) -> dict[str, str]:
        return {name: format_us(before) for name, before in expired_now(self.log).before_us.items()}

    def _report(self, rows: int) -> ExpiryReport:
        return ExpiryReport(self._ended(), rows, tuple(self.places), tuple(misspelled(self.log)))


class ExpirySchedule(Routine):
    """The thread that lets purposes end once a day, while an app runs; the loop that ticks follows it by itself."""

    def __init__(self, log: Callable[[], Log]) -> None:
        super().__init__("headwater-expiry", LOOK_SECONDS)
        self._log = log
        self._retry_us = 0

    def step(self) -> None:
        """Do what is due."""
        log = self._log()
        now_us = log.clock.now_us()
        if now_us < self._retry_us or not Purposes(log.catalog).is_due(log.identity, now_us, every_us=EVERY_US):
            return
        try:
            logger.info("%s", PurposeExpiry(log, wait_s=0).run())
        except Exception as error:  # a backup copies files, a disk is full: it never ends the app
            self._retry_us = now_us + RETRY_US
            message = error.message if isinstance(error, HeadwaterError) else f"{type(error).__name__}: {error}"
            logger.warning("what has ended could not be blanked, which is tried again: %s", message)
