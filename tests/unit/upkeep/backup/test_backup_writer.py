"""Backups: what the second one costs, what is shared, refused, and found damaged."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from headwater.errors import BackupDamaged, BackupRefused, CorruptSegment, Misuse, NotBackedUp
from headwater.log.home import Log
from headwater.log.maintenance.removal_pin import RemovalPin
from headwater.log.topic import Topic
from headwater.upkeep.backup.backup_manifest import BackedFile, StoredPiece
from headwater.upkeep.backup.backup_repository import BackupRepository
from headwater.upkeep.backup.backup_writer import SCRATCH, create_backup
from headwater.upkeep.backup.home_restore import UNFINISHED, restore_home
from headwater.upkeep.backup.point_restore import restore_at
from tests.unit.command_line import CommandLine


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Three sealed segments, an Arrow one that was rolled during a backup, and an active one."""
    log = Log(tmp_path / "home", maintenance_interval=None)
    topic = log.topic("orders", "id BIGINT, item STRING", key="id")
    for number in range(3):
        topic.append([{"id": number * 100 + n, "item": f"{n}"} for n in range(100)])
        topic.partition(0).roll()
    log.maintain()
    topic.append([{"id": 300, "item": "cup"}])
    return log


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


def rows_of(topic: Topic) -> list[dict[str, object]]:
    return [row for batch in topic.read("earliest") for row in batch.to_pylist()]


def rows(home: Path, topic: str = "orders") -> list[dict[str, object]]:
    with Log(home, maintenance_interval=None) as log:
        return rows_of(log.get_topic(topic))


def test_a_second_backup_writes_what_is_new(log: Log, tmp_path: Path) -> None:
    place = tmp_path / "backups"
    first = create_backup(log, place).manifest
    unchanged = create_backup(log, place).manifest
    log.get_topic("orders").append([{"id": 301, "item": "pot"}])
    third = create_backup(log, place).manifest

    segments = [name for name in BackupRepository.at(place).objects() if "/segments/" in name]
    assert len(segments) == 3
    assert first.written_objects == len(BackupRepository.at(place).objects()) - third.written_objects
    assert unchanged.written_objects == 0
    assert third.written_objects == 1  # the end of the active segment: nothing in the catalog has changed
    assert third.written_bytes < 4096


def test_a_backup_is_restored_with_another_identity_and_goes_on(log: Log, tmp_path: Path) -> None:
    place = tmp_path / "backups"
    create_backup(log, place)
    report = restore_home(place, tmp_path / "again")

    before = rows_of(log.get_topic("orders"))
    assert rows(tmp_path / "again") == before
    with Log(tmp_path / "again", maintenance_interval=None) as again:
        assert again.identity == report.identity != log.identity
        assert str(again.get_topic("orders").append([{"id": 7, "item": "new"}])) == "orders:0=302"
        again.get_topic("orders").partition(0).roll()
        assert again.maintain().ok
        assert again.check().ok


def test_litestream_781_a_restored_home_is_backed_up_with_its_new_rows(log: Log, tmp_path: Path) -> None:
    """benbjohnson/litestream#781: after a restore nothing was replicated until the ids had caught up."""
    place = tmp_path / "backups"
    create_backup(log, place)
    log.get_topic("orders").append([{"id": 900 + n, "item": "lost with the machine"} for n in range(500)])
    restore_home(place, tmp_path / "again")
    with Log(tmp_path / "again", maintenance_interval=None) as again:
        again.get_topic("orders").append([{"id": 1, "item": "after the restore"}])
        made = create_backup(again, place).manifest
    restore_home(place, tmp_path / "third")

    assert made.token.frontier == {"orders": {0: 302}}
    assert rows(tmp_path / "third")[-1] == {"id": 1, "item": "after the restore"}
    # The home that was given up does not write over the backups of the one that took its place.
    with pytest.raises(BackupRefused, match="has backups of another home"):
        create_backup(log, place)


def test_a_home_of_other_origin_is_refused(log: Log, tmp_path: Path) -> None:
    create_backup(log, tmp_path / "backups")
    with Log(tmp_path / "other") as other, pytest.raises(BackupRefused, match="another home"):
        create_backup(other, tmp_path / "backups")


@pytest.mark.parametrize("place", ["home/backups", "home", "link/backups"])
def test_a_place_in_the_home_is_refused(log: Log, tmp_path: Path, place: str) -> None:
    (tmp_path / "link").symlink_to(log.home)

    with pytest.raises(BackupRefused, match="is in the home"):
        create_backup(log, tmp_path / place)

    assert not (log.home / "backups").exists()


def test_maintenance_during_a_backup_removes_no_file_and_the_next_round_does(log: Log) -> None:
    topic = log.topic("state", "k BIGINT, n BIGINT", key="k", compact=True)
    topic.append([{"k": 1, "n": 1}])
    topic.partition(0).roll()
    log.maintain()
    topic.append([{"k": 1, "n": 2}])
    before = {path.name for path in topic.directory.glob("0/*.*")}
    pin = RemovalPin(log.home)
    assert pin.acquire()
    topic.partition(0).roll()
    assert log.maintain().ok
    assert log.maintain().ok  # also ends
    during = {path.name for path in topic.directory.glob("0/*.*")}
    pin.release()
    assert log.maintain().ok

    assert before <= during
    assert {path.name for path in topic.directory.glob("0/*.parquet")} < during
    assert not before & {path.name for path in topic.directory.glob("0/*.*")} - {"seal.lock"}
    assert log.check().ok
    assert rows_of(topic) == [{"k": 1, "n": 2}]


def test_one_backup_of_a_home_at_a_time(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.upkeep.backup.backup_writer.PIN_SECONDS", 0.0)
    pin = RemovalPin(log.home)
    assert pin.acquire()
    try:
        with pytest.raises(BackupRefused, match=r"another backup of .* is under way"):
            create_backup(log, tmp_path / "backups")
    finally:
        pin.release()


def test_damage_in_the_home_is_not_backed_up(log: Log, tmp_path: Path) -> None:
    place = tmp_path / "backups"
    good = create_backup(log, place).manifest
    sealed = sorted(log.home.rglob("*.parquet"))[0]
    flip(sealed, sealed.stat().st_size // 2)
    with pytest.raises(CorruptSegment, match="is damaged"):
        create_backup(log, tmp_path / "elsewhere")
    active = next(log.home.rglob("*.arrow"))
    flip(active, active.stat().st_size - 70)
    with pytest.raises(CorruptSegment, match=r"offsets 300 to 300 of .* are damaged"):
        create_backup(log, place)

    assert BackupRepository.at(place).ids() == [good.id]
    assert not (log.home / SCRATCH).exists()
    restore_home(place, tmp_path / "again")
    assert len(rows(tmp_path / "again")) == 301


def test_a_flipped_byte_anywhere_is_found_by_verify_and_by_restore(log: Log, tmp_path: Path) -> None:
    place = tmp_path / "backups"
    create_backup(log, place)
    repository = BackupRepository.at(place)
    names = [*repository.objects(), f"backups/{repository.ids()[0]}.json"]
    assert {name.split("/")[1] for name in names[:-1]} == {"segments", "tails", "databases"}
    for number, name in enumerate(names):
        size = (place / name).stat().st_size
        at = (number * 7919) % size
        flip(place / name, at)
        found = repository.verify()
        with pytest.raises(BackupDamaged):
            restore_home(place, tmp_path / f"again-{number}")
        flip(place / name, at)

        assert len(found.problems) == 1, name
        assert not (tmp_path / f"again-{number}" / "headwater.json").exists()
    assert repository.verify().ok


@pytest.mark.parametrize(
    ("path", "piece"),
    [
        ("../outside", None),
        ("topics/../../outside", None),
        ("{folder}/outside", None),
        ("topics//outside", None),
        ("", None),
        ("outside", "../secret"),
        ("outside", "objects/../../secret"),
        ("outside", "{folder}/secret"),
        ("outside", "backups/secret"),
    ],
)
@pytest.mark.parametrize("at_a_moment", [False, True])
def test_a_backup_that_names_places_outside_of_it_is_refused(
    log: Log, tmp_path: Path, path: str, piece: str | None, at_a_moment: bool
) -> None:
    place = tmp_path / "backups"
    manifest = create_backup(log, place).manifest
    (tmp_path / "secret").write_bytes(b"it is a secret")
    stored = manifest.files[0].pieces[0]
    if piece is not None:
        stored = replace(
            stored, name=piece.format(folder=tmp_path), bytes=14, checksum=xxh3_64_intdigest(b"it is a secret")
        )
    forged = BackedFile(path.format(folder=tmp_path), (stored,))
    changed = replace(manifest, files=(*manifest.files, forged))
    (place / f"backups/{manifest.id}.json").write_bytes(changed.to_bytes())

    again = tmp_path / "again"
    with pytest.raises(BackupDamaged, match="which is outside of the"):
        restore_at(place, again, at_us=manifest.cut_us) if at_a_moment else restore_home(place, again)

    (problem,) = BackupRepository.at(place).verify().problems
    assert "which is outside of the" in problem
    assert not (tmp_path / "outside").exists()
    assert not again.exists()


def test_a_backup_whose_catalog_has_a_topic_in_another_folder_is_refused(log: Log, tmp_path: Path) -> None:
    place, catalog = tmp_path / "backups", tmp_path / "catalog.sqlite"
    manifest = create_backup(log, place).manifest
    (file,) = [each for each in manifest.files if each.path == "catalog.sqlite"]
    catalog.write_bytes(b"".join((place / piece.name).read_bytes() for piece in file.pieces))
    with closing(sqlite3.connect(catalog)) as db, db:
        db.execute("UPDATE topics SET name = '../../outside'")
    data = catalog.read_bytes()
    (place / "objects/forged").write_bytes(data)
    forged = replace(file, pieces=(StoredPiece("objects/forged", len(data), xxh3_64_intdigest(data)),))
    changed = replace(manifest, files=tuple(forged if each is file else each for each in manifest.files))
    (place / f"backups/{manifest.id}.json").write_bytes(changed.to_bytes())

    with pytest.raises(BackupDamaged, match=r"names '../../outside', which is outside of the home"):
        restore_home(place, tmp_path / "again")

    assert not (tmp_path / "again" / "headwater.json").exists()


def test_a_restore_follows_no_link_out_of_its_directory(log: Log, tmp_path: Path) -> None:
    place, target = tmp_path / "backups", tmp_path / "again"
    made = create_backup(log, place).manifest
    target.mkdir()
    (target / UNFINISHED).write_text(json.dumps({"backup": made.id}))
    (tmp_path / "elsewhere").mkdir()
    (target / "topics").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(Misuse, match="is a link out of"):
        restore_home(place, target)

    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_missing_object_is_found(log: Log, tmp_path: Path) -> None:
    create_backup(log, tmp_path / "backups")
    gone = next((tmp_path / "backups").rglob("*.parquet.*"))
    gone.unlink()

    report = BackupRepository.at(tmp_path / "backups").verify()

    assert report.problems == (
        f"the object {gone.relative_to(tmp_path / 'backups')} is missing at file://{tmp_path / 'backups'}",
    )


def test_a_restore_goes_only_into_an_empty_directory_or_its_own(log: Log, tmp_path: Path) -> None:
    place, target = tmp_path / "backups", tmp_path / "again"
    first = create_backup(log, place).manifest
    log.get_topic("orders").append([{"id": 5, "item": "x"}])
    create_backup(log, place)
    target.mkdir()
    (target / UNFINISHED).write_text(json.dumps({"backup": first.id}))
    with pytest.raises(Misuse, match="has an unfinished restore of something else"):
        restore_home(place, target)
    restore_home(place, target, backup=first.id[:20])
    with pytest.raises(Misuse, match="is a home already"):
        restore_home(place, target)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    with pytest.raises(Misuse, match="is not empty"):
        restore_home(place, tmp_path / "full")
    with pytest.raises(NotBackedUp, match="there is no backup at"):
        restore_home(tmp_path / "nothing", tmp_path / "new")
    with pytest.raises(NotBackedUp, match="there is no backup '2020'"):
        restore_home(place, tmp_path / "new", backup="2020")

    assert len(rows(target)) == 301


def test_a_group_its_positions_and_request_ids_come_back(log: Log, tmp_path: Path) -> None:
    orders = log.get_topic("orders")
    with orders.consumer("billing") as consumer:
        consumer.commit(consumer.poll(timeout=5))
    token = orders.append([{"id": 1, "item": "once"}], request_id="order-1")
    create_backup(log, tmp_path / "backups")
    restore_home(tmp_path / "backups", tmp_path / "again")

    with Log(tmp_path / "again", maintenance_interval=None) as again:
        repeated = again.get_topic("orders").append([{"id": 1, "item": "once"}], request_id="order-1")
        assert (str(repeated), repeated.repeated) == (str(token), True)
        with again.get_topic("orders").consumer("billing") as consumer:
            assert consumer.poll(timeout=5).to_pylist() == [{"id": 1, "item": "once"}]


def test_the_command_line_creates_lists_verifies_prunes_and_restores(log: Log, tmp_path: Path) -> None:
    place, headwater = str(tmp_path / "backups"), CommandLine(log.home)
    log.close()
    made = [headwater.json("backup", "create", "--to", place) for _ in range(3)]
    assert [made[0]["rows"], made[1]["written_bytes"]] == [301, 0]

    def run(*words: str) -> object:
        from typer.testing import CliRunner

        from headwater.cli.main import app

        result = CliRunner().invoke(app, [*words, "--json"])
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    listed = run("backup", "ls", "--from", place)
    assert isinstance(listed, list)
    assert [each["id"] for each in listed] == [each["id"] for each in made]
    pruned = run("backup", "prune", "--from", place, "--keep", "1")
    assert isinstance(pruned, dict)
    assert (pruned["kept"], len(pruned["removed"])) == ([made[2]["id"]], 2)
    assert run("backup", "verify", "--from", place)["ok"]  # type: ignore[index]
    report = run("restore", "--from", place, "--to", str(tmp_path / "again"))
    assert isinstance(report, dict)
    assert (report["rows"], report["token"]) == (301, "orders:0=301")
    assert len(rows(tmp_path / "again")) == 301
