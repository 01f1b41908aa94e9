"""Purposes: what personal columns are kept for, and how long.

What it is: ``Purposes``, the catalog's tables of declared purposes and of the last expiry; ``declare_purpose`` checks a
declaration against the topics.
Invariants: a purpose is one of the home's, not of one app, and stays until it is declared otherwise. A column is kept
as long as the longest of its purposes; one that was not declared, or is kept forever, never ends.
Not here: what becomes of rows (``expired_rows.py``), the work (``log_expiry.py``).
Read next: ``expired_rows.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.durations import Duration, to_text, to_us
from headwater.errors import InvalidDeclaration
from headwater.hints import suggestion
from headwater.log.catalog.catalog import Catalog

if TYPE_CHECKING:
    from headwater.log.home import Log
    from headwater.log.topic import Topic

TABLES_PURPOSES = """
CREATE TABLE IF NOT EXISTS purposes (
    name TEXT PRIMARY KEY,
    keep_us INTEGER                      -- NULL: forever
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS expired (     -- the last time that all of the home was looked through
    one INTEGER PRIMARY KEY CHECK (one = 1),
    home TEXT NOT NULL,                  -- a restored one has an identity of its own, and is looked through anew
    at_us INTEGER NOT NULL
);
"""

FOREVER = "forever"


@dataclass(frozen=True)
class Purpose:
    """What columns are kept for; ``keep_us``: how long, None: forever."""

    name: str
    keep_us: int | None


class Purposes:
    """The purposes of one home.

    >>> import headwater as hw, tempfile
    >>> purposes = Purposes(hw.Log(tempfile.mkdtemp()).local.catalog)
    >>> purposes.declare(Purpose("shipping", 180))
    >>> purposes.all(), purposes.is_due("home", 0, every_us=10)
    ({'shipping': Purpose(name='shipping', keep_us=180)}, True)
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def all(self) -> dict[str, Purpose]:
        """Every declared purpose, by name."""
        rows = self.catalog.read("SELECT name, keep_us FROM purposes ORDER BY name")
        return {row["name"]: Purpose(row["name"], row["keep_us"]) for row in rows}

    def declare(self, purpose: Purpose) -> None:
        """Keep a declaration, in place of an older one."""
        if self.all().get(purpose.name) != purpose:
            with self.catalog.write(durable=True) as db:
                db.execute("INSERT OR REPLACE INTO purposes VALUES (?, ?)", (purpose.name, purpose.keep_us))
                db.execute("DELETE FROM expired")  # another time counts at once

    def is_due(self, home: str, now_us: int, *, every_us: int) -> bool:
        """Whether rows are to be looked through: some purpose ends, and it was not done for so long."""
        if all(each.keep_us is None for each in self.all().values()):
            return False
        rows = self.catalog.read("SELECT at_us FROM expired WHERE home = ?", (home,))
        return not rows or now_us - rows[0]["at_us"] >= every_us

    def was_done(self, home: str, now_us: int) -> None:
        """All of the home was looked through."""
        with self.catalog.write(durable=True) as db:
            db.execute("INSERT OR REPLACE INTO expired VALUES (1, ?, ?)", (home, now_us))


def columns_of(topics: Iterable[Topic], purpose: str) -> Iterator[tuple[Topic, str]]:
    """The columns that are declared for a purpose."""
    for topic in topics:
        for name, personal in topic.privacy.items():
            if purpose in personal.purposes:
                yield topic, name


def declare_purpose(log: Log, name: str, keep: Duration) -> Purpose:
    """Declare how long the columns of a purpose are kept: ``app.purpose``.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> address = hw.Personal("user_id", by="user_id", purpose="shipping")
    >>> of_users = {"user_id": hw.Personal("user_id"), "address": address}
    >>> columns = "user_id BIGINT, address STRING, at TIMESTAMP"
    >>> _ = log.topic("orders", columns, event_time="at", privacy=of_users)
    >>> declare_purpose(log, "shipping", "180 days").keep_us
    15552000000000
    >>> declare_purpose(log, "shiping", "180 days")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: no column of this home has the purpose "shiping"
      Hint: Did you mean "shipping"?
    """
    topics = log.topics()
    found = list(columns_of(topics, name))
    if not found:
        known = sorted({each for topic in topics for personal in topic.privacy.values() for each in personal.purposes})
        raise InvalidDeclaration(
            f'no column of this home has the purpose "{name}"',
            hint=suggestion(
                name,
                known,
                otherwise=f'Declare topics before their purposes: privacy={{"…": hw.Personal(…, purpose="{name}")}}.',
            ),
        )
    keep_us = None if keep == FOREVER else to_us(keep, what=f'keep of purpose "{name}"')
    if keep_us == 0:
        raise InvalidDeclaration(
            f'keep of purpose "{name}" cannot be {keep!r}', hint='Use a time as "180 days", or "forever".'
        )
    if keep_us is not None:
        for topic, column in found:
            _check(topic, column, name, keep_us)
    purpose = Purpose(name, keep_us)
    Purposes(log.catalog).declare(purpose)
    return purpose


def _check(topic: Topic, column: str, purpose: str, keep_us: int) -> None:
    settings, title = topic.settings, f'column "{column}" of topic "{topic.name}"'
    if settings.event_time is None:
        raise InvalidDeclaration(
            f'{title} is of the purpose "{purpose}", which ends, and the topic has no event time',
            detail="How old a row is follows from its event time.",
            hint='Declare one: event_time="created_at".',
            topic=topic.name,
        )
    if column in (*settings.routed_by, settings.event_time):
        role = "event time" if column == settings.event_time else "key"
        raise InvalidDeclaration(
            f'{title} is of the purpose "{purpose}", which ends, and is its {role}, which is never blanked',
            hint="Leave the purpose out of it, and let retention= or compaction take whole rows.",
            topic=topic.name,
        )
    if settings.retention_ms is not None and settings.archive is None and keep_us > settings.retention_ms * 1000:
        raise InvalidDeclaration(
            f'purpose "{purpose}" is kept for {to_text(keep_us)}, and topic "{topic.name}" keeps its rows '
            f"for {to_text(settings.retention_ms * 1000)}",
            hint="Keep the rows longer (retention=, archive=), or the purpose shorter.",
            topic=topic.name,
        )


def misspelled(log: Log) -> list[str]:
    """Sentences about columns of purposes that nobody has declared: they are kept forever."""
    topics, known = log.topics(), Purposes(log.catalog).all()
    others = {each for topic in topics for personal in topic.privacy.values() for each in personal.purposes}
    return [
        f'column "{column}" of topic "{topic.name}" is of the purpose "{name}", which is not declared: it is kept '
        f"forever. {suggestion(name, sorted(known), otherwise='')}".strip()
        for name in sorted(others - set(known))
        for topic, column in columns_of(topics, name)
    ]
