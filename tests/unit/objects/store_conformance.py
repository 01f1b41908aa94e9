"""What every object store promises, as functions over a store: one suite, run by each of them.

What it is: ``PROMISES``, one test for each promise of ``objects/object_store.py``, and ``race``.
Invariants: nothing here knows which store it has.
Not here: the stores (``test_conformance.py`` for memory and a folder, ``tests/services/test_object_stores.py`` for S3).
Read next: ``src/headwater/objects/object_store.py``.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headwater.objects.object_store import ObjectStore


def an_object_is_created_once(store: ObjectStore, _: Path) -> None:
    assert [store.create("ticks/1", data) for data in (b"one", b"two", b"one")] == [True, False, False]
    assert store.get("ticks/1") == b"one"


def an_object_that_was_deleted_can_be_created_again(store: ObjectStore, _: Path) -> None:
    store.create("ticks/1", b"one")
    store.delete("ticks/1")
    store.delete("ticks/1")

    assert store.get("ticks/1") is None
    assert store.create("ticks/1", b"two")
    assert store.get("ticks/1") == b"two"


def put_replaces(store: ObjectStore, _: Path) -> None:
    store.put("a", b"one")
    store.put("a", b"")

    assert store.get("a") == b""


def an_object_may_come_in_pieces(store: ObjectStore, _: Path) -> None:
    pieces = [os.urandom(3 << 20), b"", b"x", os.urandom(4 << 20)]

    store.put("a", pieces)

    assert store.get("a") == b"".join(pieces)


def a_copy_is_an_object_of_its_own(store: ObjectStore, _: Path) -> None:
    store.put("a/ä 1", b"one")
    store.copy("a/ä 1", "b/2")
    store.delete("a/ä 1")

    assert store.get("b/2") == b"one"
    with pytest.raises(FileNotFoundError):
        store.copy("a/ä 1", "b/3")


def a_missing_object_is_none(store: ObjectStore, _: Path) -> None:
    assert store.get("a/b") is None
    assert store.get_range("a/b", 0, 10) is None
    assert store.read("a/b") is None


def a_part_of_an_object_can_be_had(store: ObjectStore, _: Path) -> None:
    store.put("a", b"0123456789")

    assert [store.get_range("a", *part) for part in ((0, 3), (4, 2), (8, 10))] == [b"012", b"45", b"89"]


def a_large_file_comes_back_as_it_was(store: ObjectStore, tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(os.urandom(12 << 20))

    store.put("runs/large.parquet", path)
    pieces = list(store.read("runs/large.parquet") or ())

    assert b"".join(pieces) == path.read_bytes()
    assert path.stat().st_size == sum(found.bytes for found in store.list("runs/"))


def names_are_listed_below_their_prefix_in_order(store: ObjectStore, _: Path) -> None:
    names = ["runs/users-t1v1/b.parquet", "runs/users-t1v1/a.parquet", "runs/orders.versions-x/1.0.parquet", "ticks/1"]
    for name in names:
        store.put(name, name.encode())

    assert [found.name for found in store.list("runs/")] == sorted(names[:3])
    assert [found.name for found in store.list("runs/users-t1v1/")] == sorted(names[:2])
    assert [found.bytes for found in store.list("ticks/")] == [len("ticks/1")]
    assert store.list("nothing/") == []


def odd_names_are_names(store: ObjectStore, _: Path) -> None:
    for name in ("runs/über-ü/ä b.parquet", "runs/a%20b", "runs/a+b=c"):
        store.put(name, name.encode())

        assert store.get(name) == name.encode()
        assert name in [found.name for found in store.list("runs/")]


PROMISES: Sequence[Callable[[ObjectStore, Path], None]] = (
    an_object_is_created_once,
    an_object_that_was_deleted_can_be_created_again,
    put_replaces,
    an_object_may_come_in_pieces,
    a_copy_is_an_object_of_its_own,
    a_missing_object_is_none,
    a_part_of_an_object_can_be_had,
    a_large_file_comes_back_as_it_was,
    names_are_listed_below_their_prefix_in_order,
    odd_names_are_names,
)


def race(stores: Sequence[ObjectStore], rounds: int) -> Counter[int]:
    """Writers that create one name at the same moment, in many rounds; how often so many of them won."""
    start, winners = threading.Barrier(len(stores)), Counter[int]()

    def attempt(number: int, name: str) -> bool:
        start.wait()
        return stores[number].create(name, str(number).encode())

    with ThreadPoolExecutor(len(stores)) as pool:
        for turn in range(rounds):
            name = f"race/{turn:020d}"
            won = list(pool.map(lambda number, name=name: attempt(number, name), range(len(stores))))
            assert stores[0].get(name) in [str(number).encode() for number, each in enumerate(won) if each]
            winners[sum(won)] += 1
    return winners
