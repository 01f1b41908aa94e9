"""When a standby takes over: by its own clock, from when it last saw the other one do something."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.errors import ObjectStoreUnavailable
from headwater.log.home import Log
from headwater.objects.folder_store import FolderStore
from headwater.objects.object_address import ObjectAddress
from headwater.testing import ManualClock
from headwater.views.lifecycle.active_process import ActiveProcess
from headwater.views.lifecycle.liveness import signs_of
from headwater.views.state.manifest import Manifest, Manifests
from headwater.views.state.remote.state_lease import StateLease, read_lease
from headwater.views.state.remote.store_manifests import StoreManifests


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[StoreManifests, StoreManifests, ActiveProcess, ManualClock]]:
    """The manifests of the process that runs an app, and those of another machine that watches it."""
    address, clock = ObjectAddress.parse(f"file://{tmp_path}/state?lease_seconds=10"), ManualClock()
    with Log(tmp_path / "one") as one, Log(tmp_path / "two") as two:
        active = StoreManifests(one.catalog, "shop", address, log_id="7f")
        standby = StoreManifests(two.catalog, "shop", address, log_id="7f")
        yield active, standby, ActiveProcess(standby, tmp_path, clock), clock


def test_a_lease_that_is_renewed_and_a_tick_that_is_committed_keep_a_standby_waiting(
    machines: tuple[StoreManifests, StoreManifests, ActiveProcess, ManualClock], tmp_path: Path
) -> None:
    active, standby, watched, clock = machines
    assert watched.is_gone(), "nobody has ever run it"
    epoch = active.take_over()
    lease = StateLease(FolderStore(tmp_path / "state"), epoch=epoch, seconds=10)
    assert not watched.is_gone()

    clock.advance(9)
    lease._write()
    assert not watched.is_gone()
    clock.advance(9)
    active.commit(Manifest(1, epoch))
    assert not watched.is_gone()
    clock.advance(9)
    assert not watched.is_gone()
    clock.advance(1)
    assert watched.is_gone()

    assert standby.take_over() == epoch + 1
    assert not ActiveProcess(active, tmp_path, clock).is_gone(), "who looks for the first time has seen no silence"


def test_silence_does_not_count_while_the_store_is_away(
    machines: tuple[StoreManifests, StoreManifests, ActiveProcess, ManualClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    active, standby, watched, clock = machines
    active.take_over()
    assert not watched.is_gone()

    def away() -> None:
        raise ObjectStoreUnavailable("the store does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(standby, "follow", away)
        for _ in range(5):
            clock.advance(9)
            assert not watched.is_gone()
    clock.advance(9)
    assert not watched.is_gone()
    clock.advance(1)
    assert watched.is_gone()


def test_a_process_that_ends_in_order_is_gone_at_once_and_one_that_was_replaced_disturbs_nobody(
    machines: tuple[StoreManifests, StoreManifests, ActiveProcess, ManualClock], tmp_path: Path
) -> None:
    active, standby, watched, clock = machines
    store = FolderStore(tmp_path / "state")
    epoch = active.take_over()
    active.hold_lease(epoch)
    assert not watched.is_gone()
    active.release_lease()
    assert watched.is_gone()

    newer = standby.take_over()
    standby.hold_lease(newer)
    zombie = StateLease(store, epoch=epoch, seconds=10)
    zombie._write()
    third = ActiveProcess(active, tmp_path, clock)
    assert not third.is_gone()
    zombie._write(released=True)
    assert not third.is_gone(), "the lease of an older epoch says nothing"
    standby.release_lease()
    assert third.is_gone()
    assert read_lease(store, newer) is not None


def test_in_a_home_the_lock_of_the_running_process_tells(tmp_path: Path) -> None:
    clock = ManualClock()
    with Log(tmp_path / "home") as log:
        manifests = Manifests(log.catalog, "shop")
        watched = ActiveProcess(manifests, tmp_path, clock)
        assert watched.is_gone()
        epoch = manifests.take_over()
        assert not signs_of(tmp_path, epoch).alive
        assert not watched.is_gone(), "it may be about to take its lock"
        clock.advance(2)
        assert watched.is_gone()
