"""What went wrong in Litestream's year of issues, as tests of ours, each with the number of the issue.

What it is: one test for each failure that users of benbjohnson/litestream met: #753, #771, #847, #1084, #1427. Two more
are where what they need is: #781 in ``test_backup_writer.py``, #1077 in ``tests/services/test_backup_on_s3.py``.
Invariants: the failure is brought about with what of ours is nearest (a sealed segment for a compacted file, retention
for retention), and every point that is said to be covered is restored and compared with what the log was then.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.errors import BackupDamaged
from headwater.log.home import Log
from headwater.log.topic import Topic
from headwater.testing import ManualClock
from headwater.upkeep.backup.backup_repository import BackupRepository
from headwater.upkeep.backup.backup_writer import create_backup
from headwater.upkeep.backup.home_restore import restore_home
from headwater.upkeep.backup.point_restore import restore_at
from headwater.upkeep.backup.repository_prune import prune

DAY_S = 86_400
Ids = list[int]


def ids_of(topic: Topic) -> Ids:
    return [row["id"] for batch in topic.read("earliest") for row in batch.to_pylist()]


def ids_at(place: Path, home: Path, **point: Any) -> Ids:
    """The rows of a home that is restored to a point."""
    report = restore_at(place, home, **point) if point else restore_home(place, home)
    with Log(report.home, maintenance_interval=None) as log:
        assert log.check().ok
        return ids_of(log.get_topic("orders"))


def seal(topic: Topic) -> None:
    topic.partition(0).roll()
    topic.log.maintain()


def test_litestream_753_a_home_that_lost_its_first_rows_before_its_first_backup_is_restored(tmp_path: Path) -> None:
    """Replication that began on an old database had no transaction 1, and no restore found its beginning."""
    clock, place = ManualClock(), tmp_path / "backups"
    with Log(tmp_path / "home", clock=clock, maintenance_interval=None) as log:
        orders = log.topic("orders", "id BIGINT", retention="2 days")
        for day in range(6):
            orders.append([{"id": day}])
            seal(orders)
            clock.advance(DAY_S)
        log.maintain()
        assert orders.start_offsets()[0] > 0
        kept = ids_of(orders)
        create_backup(log, place)
        at_us = clock.now_us()
        clock.advance(60)
        orders.append([{"id": 100}])
        create_backup(log, place)

    assert ids_at(place, tmp_path / "newest") == [*kept, 100]
    assert ids_at(place, tmp_path / "point", at_us=at_us) == kept


def test_litestream_771_a_moment_before_rows_were_rewritten_is_restored_after_it(tmp_path: Path) -> None:
    """A compacted file had the time of the compaction, so every moment before it was refused."""
    clock, place, moments = ManualClock(), tmp_path / "backups", list[tuple[int, Ids]]()
    with Log(tmp_path / "home", clock=clock, maintenance_interval=None) as log:
        orders = log.topic("orders", "id BIGINT")
        for number in range(4):
            orders.append([{"id": number}])
            moments.append((clock.now_us(), ids_of(orders)))
            clock.advance(60)
        clock.advance(DAY_S)
        seal(orders)  # its rows lie in another file now, which was written a day after them
        create_backup(log, place)

    for number, (at_us, expected) in enumerate(moments):
        assert ids_at(place, tmp_path / f"{number}", at_us=at_us) == expected


def test_litestream_847_backups_that_are_gone_in_between_leave_no_gap_for_the_others(tmp_path: Path) -> None:
    """A file that was missing in the chain of transactions made all that came after it useless."""
    clock, place, moments = ManualClock(), tmp_path / "backups", list[tuple[int, Ids]]()
    with Log(tmp_path / "home", clock=clock, maintenance_interval=None) as log:
        orders = log.topic("orders", "id BIGINT")
        for day in range(6):
            orders.append([{"id": day}])
            if day % 2:
                seal(orders)
            moments.append((clock.now_us(), ids_of(orders)))
            clock.advance(60)
            create_backup(log, place)
            clock.advance(DAY_S)
    repository = BackupRepository.at(place)
    for backup in repository.ids()[1:4]:
        repository.remove(backup)
    prune(repository, "2")  # the first one goes too, and the objects that only those had

    assert len(repository.ids()) == 2
    assert repository.verify().ok
    for number, (at_us, expected) in enumerate(moments):
        assert ids_at(place, tmp_path / f"{number}", at_us=at_us) == expected


def test_litestream_1084_a_moment_is_restored_after_retention_has_dropped_its_rows(tmp_path: Path) -> None:
    """Points in time failed once retention had removed what the newest files no longer had."""
    clock, place, moments = ManualClock(), tmp_path / "backups", list[tuple[int, Ids]]()
    with Log(tmp_path / "home", clock=clock, maintenance_interval=None) as log:
        orders = log.topic("orders", "id BIGINT", retention="2 days")
        for day in range(8):
            orders.append([{"id": day}])
            seal(orders)
            moments.append((clock.now_us(), ids_of(orders)))
            clock.advance(60)
            create_backup(log, place)
            clock.advance(DAY_S)
        log.maintain()
        assert 0 not in ids_of(orders)

    for number, (at_us, expected) in enumerate(moments):
        assert ids_at(place, tmp_path / f"{number}", at_us=at_us) == expected


def test_litestream_1427_a_restore_takes_what_verify_calls_sound_and_nothing_else(tmp_path: Path) -> None:
    """The restore refused files which the tool that verifies them passed, and the other way round."""
    place = tmp_path / "backups"
    with Log(tmp_path / "home", maintenance_interval=None) as log:
        orders = log.topic("orders", "id BIGINT", proof=True)
        orders.append([{"id": n} for n in range(100)])
        seal(orders)
        orders.append([{"id": 100}])
        create_backup(log, place)
    repository = BackupRepository.at(place)
    assert repository.verify().ok
    assert ids_at(place, tmp_path / "sound") == list(range(101))

    files = sorted(path for path in place.rglob("*") if path.is_file() and path.parts[-2] != "turns")
    kinds = {path.relative_to(place).parts[1] for path in files if "objects" in path.parts}
    assert kinds == {"segments", "tails", "databases"}
    for number, path in enumerate(files):
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if number % 2 else data[: len(data) // 2])
        assert len(repository.verify().problems) == 1, path
        with pytest.raises(BackupDamaged):
            restore_home(place, tmp_path / f"damaged-{number}")
        assert not (tmp_path / f"damaged-{number}" / "headwater.json").exists()
        path.write_bytes(data)
