"""A simulation of processes that commit to one object store, stall anywhere, lose answers and are shut out.

What it is: ``Simulation``: processes run the real ``CommitLog`` as greenlets over a store in memory; before each call
to the store a process stops, and a seeded random generator decides who goes on. An answer may be lost after the call
took effect, and a request may take effect much later. ``Simulation.problems`` is what must never be.
Invariants: what is right is judged by the store's own history: the first object of each number ever, and the files
that the last ticks list. Nothing of the judgement asks the code that is tested.
Not here: the catalog's copy (``test_store_manifests.py``), real servers (``tests/services/test_object_stores.py``).
Read next: ``test_commit_simulation.py``.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from greenlet import getcurrent, greenlet

from headwater.errors import ObjectStoreUnavailable
from headwater.views.state.remote.commit_log import CommitLog, CommitPosition, CommitsFound, Overtaken
from tests.unit.objects.memory_store import MemoryStore

KEPT = 2  # ticks
CHECKPOINT_TICKS = 2
FILES_MAX = 3  # of a state: the oldest goes


class HeldUpStore(MemoryStore):
    """Every call waits for its turn; some answers are lost, some requests come late."""

    def __init__(self, chance: random.Random, *, trouble: float) -> None:
        super().__init__()
        self.chance = chance
        self.trouble = trouble
        self.late: list[Callable[[], Any]] = []  # requests that are still on their way
        self.first: dict[int, dict[str, Any]] = {}  # number: the commit that was first, whatever was deleted since
        self.problems: list[str] = []

    def _turn(self, change: Callable[[], Any], *, may_come_late: bool = False) -> Any:
        scheduler = getcurrent().parent
        if scheduler is None:
            return change()
        scheduler.switch()
        luck = self.chance.random()
        if luck < self.trouble / 2 and may_come_late:
            self.late.append(change)
            raise ObjectStoreUnavailable("no answer: the request is late")
        answer = change()
        if luck < self.trouble:
            raise ObjectStoreUnavailable("no answer: it was lost")
        scheduler.switch()  # between the effect and the answer too
        return answer

    def create(self, name: str, data: bytes) -> bool:
        def change() -> bool:
            created = MemoryStore.create(self, name, data)
            if created and name.startswith("commits/"):
                commit = json.loads(data)
                if commit["number"] not in self.first:
                    self.first[commit["number"]] = commit
                    self._judge_files()
            return created

        return bool(self._turn(change, may_come_late=True))

    def put(self, name: str, data: bytes | Path) -> None:
        self._turn(lambda: MemoryStore.put(self, name, data), may_come_late=True)

    def get(self, name: str) -> bytes | None:
        return self._turn(lambda: MemoryStore.get(self, name))  # type: ignore[no-any-return]

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        return self._turn(lambda: MemoryStore.get_range(self, name, start, length))  # type: ignore[no-any-return]

    def list(self, prefix: str) -> Any:
        return self._turn(lambda: MemoryStore.list(self, prefix))

    def delete(self, name: str) -> None:
        def change() -> None:
            MemoryStore.delete(self, name)
            if name.startswith("runs/"):
                self._judge_files()

        self._turn(change, may_come_late=True)

    # Judging

    def _judge_files(self) -> None:
        ticks = [commit for commit in self.first.values() if "files" in commit["body"]]
        for commit in ticks[-KEPT:]:
            for name in commit["body"]["files"]:
                if name not in self.objects:
                    self.problems.append(f"{name} is gone, and tick {commit['tick']} lists it")

    def judge_position(self, position: CommitPosition, who: str) -> None:
        if position.number and self.first[position.number]["nonce"] != position.nonce:
            self.problems.append(f"{who} takes commit {position.number} for made, and another one was first")

    def judge_history(self) -> None:
        before = {"tick": 0, "epoch": 0}
        for number in range(1, len(self.first) + 1):
            commit = self.first[number]
            takes_over = "files" not in commit["body"]
            expected = (before["tick"], before["epoch"] + 1) if takes_over else (before["tick"] + 1, before["epoch"])
            if (commit["tick"], commit["epoch"]) != expected:
                self.problems.append(f"commit {number} does not follow the one before it")
            before = commit


class Process:
    """A process that takes the app over and ticks, until it is shut out; then it begins again, as a new one."""

    def __init__(self, store: HeldUpStore, name: str, log: type[CommitLog] = CommitLog, *, asks: bool = True) -> None:
        self.store, self.name = store, name
        self.log = log(store)
        self.asks = asks  # whether it is still the one that commits, before it deletes files
        self.known, self.files = CommitPosition(), list[str]()  # its copy of what was committed
        self.kept: list[tuple[int, list[str]]] = []  # ticks and what they list
        self.written = 0

    def run(self) -> None:
        while True:
            try:
                self.take_over()
                while True:
                    self.tick()
            except (Overtaken, ObjectStoreUnavailable):
                if self.store.chance.random() < 0.3:  # on another machine: it knows nothing
                    self.known, self.files, self.kept = CommitPosition(), [], []

    def follow(self) -> None:
        found = self.log.after(self.known)
        self.learn(found)

    def learn(self, found: CommitsFound) -> None:
        if found.checkpoint is not None:
            self.known, self.files = found.checkpoint.position, list(found.checkpoint.body["files"])
            self.kept = [(self.known.tick, self.files)]
            self.store.judge_position(self.known, f"{self.name}, from a checkpoint,")
        for commit in found.commits:
            self.store.judge_position(commit.position, self.name)
            self.known = commit.position
            self.note(commit.body)

    def note(self, body: Any) -> None:
        if "files" in body:
            self.files = list(body["files"])
            self.kept = [*self.kept, (self.known.tick, self.files)][-KEPT:]

    def take_over(self) -> None:
        while True:
            self.follow()
            try:
                self.known = self.log.append(self.known, epoch=self.known.epoch + 1, tick=self.known.tick, body={})
                self.store.judge_position(self.known, self.name)
                return
            except Overtaken:
                continue

    def tick(self) -> None:
        self.written += 1
        name = f"runs/{self.name}-{self.written}"
        self.store.put(name, b"rows")
        body = {"files": [*self.files, name][-FILES_MAX:]}
        self.known = self.log.append(self.known, epoch=self.known.epoch, tick=self.known.tick + 1, body=body)
        self.store.judge_position(self.known, self.name)
        self.note(body)
        if self.known.tick % CHECKPOINT_TICKS == 0:
            self.log.write_checkpoint(self.known, {"files": self.files})
            self.log.collect(self.kept[0][0])
            self.collect_files()

    def collect_files(self) -> None:
        """As ``run_cache.py`` does: what was there, then whether this process is still the one that commits."""
        there = [found.name for found in self.store.list("runs/")]
        if self.asks and self.log.after(self.known) != CommitsFound(None, ()):
            raise Overtaken("somebody else has committed")
        listed = {name for _, files in self.kept for name in files}
        for name in there:
            if name not in listed:
                self.store.delete(name)


class Simulation:
    """Some processes over one store, by a seed; ``log`` and ``asks`` make them careless."""

    def __init__(
        self,
        seed: int,
        *,
        processes: int = 3,
        trouble: float = 0.03,
        log: type[CommitLog] = CommitLog,
        asks: bool = True,
    ) -> None:
        self.chance = random.Random(seed)
        self.store = HeldUpStore(self.chance, trouble=trouble)
        self.processes = [Process(self.store, f"p{number}", log, asks=asks) for number in range(processes)]

    def run(self, steps: int) -> list[str]:
        """What went wrong in so many steps."""
        running = [greenlet(process.run) for process in self.processes]
        patience = [1.0] * len(running)
        for _ in range(steps):
            if self.chance.random() < 0.02:  # from now on some are quick and some stall
                patience = [self.chance.choice([0.0, 0.02, 1.0, 1.0]) + 1e-6 for _ in running]
            if self.store.late and self.chance.random() < 0.02:
                self.store.late.pop(self.chance.randrange(len(self.store.late)))()
            self.chance.choices(running, patience)[0].switch()
            if self.store.problems:
                return self.store.problems
        self.store.judge_history()
        self.judge_a_reader()
        return self.store.problems

    def judge_a_reader(self) -> None:
        """A process that knows nothing reads the store: it must come to what the last commit says."""
        reader = Process(self.store, "a new reader")
        reader.follow()
        last = max(self.store.first, default=0)
        ticks = [commit for commit in self.store.first.values() if "files" in commit["body"]]
        expected = (last, ticks[-1]["body"]["files"] if ticks else [])
        if (reader.known.number, reader.files) != expected:
            self.store.problems.append(f"a new reader finds {reader.known.number}, and {last} was the last commit")
