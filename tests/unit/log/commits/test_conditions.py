"""Conditional appends: of writers with the same expectation, one comes first and the others are told.

What it is: expected versions of streams, inserts and versions of tables, from threads and processes.
Invariants: the judge counts rows: every accepted append is there, every refused one is not.
Not here: the route (``tests/services/server/test_transaction_routes.py``).
Read next: ``log/commits/value_versions.py``.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.errors import InvalidDeclaration, Misuse, RowRefused, VersionConflict
from headwater.log.home import Log
from headwater.log.maintenance.sealing import seal_partition
from headwater.log.table import declare_table
from headwater.testing import ManualClock


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "home", clock=ManualClock()) as log:
        yield log


def test_expectations_hold_or_refuse(log: Log) -> None:
    payments = log.topic("payments", "account BIGINT, cents BIGINT", ordered_by="account", partitions=4)
    row = {"account": 7, "cents": 1}
    with pytest.raises(VersionConflict, match='account=7 of "payments" is not there'):
        payments.append([row], expected="exists")
    payments.append([row, row], expected="none")
    payments.append([row], expected=2)
    payments.append([row], expected="exists")
    for expected in ("none", 0, 3, 5):
        with pytest.raises(VersionConflict) as refused:
            payments.append([row], expected=expected)
        assert refused.value.data["version"] == 4
    payments.append([{"account": 8, "cents": 1}, {"account": 9, "cents": 1}], expected="none")

    assert payments.version(7) == 4
    assert len(list(payments.rows())) == 6


def test_versions_are_known_to_another_process_and_after_sealing(log: Log) -> None:
    payments = log.topic("payments", "account BIGINT, cents BIGINT", ordered_by="account")
    for expected in range(3):
        payments.append([{"account": 7, "cents": 1}], expected=expected)
    payments.partition(0).roll()
    seal_partition(payments, 0)
    with Log(log.home) as other:
        other.get_topic("payments").append([{"account": 7, "cents": 1}], expected=3)
        with pytest.raises(VersionConflict):
            payments.append([{"account": 7, "cents": 1}], expected=3)


def test_wrong_expectations_are_told(log: Log) -> None:
    streams = log.topic("streams", "a BIGINT", ordered_by="a")
    plain = log.topic("plain", "a BIGINT")
    with pytest.raises(InvalidDeclaration, match="no streams"):
        plain.append([{"a": 1}], expected=0)
    with pytest.raises(InvalidDeclaration, match="cannot be -1"):
        streams.append([{"a": 1}], expected=-1)
    with pytest.raises(InvalidDeclaration, match="the rows belong to several"):
        streams.append([{"a": 1}, {"a": 2}], expected=0)
    with pytest.raises(Misuse, match="neither key nor ordered_by"):
        plain.version(1)
    with pytest.raises(InvalidDeclaration, match="exclude each other"):
        log.topic("both", "a BIGINT", key="a", ordered_by="a")
    with pytest.raises(InvalidDeclaration, match="decides the partition"):
        streams.append([{"a": 1}], partition=0)
    with pytest.raises(InvalidDeclaration, match="has no partition 3"):
        plain.append([{"a": 1}], partition=3)


def test_streams_that_lost_rows_to_retention_have_no_versions(log: Log) -> None:
    streams = log.topic("streams", "a BIGINT", ordered_by="a", retention_bytes=1, segment_bytes_max=1)
    for _ in range(3):
        streams.append([{"a": 1}])
    streams.partition(0).roll()
    log.maintain()
    assert streams.start_offsets()[0] > 0
    with pytest.raises(Misuse, match="lost rows to retention"):
        streams.append([{"a": 1}], expected=3)


def test_inserts_and_versions_of_tables(log: Log) -> None:
    users = declare_table(log, "users", "id BIGINT, name STRING", key="id", partitions=4)
    users.insert([{"id": n, "name": "first"} for n in range(20)])
    with pytest.raises(VersionConflict, match='id=3 of "users" has version'):
        users.insert([{"id": 100, "name": "new"}, {"id": 3, "name": "again"}])
    with pytest.raises(RowRefused, match="have the same key"):
        users.insert([{"id": 200, "name": "a"}, {"id": 200, "name": "b"}])
    assert users.get(100) == []

    seen = users.version(3)
    users.upsert([{"id": 3, "name": "second"}], if_version=seen)
    with pytest.raises(VersionConflict):
        users.upsert([{"id": 3, "name": "third"}], if_version=seen)
    users.delete([{"id": 3}])
    assert users.version(3) == 0
    users.insert([{"id": 3, "name": "back"}])
    assert users.get(3) == [{"id": 3, "name": "back"}]


def test_conditions_refuse_a_whole_transaction(log: Log) -> None:
    payments = log.topic("payments", "account BIGINT", ordered_by="account", partitions=4)
    audit = log.topic("audit", "n BIGINT")
    payments.append([{"account": 1}])
    with pytest.raises(VersionConflict), log.transaction() as t:  # noqa: PT012
        t.append(audit, [{"n": 1}])
        t.append(payments, [{"account": 2}], expected="none")
        t.append(payments, [{"account": 1}], expected=0)

    assert list(audit.rows()) == []
    assert payments.version(2) == 0


WRITER = """
import sys
from headwater.errors import VersionConflict
from headwater.log.home import Log
with Log(sys.argv[1]) as log:
    topic = log.get_topic("counter")
    print("ready", flush=True)
    done = 0
    while done < 40:
        seen = topic.version(1)
        try:
            topic.append([{"a": 1, "n": seen}], expected=seen)
            done += 1
        except VersionConflict:
            pass
"""


def test_writers_that_read_and_append_lose_no_update(log: Log) -> None:
    counter = log.topic("counter", "a BIGINT, n BIGINT", ordered_by="a", partitions=2)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(log.home)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]

    def also_here() -> None:
        done = 0
        while done < 40:
            seen = counter.version(1)
            try:
                counter.append([{"a": 1, "n": seen}], expected=seen)
                done += 1
            except VersionConflict:
                continue

    threads = [threading.Thread(target=also_here) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for writer in writers:
        writer.communicate(timeout=120)

    assert [row["n"] for row in counter.rows()] == list(range(160))
