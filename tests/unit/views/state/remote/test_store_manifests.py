"""Manifests on an object store: lost answers, other machines, and addresses that belong to somebody else.

What both implementations of manifests promise is in ``tests/unit/views/state/test_manifest.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import Fenced, ObjectStoreRefused, ObjectStoreUnavailable
from headwater.log.home import Log
from headwater.objects.folder_store import FolderStore
from headwater.objects.object_address import ObjectAddress
from headwater.views.state.manifest import Manifest, Manifests
from headwater.views.state.manifest_entries import folder_name
from headwater.views.state.remote import store_manifests
from headwater.views.state.remote.store_manifests import StoreManifests
from headwater.views.state.run import Run, RunFile
from headwater.views.state.small_runs import SmallRuns

Machine = Callable[[str], StoreManifests]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """The manifests of one app as machines open them, each with a catalog of its own."""
    monkeypatch.setattr(store_manifests, "CHECKPOINT_COMMITS", 5)
    address, logs = ObjectAddress.parse(f"file://{tmp_path}/state"), dict[str, Log]()

    def opened(name: str) -> StoreManifests:
        logs[name] = logs.get(name) or Log(tmp_path / name)
        return StoreManifests(logs[name].catalog, "shop", address, log_id="7f")

    yield opened
    for log in logs.values():
        log.close()


def entry(runs: list[Run]) -> Any:
    return {"identity": "first", "schema": "id BIGINT", "key": [], "runs": [run.to_json() for run in runs]}


def tick(manifests: StoreManifests, number: int, epoch: int, *, first_kept: int = 0) -> Manifest:
    """Commit a tick with a small run, whose rows are the tick's number."""
    small = SmallRuns(manifests.catalog, "shop", pending_bytes_max=1 << 20)
    folder, name = folder_name("orders", "first"), f"{number:012d}-{epoch}"
    content = small.keep(folder, name, pa.table({"id": [number], "_weight": [1]}))
    run = Run(name, (), 1, number, number, small=content)
    before = manifests.current().runs_of("orders")
    made = Manifest(
        number,
        epoch,
        committed_us=number,
        relations={"orders": entry([*before, run][-3:])},
        views={"orders": {"created_tick": 1}},  # type: ignore[typeddict-item]
        topics={"orders": 1},
        frontier={"orders": {0: number}},
    )
    manifests.commit(made, first_kept=first_kept, small=small)
    if manifests.tidy_due:
        manifests.tidy()
    return made


def content(manifests: StoreManifests) -> dict[int, list[int]]:
    """The rows of every kept tick, read with nothing remembered."""
    small, found = SmallRuns(manifests.catalog, "shop"), {}
    for number, _ in manifests.kept():
        manifest = manifests.at(number)
        assert manifest is not None
        tables = [small.table(folder_name("orders", "first"), run) for run in manifest.runs_of("orders")]
        found[number] = [row["id"] for table in tables for row in table.to_pylist()]
    return found


def test_a_machine_that_knows_nothing_comes_to_the_same_manifests_rows_and_lag(machine: Machine) -> None:
    one = machine("one")
    epoch = one.take_over()
    committed = {number: tick(one, number, epoch, first_kept=number - 12) for number in range(1, 41)}

    two = machine("two")
    second = two.take_over()

    ticks = [number for number, _ in two.kept()]
    assert second == epoch + 1
    assert ticks == list(range(ticks[0], 41))
    assert ticks[0] <= 28  # all that is kept, and what lies between it and the checkpoint before
    assert [two.at(number) for number in ticks] == [committed[number] for number in ticks]
    assert content(two) == {number: list(range(number - 2, number + 1)) for number in ticks}
    assert two.missed("orders", 30) == one.missed("orders", 30)
    assert two.catalog.read("SELECT count(*) FROM app_positions")[0][0] == 0  # no topic of that number there


def test_what_was_committed_before_the_first_checkpoint_is_read_too(machine: Machine) -> None:
    one = machine("one")
    epoch = one.take_over()
    for number in (1, 2):
        tick(one, number, epoch)

    two = machine("two")
    two.take_over()

    assert content(two) == {1: [1], 2: [1, 2]}


def test_the_store_holds_the_kept_ticks_and_little_more(machine: Machine, tmp_path: Path) -> None:
    one = machine("one")
    epoch = one.take_over()
    for number in range(1, 101):
        tick(one, number, epoch, first_kept=number - 10)

    held = {found.name.partition("/")[0]: 0 for found in FolderStore(tmp_path / "state").list("")}
    for found in FolderStore(tmp_path / "state").list(""):
        held[found.name.partition("/")[0]] += 1
    assert held["commits"] <= 10 + 2 * 5
    assert held["checkpoints"] <= 4


def test_a_process_that_was_taken_over_by_another_machine_commits_nothing(machine: Machine) -> None:
    one, two = machine("one"), machine("two")
    epoch = one.take_over()
    tick(one, 1, epoch)

    second = two.take_over()
    with pytest.raises(Fenced, match=f"epoch {second}; this one has {epoch}"):
        tick(one, 2, epoch)
    tick(two, 2, second)

    one.follow()
    assert content(one) == content(two) == {1: [1], 2: [1, 2]}


def test_a_process_that_was_taken_over_and_collected_while_it_stalled_commits_nothing(machine: Machine) -> None:
    one, two = machine("one"), machine("two")
    epoch = one.take_over()
    tick(one, 1, epoch)

    second = two.take_over()
    for number in range(2, 60):
        tick(two, number, second, first_kept=number - 3)
    with pytest.raises(Fenced):
        tick(one, 2, epoch)

    assert one.current() == two.current()
    assert machine("three").take_over() == second + 1


class Interrupted(FolderStore):
    """A folder whose next ``create`` is not answered: it took effect, or does later, or never."""

    effect = "none"
    late: Callable[[], bool]

    def create(self, name: str, data: bytes) -> bool:
        effect, self.effect = self.effect, "none"
        if effect == "none" or not name.startswith("commits/"):
            return super().create(name, data)
        self.late = lambda: FolderStore.create(self, name, data)
        if effect == "at once":
            self.late()
        raise ObjectStoreUnavailable("no answer")


@pytest.mark.parametrize(("effect", "expected"), [("at once", 2), ("never", 1)])
def test_what_became_of_a_commit_that_was_not_answered_is_found_out(
    machine: Machine, tmp_path: Path, effect: str, expected: int
) -> None:
    one = machine("one")
    store = one.commits.store = Interrupted(tmp_path / "state")
    epoch = one.take_over()
    tick(one, 1, epoch)
    store.effect = effect

    with pytest.raises(ObjectStoreUnavailable, match="no answer"):
        tick(one, 2, epoch)
    with pytest.raises(ObjectStoreUnavailable, match="what became of the last commit"):
        tick(one, 2, epoch)
    settled = one.settle()
    then = one.tick()
    tick(one, then + 1, epoch)

    assert (settled, one.settle(), then) == (True, False, expected)
    assert content(one)[expected + 1] == list(range(1, expected + 2))


def test_a_commit_that_arrives_late_is_the_one_that_counts(machine: Machine, tmp_path: Path) -> None:
    one = machine("one")
    store = one.commits.store = Interrupted(tmp_path / "state")
    epoch = one.take_over()
    tick(one, 1, epoch)
    store.effect = "later"
    with pytest.raises(ObjectStoreUnavailable, match="no answer"):
        tick(one, 2, epoch)
    assert one.settle()
    assert one.tick() == 1

    store.late()
    with pytest.raises(ObjectStoreUnavailable, match="an earlier commit of tick 2 has arrived"):
        tick(one, 2, epoch)

    assert one.settle()
    assert one.tick() == 2
    tick(one, 3, epoch)


def test_a_copy_that_failed_after_the_commit_is_made_up_for(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    one = machine("one")
    epoch = one.take_over()
    with monkeypatch.context() as broken:
        broken.setattr("headwater.views.state.manifest.write_app_positions", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            tick(one, 1, epoch)
    died = one.tick()

    settled = one.settle()

    assert (died, settled, one.tick()) == (0, True, 1)
    assert content(one) == {1: [1]}


def test_a_tick_writes_what_it_changed_and_nothing_of_views_that_stood_still(machine: Machine, tmp_path: Path) -> None:
    one = machine("one")
    epoch = one.take_over()
    views: Any = {f"view{number}": {"created_tick": 1} for number in range(200)}
    first: Any = {name: entry([Run("1-1", (RunFile("a", 1, 2),), 1, 1, 1)]) for name in views}
    one.commit(Manifest(1, epoch, views=views, relations=first))
    second = {**first, "view7": entry([Run(f"{n}-1", (RunFile("a", 1, 2),), 1, n, n) for n in (1, 2)])}
    one.commit(Manifest(2, epoch, views=views, relations=second))

    sizes = [found.bytes for found in FolderStore(tmp_path / "state").list("commits/")]

    assert sizes[1] > 20_000
    assert sizes[2] < 1_000


def test_state_of_another_app_or_another_log_is_refused(machine: Machine, tmp_path: Path) -> None:
    machine("one").take_over()
    address = ObjectAddress.parse(f"file://{tmp_path}/state")
    with Log(tmp_path / "other") as log:
        with pytest.raises(ObjectStoreRefused, match='is that of app "shop"') as another_app:
            StoreManifests(log.catalog, "bakery", address, log_id="7f").take_over()
        with pytest.raises(ObjectStoreRefused, match="is that of an app of another log"):
            StoreManifests(log.catalog, "shop", address, log_id="8e").take_over()

    assert "Give each app an address of its own." in str(another_app.value)


def test_an_app_does_not_change_where_its_state_is_in_silence(machine: Machine, tmp_path: Path) -> None:
    one = machine("one")
    epoch = one.take_over()
    tick(one, 1, epoch)
    with pytest.raises(ObjectStoreRefused, match='the state of app "shop" is at file://'):
        Manifests(one.catalog, "shop").take_over()
    elsewhere = ObjectAddress.parse(f"file://{tmp_path}/empty")
    with pytest.raises(ObjectStoreRefused, match="is not the one that this app knows"):
        StoreManifests(one.catalog, "shop", elsewhere, log_id="7f").take_over()

    with Log(tmp_path / "local") as log:
        local = Manifests(log.catalog, "shop")
        local.commit(Manifest(1, local.take_over()))
        with pytest.raises(ObjectStoreRefused, match="has run with its state in the home, up to tick 1"):
            StoreManifests(log.catalog, "shop", elsewhere, log_id="7f").take_over()
