"""Object stores in memory and in a folder keep the contract."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.errors import DiskFull, ObjectStoreRefused, ObjectStoreUnavailable
from headwater.objects.folder_store import TEMPORARY, FolderStore
from headwater.objects.object_store import ObjectStore
from tests.unit.objects.memory_store import MemoryStore
from tests.unit.objects.store_conformance import PROMISES, race


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return MemoryStore() if request.param == "memory" else FolderStore(tmp_path / "shared")


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_a_store_keeps_the_contract(
    store: ObjectStore, promise: Callable[[ObjectStore, Path], None], tmp_path: Path
) -> None:
    promise(store, tmp_path)


def test_of_sixteen_writers_of_one_name_in_a_folder_exactly_one_wins(tmp_path: Path) -> None:
    assert race([FolderStore(tmp_path / "shared") for _ in range(16)], 300) == {1: 300}


def test_nothing_is_left_of_a_create_that_lost_or_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderStore(tmp_path)
    store.create("a", b"one")
    store.create("a", b"two")
    monkeypatch.setattr(os, "link", fail(errno.EIO))
    with pytest.raises(ObjectStoreUnavailable):
        store.create("b", b"three")

    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a"]


def test_a_link_whose_answer_was_lost_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def answered_twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)  # NFS repeats the request

    monkeypatch.setattr(os, "link", answered_twice)

    assert FolderStore(tmp_path).create("a", b"one")


def test_what_a_killed_process_has_left_is_removed_after_a_day(tmp_path: Path) -> None:
    FolderStore(tmp_path).create("a", b"one")
    for name, age in (("old", 90_000), ("young", 60)):
        left = tmp_path / TEMPORARY / name
        left.touch()
        os.utime(left, (left.stat().st_mtime - age,) * 2)

    FolderStore(tmp_path).create("b", b"two")

    assert [path.name for path in (tmp_path / TEMPORARY).iterdir()] == ["young"]


def fail(number: int, *, second: bool = False) -> Callable[..., None]:
    def failing(source: object, target: object = None) -> None:
        raise OSError(number, os.strerror(number), str(source), None, str(target) if second else None)

    return failing


def test_a_folder_that_cannot_be_made_is_told_as_such_and_not_as_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refused)

    with pytest.raises(ObjectStoreRefused, match="cannot be written: Permission denied"):
        FolderStore(tmp_path / "shared").create("ticks/1", b"one")


@pytest.mark.parametrize(
    ("number", "kind", "said"),
    [
        (errno.ENOSPC, DiskFull, "no space is left in {folder}"),
        (errno.EACCES, ObjectStoreRefused, "the folder {folder} cannot be written: Permission denied"),
        (
            errno.EOPNOTSUPP,
            ObjectStoreRefused,
            "the folder {folder} cannot be an object store: its file system makes no hard links",
        ),
        (errno.ESTALE, ObjectStoreUnavailable, "the folder {folder} does not answer: Stale file handle"),
    ],
)
def test_a_folder_that_fails_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception], said: str
) -> None:
    monkeypatch.setattr(os, "link", fail(number, second=True))

    with pytest.raises(kind) as error:
        FolderStore(tmp_path).create("ticks/1", b"one")

    assert str(error.value).splitlines()[0] == said.format(folder=tmp_path)
