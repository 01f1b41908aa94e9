"""Repository turn: one process at a time writes to a repository, over all machines.

What it is: ``RepositoryTurn``, the objects ``turns/N.json``. Whoever creates the next number has the turn.
Invariants: of several processes one creates a number. A turn is over when its object says so, when its process is known
to be dead (the same machine), or when it was silent for ``SILENT_SECONDS``; the holder rewrites its object more often.
A holder whose number was followed by another one has lost the turn, and asks before it commits anything. It says in its
object what it is about to create; whoever takes the turn over creates that name itself, with ``GIVEN_UP`` in it. So one
of the two is first: a holder that stalls between asking and creating commits nothing that others did not see.
Not here: what is done in a turn (``backup_writer.py``, ``repository_prune.py``).
Read next: ``backup_repository.py``.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from headwater.errors import BackupRefused, HeadwaterError
from headwater.objects.object_store import ObjectStore, StoredObject

TURNS = "turns/"
GIVEN_UP = b"given up\n"  # in place of what a holder that lost the turn was about to create
SILENT_SECONDS = 300.0
BEAT_SECONDS = 20.0
WAIT_SECONDS = 1.0


class RepositoryTurn:
    """The right to write to a repository, held by a ``with`` block."""

    def __init__(self, store: ObjectStore, what: str, *, wait_s: float = 0.0) -> None:
        self.store = store
        self.what = what  # "a backup" or "a prune", for whoever is refused
        self.wait_s = wait_s
        self.number = 0
        self._creating: str | None = None
        self._telling = threading.Lock()  # an older record must not come after a newer one
        self._over = threading.Event()
        self._beats = threading.Thread(target=self._beat, name="headwater-backup-turn", daemon=True)

    def __enter__(self) -> RepositoryTurn:
        deadline = time.monotonic() + self.wait_s
        while not self._taken():
            if time.monotonic() >= deadline:
                raise BackupRefused(
                    f"another process writes to {self.store.shown}",
                    detail=self._holder(),
                    hint="Wait until it is done. A process that was killed on another machine counts as dead after "
                    f"{SILENT_SECONDS / 60:.0f} minutes.",
                )
            time.sleep(WAIT_SECONDS)
        self._beats.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._beats.join()
        self._tell(over=True)

    def create(self, name: str, data: bytes) -> bool:
        """Create an object that counts from then on, such as a manifest; False when there is one of that name.

        Others see it when they have the turn after this one, or it is never created.
        """
        self._creating = name  # stays, if the answer is lost: it may take effect later
        self._tell()
        self.check()
        made = self.store.create(name, data)
        self._creating = None
        return made

    def began_s(self) -> float:
        """When its object was made or last told, by the store's clock: who wrote before it has no turn any more."""
        mine = [each.modified_s for each in self.store.list(TURNS) if each.name == self._name(self.number)]
        return min(mine, default=0.0)

    def check(self) -> None:
        """Raise when another process has taken the turn."""
        if any(_number(each) > self.number for each in self.store.list(TURNS)):
            raise BackupRefused(
                f"another process has taken over the turn to write to {self.store.shown}",
                detail=f"This one was silent for more than {SILENT_SECONDS:.0f} s. Nothing was committed.",
                hint="Begin again: what was copied is there and is not copied twice.",
            )

    def _taken(self) -> bool:
        turns = sorted(self.store.list(TURNS), key=_number)
        if turns and not self._is_over(turns[-1]):
            return False
        self.number = _number(turns[-1]) + 1 if turns else 1
        if not self.store.create(self._name(self.number), self._record()):
            return False
        for each in turns:
            record = self._read(each.name)  # again: it may have said so since
            if record is not None and record.get("creating") is not None:
                self.store.create(record["creating"], GIVEN_UP)
            self.store.delete(each.name)
        return True

    def _is_over(self, turn: StoredObject) -> bool:
        record = self._read(turn.name)
        if record is None or record.get("over"):
            return True
        if record["machine"] == _machine():
            return not _lives(record["process"], record["began"])
        # By the store's clock on both sides: a probe is written, and its time is that of now.
        probe = f"{TURNS}probe-{os.getpid()}"
        self.store.put(probe, b"")
        times = {each.name: each.modified_s for each in self.store.list(TURNS)}
        self.store.delete(probe)
        return times.get(probe, 0.0) - times.get(turn.name, times.get(probe, 0.0)) > SILENT_SECONDS

    def _holder(self) -> str:
        turns = sorted(self.store.list(TURNS), key=_number)
        record = self._read(turns[-1].name) if turns else None
        if record is None:
            return "It has just ended."
        return f"It is {record['what']} of process {record['process']} on {record['host']}."

    def _read(self, name: str) -> dict[str, Any] | None:
        data = self.store.get(name)
        return None if not data else dict(json.loads(data))

    def _record(self, *, over: bool = False) -> bytes:
        about = {
            "what": self.what,
            "machine": _machine(),
            "host": socket.gethostname(),
            "process": os.getpid(),
            "began": _began(os.getpid()),
            "over": over,
            "creating": self._creating,
        }
        return json.dumps(about).encode()

    def _tell(self, *, over: bool = False) -> None:
        with self._telling:
            self.store.put(self._name(self.number), self._record(over=over))

    @staticmethod
    def _name(number: int) -> str:
        return f"{TURNS}{number:020d}.json"

    def _beat(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            try:
                self._tell()
            except HeadwaterError:
                continue  # the next beat, or the commit, will tell


def _number(turn: StoredObject) -> int:
    digits = turn.name.removeprefix(TURNS).removesuffix(".json")
    return int(digits) if digits.isdigit() else 0


def _machine() -> str:
    """The boot of this machine; processes have other numbers in another one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"{socket.gethostname()}-{os.getppid()}"


def _began(process: int) -> str:
    """When a process was started, so that a later one of the same number is not taken for it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _lives(process: int, began: str) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return _began(process) == began
