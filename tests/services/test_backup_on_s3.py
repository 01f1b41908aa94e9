"""Backups on a real S3 server, with answers that are lost and a server that is away for a while."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.encryption.encryption_key import KeySource, new_key_file
from headwater.errors import BackupDamaged
from headwater.log.home import Log
from headwater.upkeep.backup.backup_repository import BackupRepository
from headwater.upkeep.backup.backup_writer import create_backup
from headwater.upkeep.backup.home_restore import restore_home
from headwater.upkeep.backup.repository_prune import prune
from tests.services.s3_server import BUCKET, CREDENTIALS, S3Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    started = S3Server(tmp_path_factory.mktemp("s3"))
    started.start()
    yield started
    started.stop()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_backups_on_s3_are_incremental_verified_pruned_and_restored(
    server: S3Server, tmp_path: Path, encrypted: bool
) -> None:
    place = f"s3://{BUCKET}/safe/shop-{encrypted}?endpoint={server.endpoint}"
    key = KeySource(file=tmp_path / "shop.key") if encrypted else None
    if encrypted:
        new_key_file(tmp_path / "shop.key")
    with Log(tmp_path / "home", maintenance_interval=None) as log:
        orders = log.topic("orders", "id BIGINT, item STRING", key="id", partitions=2)
        orders.append([{"id": n, "item": "x" * 50} for n in range(5000)])
        for partition in range(2):
            orders.partition(partition).roll()
        log.maintain()
        first = create_backup(log, place, key=key).manifest
        orders.append([{"id": 1, "item": "new"}])
        server.kill()
        server.start()  # a connection that was open is lost; requests are repeated
        second = create_backup(log, place, key=key).manifest
    repository = BackupRepository.at(place, key)
    assert [each.id for each in repository.manifests()] == [first.id, second.id]
    assert second.written_bytes < first.written_bytes
    assert second.written_objects <= 3

    files = [path for path in (server.buckets / BUCKET / f"safe/shop-{encrypted}").rglob("*") if path.is_file()]
    assert len(files) > 5
    assert any(b"orders" in path.read_bytes() or "orders" in str(path) for path in files) != encrypted

    assert len(prune(repository, "1").removed) == 1
    assert repository.verify().ok
    report = restore_home(place, tmp_path / "again", key=key)
    with Log(report.home, maintenance_interval=None) as again:
        assert again.check().ok
        assert sum(again.get_topic("orders").end_offsets().values()) == 5001

    damaged = next(piece for piece in second.pieces() if "/segments/" in piece.name)
    content = bytearray(repository.store.get(damaged.name) or b"")
    content[len(content) // 2] ^= 1
    repository.store.put(damaged.name, bytes(content))
    assert [damaged.name in problem for problem in repository.verify().problems] == [True]
    with pytest.raises(BackupDamaged):
        restore_home(place, tmp_path / "not", key=key)
