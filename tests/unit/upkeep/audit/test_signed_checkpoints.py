"""Signed checkpoints: notes that other programs write and read, and what they find in a home.

What it is: the key and note that golang.org/x/mod/sumdb/note and the specification publish as their example; notes that
are not whole; a history that was made anew by somebody with the home and without the key.
Read next: ``upkeep/audit/signed_note.py``.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import KeyRefused, Misuse
from headwater.log.home import Log
from headwater.upkeep.audit.signed_checkpoint import SignedCheckpoint, signing_key, verifier_key
from headwater.upkeep.audit.signed_note import SigningKey, VerifierKey, notes_in
from tests.unit.command_line import CommandLine

# As published with the reference implementation, in Go.
VERIFIER = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
SIGNER = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
TEXT = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
SIGNATURE = (
    "\N{EM DASH} PeterNeumann "
    "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)
NOTE = f"{TEXT}\n{SIGNATURE}"


def test_the_published_note_opens_and_is_written_as_it_was_published(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(SIGNER + "\n")
    (tmp_path / "key").chmod(0o600)

    key = SigningKey.read(tmp_path / "key")

    assert VerifierKey.parse(VERIFIER).opens(NOTE) == TEXT
    assert (str(key.verifier), key.sign(TEXT)) == (VERIFIER, NOTE)
    assert verifier_key(str(tmp_path / "key")) == key.verifier == verifier_key(VERIFIER)


@given(place=st.integers(0, len(NOTE) - 1), instead=st.characters(codec="utf-8"))
def test_no_other_text_opens_and_no_other_signature(place: int, instead: str) -> None:
    changed = NOTE[:place] + instead + NOTE[place + 1 :]
    try:
        opened = VerifierKey.parse(VERIFIER).opens(changed)
    except Misuse as error:
        assert error.message == "this is no signed note"  # noqa: PT017
        return
    assert opened is None or changed == NOTE


def test_signatures_of_others_are_passed_over_and_a_wrong_one_of_ours_is_not() -> None:
    key = VerifierKey.parse(VERIFIER)
    other = SigningKey.new("witness.example.com").sign(TEXT).partition("\n\n")[2]
    broken = SIGNATURE.replace("x08go/ZJ", "x08go/ZK")

    assert key.opens(f"{TEXT}\n{other}{SIGNATURE}{other}") == TEXT
    assert key.opens(f"{TEXT}\n{other}") is None
    assert key.opens(f"{TEXT}\n{SIGNATURE}{broken}") is None
    assert key.named("Somebody").opens(NOTE) is None
    assert notes_in(f"{NOTE}\n\n{TEXT}\n{other}{SIGNATURE}") == [NOTE, f"{TEXT}\n{other}{SIGNATURE}"]


def test_every_part_and_every_changed_sign_of_a_key_is_refused() -> None:
    parts = [VERIFIER[a:b] for a in range(len(VERIFIER)) for b in range(a, len(VERIFIER) + 1) if (a, b) != (0, 70)]
    parts += [VERIFIER[:n] + chr(ord(VERIFIER[n]) + 1) + VERIFIER[n + 1 :] for n in range(len(VERIFIER))]
    for text in {*parts} - {VERIFIER}:
        with pytest.raises(KeyRefused):
            VerifierKey.parse(text)


@pytest.fixture
def headwater(tmp_path: Path) -> CommandLine:
    grown(tmp_path / "home", "first", 20)
    return CommandLine(tmp_path / "home")


def grown(home: Path, name: str, rows: int) -> None:
    with Log(home, maintenance_interval=None) as log:
        topic = log.topic("orders", "id BIGINT, name STRING", proof=True, partitions=2, key="id")
        topic.append([{"id": n, "name": name} for n in range(rows)])


def test_a_history_that_is_made_anew_is_found_by_the_notes_and_growth_is_proven_without_the_home(
    headwater: CommandLine, tmp_path: Path
) -> None:
    key, notes = str(tmp_path / "audit.key"), tmp_path / "notes"
    notes.mkdir()
    made = headwater_without_home("audit", "key", "new", key, "--name", "shop.example.com")
    shown = tmp_path / "audit.pub"
    shown.write_text(made)
    first = headwater("audit", "checkpoint", "--seal", "--key", key, "--out", str(notes)).stdout.split()
    old = Path(first[0])
    every = tmp_path / "every.txt"
    every.write_text(headwater("audit", "checkpoint", "--key", key).stdout)
    assert len(notes_in(every.read_text())) == len(first) == 2
    words = ("audit", "verify", "--noted", str(every), "--key", str(shown))
    assert headwater(*words).exit_code == 0

    grown(headwater.home, "more", 30)
    new = headwater("audit", "checkpoint", "orders", "--seal", "--key", key, "--out", str(notes)).stdout.split()[0]
    growth = tmp_path / "growth.json"
    headwater("audit", "prove", "orders", "--since", old.stem.rpartition("-")[2], "--out", str(growth))
    check = ("audit", "check-proof", str(growth), "--note", new, "--key", str(shown), "--old-note")

    assert headwater(*words).exit_code == 0
    assert "continues the one of" in headwater_without_home(*check, str(old))
    assert "the note is of orders[1]" in headwater_without_home(*check, first[1], status=2)
    other = str(SigningKey.new("shop.example.com").verifier)
    refused = headwater("audit", "verify", "--noted", str(every), "--key", other)
    assert refused.exit_code == 5
    assert "the note is not signed with this key" in refused.stdout

    shutil.rmtree(headwater.home)
    grown(headwater.home, "first, said otherwise", 20)
    headwater("audit", "checkpoint", "--seal")
    assert headwater("audit", "verify").exit_code == 0
    found = headwater(*words)
    assert found.exit_code == 5
    assert "the root of the first" in found.stdout


def headwater_without_home(*words: str, status: int = 0) -> str:
    from typer.testing import CliRunner

    from headwater.cli.main import app

    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == status, result.output
    return result.output


def test_a_key_is_outside_of_the_home_and_for_its_owner_alone(headwater: CommandLine, tmp_path: Path) -> None:
    inside, key = headwater.home / "audit.key", tmp_path / "audit.key"
    for path in (inside, key):
        SigningKey.new("shop.example.com").write(path)

    refused = headwater.error("audit", "checkpoint", "--key", str(inside))
    assert refused["message"] == f"the key {inside} is in the home whose history it signs"
    with pytest.raises(KeyRefused, match="is there already"):
        SigningKey.new("other").write(key)
    assert signing_key(key, headwater.home).name == "shop.example.com"
    key.chmod(0o644)
    with pytest.raises(KeyRefused, match="everybody may read the key file"):
        SigningKey.read(key)
    with pytest.raises(Misuse, match="cannot have the name"):
        SigningKey.new("https shop")
    elsewhere = SigningKey.new("shop.example.com/orders")
    note = SignedCheckpoint("shop.example.com", "orders", 0, 1, bytes(32)).signed(SigningKey.new("x"))
    assert SignedCheckpoint.verified(note, elsewhere.verifier) is None
