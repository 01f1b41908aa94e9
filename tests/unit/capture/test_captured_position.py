"""Captured positions: which capture is meant, by what each has noted; without a database."""

from __future__ import annotations

import pytest

import headwater as hw
from headwater.capture.capture_state import FOLLOWING, WAITING, CaptureState
from headwater.errors import InvalidDeclaration, Misuse
from headwater.log.event_time.capture_markers import Markers
from headwater.log.home import Log


def began(log: Log, name: str, identity: str, phase: str = FOLLOWING) -> CaptureState:
    state = CaptureState(log.home / "captures" / f"{name}.sqlite")
    state.remember(identity=identity, confirmed="40")
    state.add_table("users", "shop.users", hold=0)
    state.change_table("users", phase=phase)
    return state


def test_a_gtid_of_another_domain_is_refused(log: Log) -> None:
    began(log, "shop", "domain 0/shop")

    with pytest.raises(Misuse, match="follows GTIDs of domain 0, and 7-1-42 has none of it"):
        hw.gtid("7-1-42").found(log)
    assert hw.gtid("7-1-42,0-1-39").found(log) == hw.Token({})  # of several domains the capture's own counts
    assert hw.gtid("0-1-40").found(log) is None


def test_a_server_that_is_followed_by_files_has_no_gtids(log: Log) -> None:
    began(log, "shop", "1-8e5c3f/shop")

    with pytest.raises(Misuse, match=r"^no capture follows a MariaDB server by GTIDs into this home"):
        hw.gtid("0-1-42").found(log)


def test_markers_of_a_slot_before_do_not_count(log: Log) -> None:
    state = began(log, "shop", "7012/shop")
    markers = Markers.declared(log, "shop")
    markers.append("0/64", 100, None, {"users": 3})
    state.remember(since="1", confirmed="10")
    position = hw.lsn("0/32")

    before = position.found(log)
    markers.append("0/40", 64, None, {"users": 5})

    assert before is None
    assert position.found(log) == hw.Token({"users": {0: 5}})


def test_a_table_that_is_being_backfilled_is_waited_for(log: Log) -> None:
    state = began(log, "shop", "7012/shop", WAITING)
    Markers.declared(log, "shop").append("0/64", 100, None, {"users": 3})
    position = hw.lsn("0/32")

    before = position.found(log)
    state.change_table("users", phase=FOLLOWING)

    assert before is None
    assert position.found(log) == hw.Token({"users": {0: 3}})


@pytest.mark.parametrize("text", ["", "0", "0/", "0/16B3748 ", "0/123456789", "x/1", "0-1-42"])
def test_what_is_no_lsn_is_refused(text: str) -> None:
    with pytest.raises(InvalidDeclaration, match="is not an LSN"):
        hw.lsn(text)


@pytest.mark.parametrize("text", ["", "42", "0-1", "0-1-42,", "0-1-x", "0/16B3748"])
def test_what_is_no_gtid_is_refused(text: str) -> None:
    with pytest.raises(InvalidDeclaration, match="is not a GTID of MariaDB"):
        hw.gtid(text)
