"""Log expiry: what is kept longer than its purposes is blanked in every topic of a home.

What it is: ``expire_log`` does for ended purposes what ``log_erasure.py`` does for a person, by the same steps and with
a record in the same phases; ``find_expired`` only tells.
Invariants: the record is durable before the first byte changes; a run that was killed is ended with the times that it
began with. A run that finds nothing changes nothing, and views need not follow. Offsets, times and rows stay.
Not here: one partition (``segment_erasure.py``); views, sinks and other places (``upkeep/erasure/purpose_expiry.py``).
Read next: ``expired_rows.py``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from headwater.log.erasure.erasure_records import ErasureRecord, ErasureRecords
from headwater.log.erasure.expired_rows import ExpiredRows
from headwater.log.erasure.log_erasure import ErasedTopic, LogErasure, at_work, end_records, names_of
from headwater.log.erasure.purposes import Purposes

if TYPE_CHECKING:
    from headwater.log.home import Log


def expired_now(log: Log) -> ExpiredRows:
    """What is too old at this moment."""
    return ExpiredRows.at(log.clock.now_us(), Purposes(log.catalog).all().values())


def find_expired(log: Log) -> list[ErasedTopic]:
    """What ``expire_log`` would blank; nothing is changed."""
    return LogErasure(log, expired_now(log)).find()


def expire_log(log: Log) -> tuple[ErasureRecord | None, list[ErasedTopic]]:
    """Blank what has ended: the record, if there was something, and what was found.

    >>> import datetime as dt, headwater as hw, tempfile
    >>> from headwater.log.erasure.purposes import declare_purpose
    >>> address = hw.Personal("user_id", by="user_id", purpose="shipping")
    >>> privacy = {"user_id": hw.Personal("user_id"), "address": address}
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> schema = "user_id BIGINT, address STRING, at TIMESTAMP"
    >>> orders = log.topic("orders", schema, event_time="at", privacy=privacy)
    >>> now = dt.datetime.now(dt.UTC)
    >>> times = [now - dt.timedelta(days=200), now]
    >>> _ = orders.append([{"user_id": 1, "address": "Main Street", "at": at} for at in times])
    >>> _ = declare_purpose(log, "shipping", "180 days")
    >>> [(each.name, each.erased.rows) for each in expire_log(log)[1]]
    [('orders', 1)]
    >>> [row["address"] for row in orders.rows()], expire_log(log)
    ([None, 'Main Street'], (None, []))
    """
    with at_work(log, wait=True):
        end_records(log)
        return _expire(log)


def expire_first(log: Log) -> list[ErasedTopic]:
    """The same in a home that never did so; what was found. The caller has the right to work."""
    if not Purposes(log.catalog).is_due(log.identity, log.clock.now_us(), every_us=sys.maxsize):
        return []
    return _expire(log)[1]


def _expire(log: Log) -> tuple[ErasureRecord | None, list[ErasedTopic]]:
    records, purposes, now_us = ErasureRecords(log.catalog), Purposes(log.catalog), log.clock.now_us()
    expired = ExpiredRows.at(now_us, purposes.all().values())
    found = [each for each in LogErasure(log, expired).find() if each.erased.rows] if expired.before_us else []
    if not found:
        purposes.was_done(log.identity, now_us)
        return None, []
    names = _with_origins(log, expired, names_of(found))
    record = records.begin_expiry(expired.with_topics(names), now_us=now_us)
    done = [each for each in LogErasure(log, record.erased).run() if each.erased.rows]
    records.finish_log(record)
    purposes.was_done(log.identity, now_us)
    return record, done


def _with_origins(log: Log, expired: ExpiredRows, names: list[str]) -> list[str]:
    """These topics; where some have copies of rows, all that declare columns, whose rules these go by."""
    declaring = {topic.name for topic in log.topics() if expired.rules_of(topic) is not None}
    return names if set(names) <= declaring else sorted(declaring)
