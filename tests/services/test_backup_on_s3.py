"""Backups on a real S3 server, with answers that are lost and a server that is away for a while."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater as hw
from headwater.encryption.encryption_key import KeySource, new_key_file
from headwater.errors import BackupDamaged
from headwater.log.home import Log
from headwater.objects import remote_store
from headwater.upkeep.backup.backup_repository import BackupRepository
from headwater.upkeep.backup.backup_writer import create_backup
from headwater.upkeep.backup.home_restore import RestoreReport, restore_home
from headwater.upkeep.backup.repository_prune import prune
from headwater.upkeep.erasure.erased_places import ErasureRetries
from headwater.upkeep.erasure.person_erasure import PersonErasure, look_for
from tests.every_byte import places_with
from tests.services.s3_server import BUCKET, CREDENTIALS, S3Server
from tests.waiting import eventually

MARK = "zq-marker-zq"


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


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_a_person_is_erased_from_backups_on_s3_and_pending_while_the_server_is_away(
    server: S3Server, tmp_path: Path, encrypted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"s3://{BUCKET}/erased/shop-{encrypted}?endpoint={server.endpoint}"
    key = KeySource(file=tmp_path / "shop.key") if encrypted else None
    keys = {} if key is None else {place: key}
    if encrypted:
        new_key_file(tmp_path / "shop.key")
    with Log(tmp_path / "home", maintenance_interval=None) as log:
        personal = {"user": hw.Personal("user"), "name": hw.Personal("user", by="user")}
        orders = log.topic("orders", "user STRING, name STRING, n BIGINT", partitions=2, privacy=personal)
        for number in range(3):
            orders.append([{"user": "zq-person-zq", "name": MARK, "n": number}])
            orders.append([{"user": "else", "name": "stays", "n": number}] * 1000)
            for partition in range(2) if number == 1 else ():
                orders.partition(partition).roll()
            log.maintain()
            create_backup(log, place, key=key)
        before = BackupRepository.at(place, key).manifests()
        server.kill()
        with monkeypatch.context() as patch:
            patch.setattr(remote_store, "RETRY_SECONDS_MAX", 0.5)
            away = PersonErasure(log, "user", "zq-person-zq", backups=[place], keys=keys).run()
            told = look_for(log, "user", "zq-person-zq", [MARK], backups={place: key})
        server.start()
        ErasureRetries(lambda: log, {place: key}).step()

        assert [str(each.state) for each in away.places if each.place.startswith("backups")] == ["pending"]
        assert [("pending" in each, "does not answer" in each) for each in told.unread] == [(True, True), (False, True)]
        assert look_for(log, "user", "zq-person-zq", [MARK], backups={place: key}).ok
        repository = BackupRepository.at(place, key)
        after = repository.manifests()
        assert [(each.id, each.cut_us, each.token) for each in after] == [(e.id, e.cut_us, e.token) for e in before]
        assert repository.verify().ok
        assert create_backup(log, place, key=key).manifest.written_bytes < after[-1].size

    for folder in ("objects/", "backups/", "erasures/", "erased/"):
        for each in repository.store.list(folder):
            path = tmp_path / "read" / each.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(repository.store.get(each.name) or b"")
    assert places_with(tmp_path / "read", MARK, "zq-person-zq") == []
    assert places_with(server.buckets / BUCKET / f"erased/shop-{encrypted}", MARK, "zq-person-zq") == []
    for number, manifest in enumerate(before):
        report = restore_home(place, tmp_path / f"again-{number}", backup=manifest.id, key=key)
        with Log(report.home, maintenance_interval=None) as again:
            rows = [row for row in again.get_topic("orders").rows() if row["user"] != "else"]
            assert sorted((row["user"], row["name"], row["n"]) for row in rows) == [
                (None, None, n) for n in range(number + 1)
            ]
            assert again.check().ok


def test_litestream_1077_a_restore_whose_connection_breaks_in_the_middle_ends_whole(
    server: S3Server, tmp_path: Path
) -> None:
    """benbjohnson/litestream#1077: a connection that was closed in the middle of a file ended the restore."""
    place = f"s3://{BUCKET}/broken/shop?endpoint={server.endpoint}"
    with Log(tmp_path / "home", maintenance_interval=None) as log:
        orders = log.topic("orders", "id BIGINT, item STRING")
        for number in range(6):
            orders.append([{"id": number, "item": os.urandom(2_000_000).hex()}])
            orders.partition(0).roll()
        log.maintain()
        made = create_backup(log, place).manifest
    target, ended = tmp_path / "again", list[RestoreReport]()
    restore = threading.Thread(target=lambda: ended.append(restore_home(place, target)))
    restore.start()
    eventually(lambda: ended or list(target.rglob("*.tmp")))  # files that are being fetched
    server.kill()
    server.start()
    restore.join()

    assert [each.rows for each in ended] == [made.rows]
    with Log(target, maintenance_interval=None) as again:
        assert again.check().ok
        assert again.get_topic("orders").end_offsets() == {0: 6}
