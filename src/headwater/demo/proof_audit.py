"""Proof audit: payments are hashed as they are sealed, and at the end they are what they were when a root was noted.

What it is: ``ProofAudit``: ``note`` and ``compare``, and what is different, in sentences.
Invariants: the root is noted in the middle of the shop's day, signed, with a key that is not in the home; at the end
every sealed payment is hashed again, and a proof that the tree continues the noted one is verified by its hashes alone.
Not here: how rows are hashed (``log/proof/``). Read next: ``upkeep/audit/log_audit.py``; ``docs/audit.md``.
"""

from __future__ import annotations

from typing import Any

from headwater.log.home import Log
from headwater.upkeep.audit.log_audit import audit_log, checkpoints_of
from headwater.upkeep.audit.row_proof import check_proof, prove_growth
from headwater.upkeep.audit.signed_checkpoint import SignedCheckpoint, sign_checkpoints
from headwater.upkeep.audit.signed_note import SigningKey

PROVEN = "payments"


class ProofAudit:
    """The payments of a home, from one moment on."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._key = SigningKey.new("shop.example.com")
        self._note: str | None = None

    def note(self) -> SignedCheckpoint:
        """The checkpoint of now, signed."""
        (self._note,) = sign_checkpoints(self.log, self._key, [PROVEN], seal=True).values()
        signed = SignedCheckpoint.verified(self._note, self._key.verifier)
        assert signed is not None
        return signed

    def compare(self) -> tuple[dict[str, Any], list[str]]:
        """Hash everything again; the figures, and what is not as it was."""
        signed = None if self._note is None else SignedCheckpoint.verified(self._note, self._key.verifier)
        if signed is None:
            return {}, ["no root was noted, or its note is not signed"]
        (now,) = checkpoints_of(self.log, [PROVEN], seal=True)
        found = audit_log(self.log, [PROVEN], noted=[signed.to_dict()])
        wrong = [f"{PROVEN}: {each.message}" for each in found.differences]
        growth = prove_growth(self.log.get_topic(PROVEN), 0, signed.size)
        if not check_proof(growth, now["root"], old_root=signed.root.hex()).ok:
            wrong.append(f"{PROVEN}: the tree does not continue the one that was noted")
        return {"topic": PROVEN, "rows": now["size"], "noted": signed.size, "hashes": len(growth["hashes"])}, wrong
