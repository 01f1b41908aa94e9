"""Whatever the log does with its rows, a proof that was made before holds, and the audit finds nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headwater as hw
from headwater.errors import HeadwaterError
from headwater.log.erasure.log_erasure import erase_person
from headwater.log.maintenance.compaction import compact_partition
from headwater.log.proof.checkpoints import Checkpoints
from headwater.log.topic import Topic
from headwater.testing import ManualClock
from headwater.upkeep.audit.log_audit import audit_log, checkpoints_of
from headwater.upkeep.audit.row_proof import check_proof, prove_growth, prove_row
from headwater.upkeep.backup.backup_writer import create_backup
from headwater.upkeep.backup.home_restore import restore_home
from headwater.upkeep.backup.point_restore import restore_at
from tests.crash.ledger import QuietLog
from tests.every_byte import places_with
from tests.unit.weighted_rows import thorough

OF_USERS = {"user_id": hw.Personal("user_id"), "name": hw.Personal("user_id", by="user_id")}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, 4), min_size=1, max_size=6)),
        st.tuples(st.sampled_from(["seal", "compact", "retain"]), st.none()),
        st.tuples(st.just("erase"), st.integers(0, 4)),
    ),
    min_size=3,
    max_size=9,
)


class Shop:
    """A topic, and every proof that was ever made of it."""

    def __init__(self, home: Path, keyed: bool) -> None:
        self.clock = ManualClock()
        self.log = QuietLog(home, clock=self.clock, maintenance_interval=None)
        options: dict[str, Any] = {"key": "id", "compact": True} if keyed else {}
        self.topic: Topic = self.log.topic(
            "t", "id INT, user_id INT, name STRING", proof=True, privacy=OF_USERS, retention="1 hour", **options
        )
        self.rows, self.noted, self.proofs, self.erased = 0, list[dict[str, Any]](), list[dict[str, Any]](), set[int]()

    def do(self, step: str, given_: Any) -> None:
        self.clock.advance(1)
        if step == "append":
            users = [user for user in given_ if user not in self.erased]
            self.rows += len(users)
            self.topic.append([{"id": user % 3, "user_id": user, "name": f"marker-{user}-"} for user in users])
        elif step == "seal":
            self.noted += checkpoints_of(self.log, seal=True)
        elif step == "compact" and self.topic.settings.compact:
            compact_partition(self.topic, 0, force=True)
        elif step == "retain":
            self.clock.advance(1800)
            self.log.maintain()
        elif step == "erase":
            erase_person(self.log, "user_id", str(given_))
            self.erased.add(given_)

    def prove(self) -> None:
        """Make a proof of every row that can be proven."""
        last = Checkpoints.of(self.topic, 0).last()
        for offset in range(0, last.next_offset if last else 0, 3):
            try:
                self.proofs.append(prove_row(self.topic, 0, offset))
            except HeadwaterError as error:
                assert error.code == "offset_out_of_range"  # noqa: PT017

    def verify(self) -> None:
        audit = audit_log(self.log, noted=self.noted)
        assert audit.ok, audit.differences
        assert self.log.check().problems == ()
        for noted in self.noted:
            proof = prove_growth(self.topic, 0, noted["size"])
            assert proof["old_root"] == noted["root"]
            assert check_proof(proof, proof["root"], old_root=noted["root"]).ok
        for proof in self.proofs:
            found = check_proof(json.loads(json.dumps(proof)), proof["root"])
            assert found.ok, found
            now = prove_growth(self.topic, 0, proof["size"])
            assert now["old_root"] == proof["root"], "the log has another history than when the proof was made"


@settings(deadline=None, max_examples=thorough(12), suppress_health_check=list(HealthCheck))
@given(STEPS, st.booleans())
def test_proofs_that_were_made_hold_after_anything(tmp_path: Path, steps: list[tuple[str, Any]], keyed: bool) -> None:
    home = tmp_path / "home"
    shutil.rmtree(home, ignore_errors=True)
    shop = Shop(home, keyed)
    with shop.log:
        for step, given_ in [*steps, ("seal", None)]:
            shop.do(step, given_)
            shop.prove()
            shop.verify()
            shop.proofs = shop.proofs[-8:]
        for user in shop.erased:
            assert places_with(home, f"marker-{user}-") == []


@pytest.fixture
def shop(tmp_path: Path) -> Any:
    made = Shop(tmp_path / "home", keyed=False)
    with made.log:
        made.do("append", [1, 2, 3])
        made.do("seal", None)
        yield made


def test_a_proof_says_the_row_and_after_an_erasure_only_what_is_left_of_it(shop: Shop) -> None:
    before = prove_row(shop.topic, 0, 1)
    erase_person(shop.log, "user_id", "2")
    after = prove_row(shop.topic, 0, 1)

    assert [json.loads(text).get("name") for text in check_proof(before, before["root"]).shown] == [None, "marker-2-"]
    found = check_proof(after, before["root"])
    assert (found.ok, len(found.shown), found.erased) == (True, 1, 1)
    assert after["root"] == before["root"]
    assert after["parts"][1] == {"commitment": before["parts"][1]["commitment"]}


def test_no_salt_of_an_erased_value_is_left_on_disk(shop: Shop) -> None:
    salt = bytes.fromhex(prove_row(shop.topic, 0, 1)["parts"][1]["salt"])
    kept = bytes.fromhex(prove_row(shop.topic, 0, 2)["parts"][1]["salt"])

    erase_person(shop.log, "user_id", "2")

    everything = b"".join(path.read_bytes() for path in shop.log.home.rglob("*") if path.is_file())
    assert salt not in everything
    assert kept in everything


@pytest.mark.parametrize("what", ["offset", "index", "root", "text", "salt", "commitment", "hashes"])
def test_a_changed_document_does_not_hold(shop: Shop, what: str) -> None:
    shop.do("append", [4, 4])
    shop.do("seal", None)
    proof = prove_row(shop.topic, 0, 1)
    root = proof["root"]

    if what in ("offset", "index"):
        proof[what] += 1
    elif what == "root":
        root = shop.noted[0]["root"]
    elif what == "hashes":
        proof["hashes"].reverse()
    else:
        proof["parts"][0][what] = "00" + proof["parts"][0][what][2:]

    assert not check_proof(proof, root).ok


def test_a_document_that_is_none_is_refused_in_words(shop: Shop) -> None:
    for wrong in ({}, {"headwater_proof": 2}, {**prove_row(shop.topic, 0, 0), "hashes": ["xy"]}):
        found = check_proof(wrong, "00")
        assert not found.ok
        assert "no proof" in found.says or "not known" in found.says


def test_rows_that_are_not_covered_say_why(shop: Shop) -> None:
    shop.do("append", [1])

    with pytest.raises(HeadwaterError, match=r"no checkpoint of topic \"t\" partition 0 has offset 3"):
        prove_row(shop.topic, 0, 3)
    with pytest.raises(HeadwaterError, match="has no checkpoint of size 2"):
        prove_growth(shop.topic, 0, 2)
    with pytest.raises(HeadwaterError, match='topic "plain" keeps no proofs'):
        prove_row(shop.log.topic("plain", "id INT"), 0, 0)


def test_a_restored_home_has_the_same_roots_and_erases_salts_again(shop: Shop, tmp_path: Path) -> None:
    create_backup(shop.log, tmp_path / "backups")
    erase_person(shop.log, "user_id", "2")
    create_backup(shop.log, tmp_path / "backups")
    first = sorted(path.stem for path in (tmp_path / "backups").rglob("manifests/*.json"))

    restore_home(tmp_path / "backups", tmp_path / "again", backup=first[0] if first else None)

    with QuietLog(tmp_path / "again", clock=shop.clock, maintenance_interval=None) as log:
        audit = audit_log(log, noted=shop.noted)
        assert audit.ok, audit.differences
        assert (audit.partitions[0].rows, audit.partitions[0].erased) == (3, 1)
        assert log.check().problems == ()
    assert places_with(tmp_path / "again", "marker-2-") == []


def test_a_home_of_an_earlier_point_goes_on_from_the_checkpoints_before_it(shop: Shop, tmp_path: Path) -> None:
    point = shop.topic.append([{"id": 1, "user_id": 4, "name": "x"}])
    shop.do("append", [1, 1])
    shop.do("seal", None)
    create_backup(shop.log, tmp_path / "backups")

    restore_at(tmp_path / "backups", tmp_path / "again", token=point)

    with QuietLog(tmp_path / "again", clock=shop.clock, maintenance_interval=None) as log:
        topic = log.get_topic("t")
        log.maintain()
        assert topic.end_offsets() == {0: 4}
        audit = audit_log(log, noted=shop.noted[:1])
        assert audit.ok, audit.differences
        assert [each.next_offset for each in Checkpoints.of(topic, 0).all()] == [3, 4]
        assert not audit_log(log, noted=shop.noted).ok  # what was noted later is of another history


def test_a_removed_row_of_a_key_keeps_its_commitment(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "home", keyed=True)
    with shop.log:
        shop.do("append", [1, 2, 1, 1])
        shop.do("seal", None)
        before = prove_row(shop.topic, 0, 0)
        shop.do("compact", None)

        audit = audit_log(shop.log)
        found = check_proof(prove_row(shop.topic, 0, 0), before["root"])

    assert (audit.ok, audit.partitions[0].rows, audit.partitions[0].removed) == (True, 2, 2)
    assert (found.ok, found.shown) == (True, ())
    assert np.all([part["commitment"] for part in before["parts"]])
