"""Commit log: the commits of one app on an object store, each created once.

What it is: ``CommitLog``: objects ``commits/<number>.json``. To create the next number is to commit. A commit has the
epoch of the process that made it, a nonce, the digest of the commit before it, and a body. ``checkpoints/`` has what
all commits up to a number amount to; the commits that a checkpoint makes superfluous are deleted (``collect``).
Invariants: of several processes one creates a number. A process that was shut out never commits again, however long it
stalled: after creating number N+1 it looks for commit N, as it knows it. Commits are deleted in the order of their
numbers, and never the last one; so while N is there nothing after it was ever deleted, and N+1 was free because nobody
had made it. If N is gone, N+1 may have been made and deleted: the process was shut out. Readers ask the same after
reading on from N. Before the first deletion ever the object ``collected`` is created, which answers for N = 0.
No object is written twice, so no stalled process can set anything back. What is found by a listing only says where to
begin; whether that is so is decided by the objects.
Not here: what commits say (``commit_body.py``), the copy of them in the catalog (``store_manifests.py``).
Read next: ``store_manifests.py``; ``tests/unit/views/state/remote/test_commit_simulation.py``.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import xxhash

from headwater.errors import Corruption, ObjectStoreRefused, ObjectStoreUnavailable
from headwater.objects.object_store import ObjectStore

COMMITS, CHECKPOINTS, COLLECTED = "commits/", "checkpoints/", "collected"
CREATES_MAX = 5  # S3 answers a conditional PUT beside a deletion with a conflict though nothing is there: asked again
STARTS_MAX = 20  # a reader that is overtaken by collections begins again


@dataclass(frozen=True)
class CommitPosition:
    """A place in the log: after a commit. Number 0 is before all of them."""

    number: int = 0
    nonce: str = ""
    digest: str = ""
    epoch: int = 0
    tick: int = 0


@dataclass(frozen=True)
class StateCommit:
    """One commit, and the position after it."""

    position: CommitPosition
    body: Mapping[str, Any]


@dataclass(frozen=True)
class StateCheckpoint:
    """What all commits up to a position amount to."""

    position: CommitPosition
    body: Mapping[str, Any]


@dataclass(frozen=True)
class CommitsFound:
    """What a reader found: the checkpoint that it had to begin with, if it had to, and the commits after it."""

    checkpoint: StateCheckpoint | None
    commits: tuple[StateCommit, ...]

    def head(self, known: CommitPosition) -> CommitPosition:
        """The last position, for a reader that knew this one."""
        if self.commits:
            return self.commits[-1].position
        return known if self.checkpoint is None else self.checkpoint.position


class Overtaken(Exception):
    """Another process has committed, or the commits that this one knows were collected: it was shut out."""


class CommitLog:
    """The commits of one app below an address.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from headwater.objects.folder_store import FolderStore
    >>> log = CommitLog(FolderStore(Path(tempfile.mkdtemp())))
    >>> first = log.append(CommitPosition(), epoch=1, tick=0, body={})
    >>> second = log.append(first, epoch=1, tick=1, body={"rows": 7})
    >>> [commit.body for commit in log.after(first).commits]
    [{'rows': 7}]
    >>> log.append(first, epoch=1, tick=1, body={})
    Traceback (most recent call last):
        ...
    headwater.views.state.remote.commit_log.Overtaken: commit 2 was made by epoch 1
    """

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    # Committing

    def append(self, known: CommitPosition, *, epoch: int, tick: int, body: Mapping[str, Any]) -> CommitPosition:
        """Commit after this position; ``Overtaken`` when that is not the last one any more.

        When ``ObjectStoreUnavailable`` is raised the commit may have been made, or may be made later by a request that
        is still on its way: ``after`` tells, and a further ``append`` at the same position has only one winner too.
        """
        nonce, number = uuid.uuid4().hex, known.number + 1
        fields = {"nonce": nonce, "number": number, "epoch": epoch, "tick": tick, "before": known.digest, "body": body}
        data = json.dumps(fields, separators=(",", ":")).encode()
        made = CommitPosition(number, nonce, digest_of(data), epoch, tick)
        self._create(made, data)
        if not self._stands(known):
            raise Overtaken(f"commit {known.number} is gone: later ones were made and collected")
        return made

    def _create(self, made: CommitPosition, data: bytes) -> None:
        for _ in range(CREATES_MAX):
            if self.store.create(_name(made.number), data):
                return
            found = self._read(made.number)
            if found is not None:
                if found.position.nonce == made.nonce:  # only the answer was lost
                    return
                raise Overtaken(f"commit {made.number} was made by epoch {found.position.epoch}")
        raise ObjectStoreUnavailable(
            f"{self.store.shown} says that commit {made.number} is there, and does not give it",
            hint="The app goes on where it was: run it again.",
            address=self.store.shown,
        )

    def _stands(self, known: CommitPosition) -> bool:
        """Whether nothing after this position was ever deleted."""
        if known.number == 0:
            return self.store.get_range(COLLECTED, 0, 1) is None
        begin = _beginning(known.nonce)
        return self.store.get_range(_name(known.number), 0, len(begin)) == begin

    # Reading

    def after(self, known: CommitPosition) -> CommitsFound:
        """What was committed after a position; from a checkpoint on, where commits after it were collected."""
        commits = self._following(known)
        if self._stands(known) and commits is not None:
            return CommitsFound(None, commits)
        for _ in range(STARTS_MAX):
            for name in self._checkpoints():
                found = self._from_checkpoint(name)
                if found is not None:
                    return found
            if known.number and self.store.get_range(COLLECTED, 0, 1) is None:
                raise ObjectStoreRefused(
                    f"the state at {self.store.shown} is not the one that this app knows",
                    detail=f"Commit {known.number} is not there, and nothing was ever collected.",
                    hint="Is the address right? Was something deleted there?",
                    address=self.store.shown,
                )
        raise ObjectStoreUnavailable(
            f"the state at {self.store.shown} changes faster than it can be read",
            hint="Is the way to the store slow? Run it again.",
            address=self.store.shown,
        )

    def _from_checkpoint(self, name: str) -> CommitsFound | None:
        """A checkpoint and the commits after it; None when some of these are gone."""
        checkpoint = self._read_checkpoint(name)
        commits = None if checkpoint is None else self._following(checkpoint.position)
        if checkpoint is None or commits is None:
            return None
        found = CommitsFound(checkpoint, commits)
        # Commits are deleted only up to a checkpoint, and the newest checkpoint stays: so what was deleted before the
        # reading came to its end is not after the newest one now. A stalled process may leave a checkpoint, or a
        # commit, in a place that was collected; neither leads to the newest checkpoint.
        head, newest = found.head(checkpoint.position), max(self._checkpoints(), default="")
        if not newest or _number(newest) > head.number:
            return None
        begin = _beginning(head.nonce)
        if _number(newest) == head.number and self.store.get_range(newest, 0, len(begin)) != begin:
            return None
        return found

    def _following(self, known: CommitPosition) -> tuple[StateCommit, ...] | None:
        """The commits that follow one another from a position on; None when they do not."""
        found: list[StateCommit] = []
        while (commit := self._read(known.number + 1)) is not None:
            if commit.before != known.digest:
                return None  # what a process that was shut out has left in the place of a deleted commit
            found.append(StateCommit(commit.position, commit.body))
            known = commit.position
        return tuple(found)

    def _read(self, number: int) -> _StoredCommit | None:
        data = self.store.get(_name(number))
        return None if data is None else _parsed(self.store, _name(number), data)

    def _checkpoints(self) -> list[str]:
        """The names of the checkpoints, the oldest first: it has the most ticks after it."""
        return [found.name for found in self.store.list(CHECKPOINTS)]

    def _read_checkpoint(self, name: str) -> StateCheckpoint | None:
        data = self.store.get(name)
        if data is None:
            return None
        found = _parsed(self.store, name, data)
        return StateCheckpoint(replace(found.position, digest=found.before), found.body)

    # Collecting

    def write_checkpoint(self, position: CommitPosition, body: Mapping[str, Any]) -> str:
        """Write what all commits up to a position amount to; returns its name."""
        fields = {
            "nonce": position.nonce,
            "number": position.number,
            "epoch": position.epoch,
            "tick": position.tick,
            "before": position.digest,
            "body": body,
        }
        name = f"{CHECKPOINTS}{position.number:020d}-{position.tick:020d}.json"
        self.store.create(name, json.dumps(fields, separators=(",", ":")).encode())
        return name

    def collect(self, first_tick: int) -> int:
        """Delete the commits that no reader of ticks from this one on needs; returns their number.

        The commits up to the newest checkpoint of such a tick or an earlier one go, and the checkpoints before it.
        """
        checkpoints = self._checkpoints()
        early = [name for name in checkpoints if int(name.rpartition("-")[2].removesuffix(".json")) <= first_tick]
        if not early:
            return 0
        keep = max(early)
        if self._read(_number(keep) + 1) is None:
            return 0  # the last commit is never deleted
        gone = [number for found in self.store.list(COMMITS) if (number := _number(found.name)) <= _number(keep)]
        self.store.create(COLLECTED, b"{}")
        for name in checkpoints:
            if name < keep:
                self.store.delete(name)
        self._delete(gone)
        return len(gone)

    def _delete(self, numbers: Sequence[int]) -> None:
        for number in sorted(numbers):  # in this order, each one gone before the next: see the invariants
            self.store.delete(_name(number))


@dataclass(frozen=True)
class _StoredCommit:
    position: CommitPosition
    before: str
    body: Mapping[str, Any]


def digest_of(data: bytes) -> str:
    """The digest by which the next commit names this one."""
    return xxhash.xxh3_128_hexdigest(data)


def _parsed(store: ObjectStore, name: str, data: bytes) -> _StoredCommit:
    try:
        fields = json.loads(data)
        nonce, number, epoch, tick = fields["nonce"], fields["number"], fields["epoch"], fields["tick"]
        return _StoredCommit(
            CommitPosition(number, nonce, digest_of(data), epoch, tick), fields["before"], fields["body"]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Corruption(
            f"the object {name} at {store.shown} is damaged: {error}",
            detail="Objects are written once and whole.",
            hint="State is derived from the log: start again with an empty address.",
            address=store.shown,
        ) from error


def _beginning(nonce: str) -> bytes:
    """The first bytes of a commit: they tell whose it is."""
    return f'{{"nonce":"{nonce}"'.encode()


def _name(number: int) -> str:
    return f"{COMMITS}{number:020d}.json"


def _number(name: str) -> int:
    """The number of a commit or a checkpoint."""
    return int(name.rpartition("/")[2][:20])
