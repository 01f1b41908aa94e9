"""Log audit: all partitions with proofs compared, and their checkpoints told.

What it is: ``audit_log``, the comparison over topics, also with checkpoints that were noted elsewhere;
``checkpoints_of`` tells the present ones.
Invariants: who can write to a home can make hashes and checkpoints anew; a checkpoint that was noted elsewhere tells,
since a root at the same size must be the same for ever.
Not here: one partition (``partition_audit.py``), proofs for others (``row_proof.py``).
Read next: ``partition_audit.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.errors import Misuse
from headwater.log.home import Log
from headwater.log.maintenance.sealing import seal_closed
from headwater.log.proof.checkpoints import Checkpoints
from headwater.log.topic import Topic
from headwater.upkeep.audit.partition_audit import AuditDifference, PartitionAudit, audit_partition
from headwater.upkeep.audit.row_proof import check_proof, prove_growth


@dataclass(frozen=True)
class LogAudit:
    """The outcome of an audit."""

    partitions: tuple[PartitionAudit, ...]
    noted: tuple[AuditDifference, ...]  # from checkpoints that were noted elsewhere

    @property
    def differences(self) -> list[AuditDifference]:
        """Everything that is not as it was."""
        return [*(found for each in self.partitions for found in each.differences), *self.noted]

    @property
    def ok(self) -> bool:
        """Whether everything is as it was."""
        return not self.differences

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "ok": self.ok,
            "partitions": [each.to_dict() for each in self.partitions],
            "noted": [each.to_dict() for each in self.noted],
        }


def audit_log(
    log: Log, names: Sequence[str] = (), noted: Iterable[Mapping[str, Any]] = (), *, refused: Iterable[str] = ()
) -> LogAudit:
    """Compare topics; all with proofs when none are named. ``noted``: checkpoints as ``checkpoints_of`` told them.

    Of each that was noted it is proven that the present one continues it. ``refused``: origins of notes that their key
    has not signed.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> orders = log.topic("orders", "id BIGINT", proof=True)
    >>> _ = orders.append([{"id": 1}, {"id": 2}])
    >>> before = checkpoints_of(log, seal=True)
    >>> [(each["topic"], each["size"]) for each in before]
    [('orders', 2)]
    >>> audit = audit_log(log, noted=before)
    >>> audit.ok, audit.partitions[0].rows
    (True, 2)
    """
    topics = proven_topics(log, names)
    partitions = [audit_partition(topic, p) for topic in topics for p in range(topic.settings.partitions)]
    unsigned = [
        AuditDifference("noted", origin, 0, None, 0, str(log.catalog.path), "the note is not signed with this key")
        for origin in refused
    ]
    return LogAudit(tuple(partitions), (*_compare_noted(log, noted), *unsigned))


def proven_topics(log: Log, names: Sequence[str] = ()) -> list[Topic]:
    """The topics with proofs, or those that are named."""
    topics = [log.get_topic(name) for name in names] if names else log.topics()
    found = [topic for topic in topics if topic.settings.proof or _has_checkpoints(topic)]
    without = sorted({topic.name for topic in topics} - {topic.name for topic in found})
    if names and without:
        raise Misuse(
            f'topic "{without[0]}" keeps no proofs',
            hint="Declare it with proof=True: its rows are hashed when they are sealed.",
            topic=without[0],
        )
    return found


def _has_checkpoints(topic: Topic) -> bool:
    return any(Checkpoints.of(topic, number).last() is not None for number in range(topic.settings.partitions))


def checkpoints_of(log: Log, names: Sequence[str] = (), *, seal: bool = False) -> list[dict[str, Any]]:
    """The newest checkpoint of each partition. ``seal``: of all rows that are there now."""
    found = []
    for topic in proven_topics(log, names):
        for number in range(topic.settings.partitions):
            if seal:
                topic.partition(number).roll()
                seal_closed(topic, number, wait=True)
            last = Checkpoints.of(topic, number).last()
            if last is not None:
                found.append({"home": log.identity, "topic": topic.name, **last.to_dict()})
    return found


def _continues(topic: Topic, number: int, size: int, root: str) -> bool:
    """Whether a proof of growth from a root that was noted holds against the present one."""
    proof = prove_growth(topic, number, size)
    return check_proof(proof, proof["root"], old_root=root).ok


def _compare_noted(log: Log, noted: Iterable[Mapping[str, Any]]) -> list[AuditDifference]:
    found = []
    for each in noted:
        try:
            name, number, size, root = each["topic"], int(each["partition"]), int(each["size"]), str(each["root"])
        except (KeyError, TypeError, ValueError) as error:
            raise Misuse(
                "the noted checkpoints are not as `headwater audit checkpoint --json` writes them",
                detail=f"{type(error).__name__}: {error} in {each!r}",
            ) from error
        row = log.registry.find(name)
        roots = (
            {}
            if row is None
            else {kept.size: kept.root.hex() for kept in Checkpoints(log.catalog, row.id, number).all()}
        )
        if row is None:
            message = "the topic that was noted is not there"
        elif size not in roots and size > max(roots, default=0):
            message = f"{size} rows were noted, and the checkpoints have {max(roots, default=0)}"
        elif size not in roots:
            message = f"a checkpoint of {size} rows was noted, and is not there"
        elif roots[size] != root:
            message = f"the root of the first {size} rows was {root}, and is {roots[size]}"
        elif size and not _continues(log.get_topic(name), number, size, root):
            message = f"the present checkpoint is not shown to continue the one of {size} rows"
        else:
            continue
        found.append(AuditDifference("noted", name, number, None, 0, str(log.catalog.path), message))
    return found
