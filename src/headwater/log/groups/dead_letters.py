"""Dead letters: messages that a work group gave up, kept in a topic with the reason.

What it is: ``bury`` records letters in the transaction that settles the message; ``post`` appends recorded letters to
the topic ``<topic>.<group>.dead``.
Invariants: exactly once, also across crashes. Letters of one transaction share one sequence number and are posted as
one append under it, each with the metadata of its message; sequences rise in the order of the transactions, and posting
begins at the lowest pending one. A batch that was posted before is recognised by its sequence and not written again.
Not here: when a message is given up (``worker.py``). Read next: ``worker.py``.
"""

from __future__ import annotations

import datetime as dt
import logging
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import Unavailable
from headwater.log.schema.event_metadata import METADATA_NAMES, Metadata, with_metadata
from headwater.log.schema.json_lines import json_line

if TYPE_CHECKING:
    from headwater.log.topic import Topic

TABLE_DEAD_LETTERS = """
CREATE TABLE IF NOT EXISTS dead_letters (  -- buried and not yet posted
    group_id INTEGER NOT NULL REFERENCES groups(id) ON DELETE CASCADE,
    sequence INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    deliveries INTEGER NOT NULL,
    reason TEXT NOT NULL,
    worker TEXT,
    died_us INTEGER NOT NULL,
    row TEXT NOT NULL,
    posting INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (group_id, sequence, partition, offset)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS dead_letter_metadata (  -- of those of them that have some
    group_id INTEGER NOT NULL REFERENCES groups(id) ON DELETE CASCADE,
    sequence INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    correlation_id TEXT,
    causation_id TEXT,
    actor TEXT,
    PRIMARY KEY (group_id, sequence, partition, offset)
) WITHOUT ROWID;
"""

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("group", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("deliveries", pa.int32()),
        ("reason", pa.string()),
        ("worker", pa.string()),
        ("died_at", pa.timestamp("us", tz="UTC")),
        ("row", pa.string()),
    ]
)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeadLetter:
    """A message to be given up."""

    partition: int
    offset: int
    deliveries: int
    reason: str
    worker: str | None
    row: Mapping[str, Any]
    metadata: Metadata


def dead_letter_topic(topic: str, group: str) -> str:
    """The name of the topic that a work group's dead letters go to.

    >>> dead_letter_topic("orders", "mailers")
    'orders.mailers.dead'
    """
    return f"{topic}.{group}.dead"


def bury(db: sqlite3.Connection, group_id: int, letters: Sequence[DeadLetter], *, now_us: int, keep: bool) -> None:
    """Count letters and put them into the catalog, inside the transaction that settles their messages.

    ``keep=False``: only count them.
    """
    if not letters:
        return
    db.execute(
        "UPDATE work_groups SET dead = dead + ?, dead_sequence = dead_sequence + 1 WHERE group_id = ?",
        (len(letters), group_id),
    )
    if not keep:
        return
    sequence = db.execute("SELECT dead_sequence FROM work_groups WHERE group_id = ?", (group_id,)).fetchone()[0]
    db.executemany(
        "INSERT INTO dead_letters (group_id, sequence, partition, offset, deliveries, reason, worker, died_us, row)"
        f" VALUES ({group_id}, {sequence}, ?, ?, ?, ?, ?, {now_us}, ?)",
        [
            (each.partition, each.offset, each.deliveries, each.reason, each.worker, json_line(dict(each.row)))
            for each in letters
        ],
    )
    db.executemany(
        f"INSERT INTO dead_letter_metadata VALUES ({group_id}, {sequence}, ?, ?, ?, ?, ?)",
        [(each.partition, each.offset, *astuple(each.metadata)) for each in letters if not each.metadata.empty],
    )


def post(topic: Topic, group: str, group_id: int) -> int:
    """Carry what is buried to the dead-letter topic; returns how many letters this call posted.

    If that is impossible for now (a full disk), they stay in the catalog and the next take of any worker posts them.
    """
    try:
        return _post(topic, group, group_id)
    except Unavailable as error:
        _logger.warning("dead letters of group %s stay in the catalog for now: %s", group, error.message)
        return 0


def _post(topic: Topic, group: str, group_id: int) -> int:
    with topic.log.catalog.write(durable=True) as db:
        # A power cut must not take back a sequence number that the topic has seen: the number would then be given
        # to another letter, which the topic would take for a repetition. This commit makes all before it durable.
        db.execute("UPDATE dead_letters SET posting = 1 WHERE group_id = ? AND posting = 0", (group_id,))
    rows = topic.log.catalog.read(
        "SELECT * FROM dead_letters LEFT JOIN dead_letter_metadata USING (group_id, sequence, partition, offset)"
        " WHERE group_id = ? AND posting = 1 ORDER BY sequence, partition, offset",
        (group_id,),
    )
    batches: dict[int, list[sqlite3.Row]] = {}
    for row in rows:
        batches.setdefault(row["sequence"], []).append(row)
    if not batches:
        return 0
    dead = topic.log.topic(dead_letter_topic(topic.name, group), SCHEMA, partitions=1, fsync="always")
    for sequence, letters in batches.items():
        batch = dead.row_batch([_as_row(topic.name, group, letter) for letter in letters])
        said = [Metadata.carried(*(letter[name] for name in METADATA_NAMES)) for letter in letters]
        # Ids of groups are never used twice, so a group of the same name made later has sequences of its own.
        dead.append_batch(
            with_metadata(batch, said if any(said) else None), producer=f"dead-letter-{group_id}", sequence=sequence
        )
    with topic.log.catalog.write() as db:
        for table in ("dead_letters", "dead_letter_metadata"):
            db.execute(f"DELETE FROM {table} WHERE group_id = ? AND sequence <= ?", (group_id, max(batches)))
    return len(rows)


def _as_row(topic: str, group: str, row: sqlite3.Row) -> dict[str, Any]:
    return {
        "topic": topic,
        "group": group,
        "partition": row["partition"],
        "offset": row["offset"],
        "deliveries": row["deliveries"],
        "reason": row["reason"],
        "worker": row["worker"],
        "died_at": dt.datetime.fromtimestamp(row["died_us"] / 1_000_000, tz=dt.UTC),
        "row": row["row"],
    }
