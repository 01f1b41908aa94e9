"""Proof audit: payments are hashed as they are sealed, and at the end they are what they were when a root was noted.

What it is: ``ProofAudit``: ``note`` and ``compare``, and what is different, in sentences.
Invariants: the root is noted in the middle of the shop's day, outside of the home; at the end every sealed payment is
hashed again, and a proof that the tree continues the noted one is verified by its hashes alone.
Not here: how rows are hashed (``log/proof/``). Read next: ``upkeep/audit/log_audit.py``; ``docs/audit.md``.
"""

from __future__ import annotations

from typing import Any

from headwater.log.home import Log
from headwater.upkeep.audit.log_audit import audit_log, checkpoints_of
from headwater.upkeep.audit.row_proof import check_proof, prove_growth

PROVEN = "payments"


class ProofAudit:
    """The payments of a home, from one moment on."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._noted: dict[str, Any] | None = None

    def note(self) -> dict[str, Any]:
        """The checkpoint of now."""
        (self._noted,) = checkpoints_of(self.log, [PROVEN], seal=True)
        return self._noted

    def compare(self) -> tuple[dict[str, Any], list[str]]:
        """Hash everything again; the figures, and what is not as it was."""
        if self._noted is None:
            return {}, ["no root was noted"]
        (now,) = checkpoints_of(self.log, [PROVEN], seal=True)
        found = audit_log(self.log, [PROVEN], noted=[self._noted])
        wrong = [f"{PROVEN}: {each.message}" for each in found.differences]
        growth = prove_growth(self.log.get_topic(PROVEN), 0, self._noted["size"])
        if not check_proof(growth, now["root"], old_root=self._noted["root"]).ok:
            wrong.append(f"{PROVEN}: the tree does not continue the one that was noted")
        return {
            "topic": PROVEN,
            "rows": now["size"],
            "noted": self._noted["size"],
            "hashes": len(growth["hashes"]),
        }, wrong
