"""A topic as a whole: what happens when a part of an append, a sync or a deletion goes wrong."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import DiskFull, Misuse
from headwater.log.home import Log
from headwater.log.storage.files import Files, mapped


class Faulty(Files):
    """Fails the calls of one label that ``fails`` picks by their number."""

    def __init__(self, label: str, fails: set[int]) -> None:
        self.label, self.fails, self.calls = label, fails, 0

    def _count(self, label: str) -> None:
        if label == self.label:
            self.calls += 1
            if self.calls in self.fails:
                raise mapped(OSError(errno.ENOSPC, "no space"), label)

    def write(self, fd: int, parts: Any, *, label: str) -> int:
        self._count(label)
        return super().write(fd, parts, label=label)

    def sync(self, fd: int, *, label: str) -> None:
        self._count(label)
        super().sync(fd, label=label)


def test_an_append_that_fails_half_way_is_not_there_at_all(tmp_path: Path) -> None:
    with Log(tmp_path, files=Faulty("append.write_data", {2})) as log:
        topic = log.topic("orders", "id BIGINT", key="id", partitions=2)
        rows = [{"id": n} for n in range(10)]

        with pytest.raises(DiskFull):
            topic.append(rows, producer="importer", sequence=0)
        assert list(topic.rows()) == []
        topic.append(rows, producer="importer", sequence=0)

        assert sorted(row["id"] for row in topic.rows()) == list(range(10))


def test_a_sync_that_failed_is_tried_again(tmp_path: Path) -> None:
    files = Faulty("interval.sync_data", {1})
    with Log(tmp_path, files=files) as log:
        topic = log.topic("orders", "id BIGINT", fsync_interval="1 ms")

        topic.append([{"id": 1}])

        deadline = time.monotonic() + 30
        while files.calls < 2 and time.monotonic() < deadline:
            time.sleep(0.005)
        assert files.calls >= 2


def test_a_handle_of_a_deleted_topic_is_told(tmp_path: Path) -> None:
    with Log(tmp_path) as log, Log(tmp_path) as other:
        topic = log.topic("orders", "id BIGINT")
        topic.append([{"id": 1}])

        other.delete_topic("orders")

        with pytest.raises(Misuse, match="was deleted"):
            topic.append([{"id": 2}])


def test_what_another_process_declares_is_seen_and_what_nobody_changes_is_the_same(tmp_path: Path) -> None:
    with Log(tmp_path) as log, Log(tmp_path) as other:
        known = log.topic("orders", "id BIGINT", fsync="never")
        assert log.get_topic("orders").schema is log.get_topic("orders").schema

        other.topic("orders", "id BIGINT, country STRING", fsync="always")
        assert (log.get_topic("orders"), known.schema.names, known.settings.fsync) == (
            known,
            ["id", "country"],
            "always",
        )

        other.delete_topic("orders")
        other.topic("orders", "id STRING")
        assert log.get_topic("orders").append([{"id": "one"}]).frontier == {"orders": {0: 1}}
        assert log.get_topic("orders").schema_version == 1
