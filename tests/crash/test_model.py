"""The log against a plain model.

What it is: a hypothesis state machine does what users do, with two handles on one home (two ``Log`` objects stand for
two processes: each has its own descriptors, locks and caches), and compares every answer with lists in memory.
Invariants: a handle may crash at any boundary; then the append at hand is whole in all of its partitions or not there,
and nothing else changes. No batch ends inside an append. Retention moves the start and nothing else; compaction leaves
the latest row of each key.
Not here: power cuts (``test_every_boundary.py``), real kills (``test_kill_nine.py``).
Read next: ``ledger.py``.
"""

from __future__ import annotations

import datetime as dt
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.errors import OffsetOutOfRange, VersionConflict
from headwater.log.home import Log
from headwater.log.maintenance.compaction import compact_partition
from headwater.log.maintenance.sealing import seal_partition
from headwater.log.storage import routing
from headwater.log.storage.files import Files
from headwater.log.topic import Topic
from headwater.testing import Crash, CrashingFiles, ManualClock
from tests.crash.ledger import QuietLog, many

PARTITIONS = 2
SCHEMAS = ["k BIGINT, v BIGINT, at TIMESTAMP"]
SCHEMAS += [f"{SCHEMAS[0]}, extra_1 STRING", f"{SCHEMAS[0]}, extra_1 STRING, extra_2 STRING"]
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
HANDLES = st.sampled_from([0, 1])
KEYS = st.lists(st.integers(0, 8), min_size=1, max_size=6)
MINUTES = st.integers(0, 50)


@dataclass(frozen=True)
class Row:
    """A row of the model."""

    k: int
    v: int | None
    minute: int | None
    deleted: bool = False

    def stored(self, version: int) -> dict[str, Any]:
        extras = {f"extra_{n}": None for n in range(1, version)}
        return {"k": self.k, "v": self.v, "at": None if self.minute is None else moment(self.minute), **extras}


def moment(minute: int) -> dt.datetime:
    return START + dt.timedelta(minutes=minute)


class LogMachine(RuleBasedStateMachine):
    """Rules are what users do; the model is one list of (offset, row) for each partition."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.clock = ManualClock()
        self.logs: list[QuietLog] = []
        self.model: dict[int, list[tuple[int, Row]]] = {p: [] for p in range(PARTITIONS)}
        self.starts = dict.fromkeys(range(PARTITIONS), 0)
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self.number = 0
        self.version = 1
        self.sequence = -1
        self.last_numbered: list[Row] = []
        self.requests: dict[int, tuple[list[Row], list[dict[str, Any]], int]] = {}  # by the number of their id
        self.boundaries: dict[int, set[int]] = {p: {0} for p in range(PARTITIONS)}  # where appends end

    @initialize(fsync=st.sampled_from(["always", "interval", "never"]))
    def begin(self, fsync: str) -> None:
        self.settings = {
            "key": "k",
            "event_time": "at",
            "partitions": PARTITIONS,
            "fsync": fsync,
            "segment_bytes_max": 1500,
            "compact": True,
            "tombstone_grace": "1 ms",
        }
        self.logs = [self.open(), self.open()]

    def open(self, files: Files | None = None) -> QuietLog:
        log = QuietLog(self.path / "home", clock=self.clock, files=files)
        log.topic("t", SCHEMAS[self.version - 1], **self.settings)
        return log

    def topic(self, handle: int) -> Topic:
        return self.logs[handle].get_topic("t")

    # Appending

    def rows(self, keys: list[int], minute: int) -> list[Row]:
        rows = []
        for k in keys:
            self.number += 1
            rows.append(Row(k, self.number, minute))
        return rows

    def partition_of(self, k: int) -> int:
        return int(routing.partition_of(pa.record_batch({"k": pa.array([k])}), ["k"], PARTITIONS)[0])

    def note(self, rows: list[Row], partition: int | None = None) -> None:
        """The model's append; of one partition's part only, if told so."""
        for row in rows:
            target = self.partition_of(row.k)
            if partition is None or target == partition:
                self.model[target].append((self.ends[target], row))
                self.ends[target] += 1
        for target, end in self.ends.items():
            self.boundaries[target].add(end)

    def written(self, rows: list[Row]) -> list[dict[str, Any]]:
        return [row.stored(self.version) for row in rows]

    @rule(handle=HANDLES, keys=KEYS, minute=MINUTES)
    def append(self, handle: int, keys: list[int], minute: int) -> None:
        rows = self.rows(keys, minute)
        token = self.topic(handle).append(self.written(rows))
        self.note(rows)
        assert token.frontier["t"] == {self.partition_of(k): self.ends[self.partition_of(k)] for k in keys}

    @rule(handle=HANDLES, keys=KEYS, minute=MINUTES)
    def append_with_a_number(self, handle: int, keys: list[int], minute: int) -> None:
        self.sequence += 1
        self.last_numbered = self.rows(keys, minute)
        self.topic(handle).append(self.written(self.last_numbered), producer="importer", sequence=self.sequence)
        self.note(self.last_numbered)

    @precondition(lambda self: self.last_numbered)
    @rule(handle=HANDLES)
    def append_the_same_again(self, handle: int) -> None:
        rows = self.written(self.last_numbered)
        self.topic(handle).append(rows, producer="importer", sequence=self.sequence)

    @rule(handle=HANDLES, keys=KEYS, more=KEYS, minute=MINUTES)
    def append_in_a_transaction(self, handle: int, keys: list[int], more: list[int], minute: int) -> None:
        rows, others = self.rows(keys, minute), self.rows(more, minute)
        with self.logs[handle].transaction() as t:
            t.append(self.topic(handle), self.written(rows))
            t.append(self.topic(handle), self.written(others))
        self.note(rows + others)

    @rule(handle=HANDLES, keys=KEYS, minute=MINUTES, number=st.integers(0, 3))
    def append_with_an_id(self, handle: int, keys: list[int], minute: int, number: int) -> None:
        """The first append with an id is written; the same again, also by the other handle, is recognised."""
        known = self.requests.get(number)
        rows = self.rows(keys, minute) if known is None else known[0]
        written = self.written(rows) if known is None else known[1]
        if known is not None and known[2] != self.version:
            return  # the same rows are other content in a newer schema
        token = self.topic(handle).append(written, request_id=f"request {number}")
        assert token.repeated == (known is not None)
        if known is None:
            self.note(rows)
            self.requests[number] = rows, written, self.version

    @rule(
        handle=HANDLES, k=st.integers(0, 8), minute=MINUTES, guess=st.sampled_from(["right", "none", "exists", "old"])
    )
    def append_on_a_condition(self, handle: int, k: int, minute: int, guess: str) -> None:
        if any(self.starts.values()):
            return  # a handle may remember rows that retention has dropped
        mine = [(offset, row) for offset, row in self.model[self.partition_of(k)] if row.k == k]
        version = mine[-1][0] + 1 if mine and not mine[-1][1].deleted else 0
        assert self.topic(handle).version(k) == version
        expected = {"right": version, "old": version + 1}.get(guess, guess)
        holds = version > 0 if guess == "exists" else version == (0 if guess == "none" else expected)
        rows = self.rows([k], minute)
        if holds:
            self.topic(handle).append(self.written(rows), expected=expected)
            self.note(rows)
        else:
            with pytest.raises(VersionConflict):
                self.topic(handle).append(self.written(rows), expected=expected)

    @rule(handle=HANDLES, keys=KEYS)
    def delete(self, handle: int, keys: list[int]) -> None:
        self.topic(handle).delete([{"k": k} for k in keys])
        self.note([Row(k, None, None, deleted=True) for k in keys])

    @precondition(lambda self: self.version < len(SCHEMAS))
    @rule(handle=HANDLES)
    def evolve(self, handle: int) -> None:
        self.version += 1
        self.logs[handle].topic("t", SCHEMAS[self.version - 1], **self.settings)

    # Care

    @rule(handle=HANDLES, partition=st.integers(0, PARTITIONS - 1))
    def roll(self, handle: int, partition: int) -> None:
        self.topic(handle).partition(partition).roll()

    @rule(handle=HANDLES, partition=st.integers(0, PARTITIONS - 1))
    def seal(self, handle: int, partition: int) -> None:
        seal_partition(self.topic(handle), partition)

    @rule(handle=HANDLES)
    def sync(self, handle: int) -> None:
        for partition in range(PARTITIONS):
            self.topic(handle).partition(partition).sync()

    @rule(handle=HANDLES, partition=st.integers(0, PARTITIONS - 1), force=st.booleans())
    def compact(self, handle: int, partition: int, force: bool) -> None:
        topic = self.topic(handle)
        self.clock.advance(1)
        compact_partition(topic, partition, force=force)
        self.take_over_what_compaction_left(topic, partition)

    def take_over_what_compaction_left(self, topic: Topic, partition: int) -> None:
        """Which rows go depends on what is sealed; whatever it is, the latest row of each key must stay."""
        left = set(self.offsets_in(topic, partition))
        before = self.model[partition]
        assert left <= {offset for offset, _ in before}
        latest = {row.k: (offset, row) for offset, row in before}
        for offset, row in latest.values():
            assert offset in left or row.deleted, f"the latest row of key {row.k} was compacted away"
        for offset, row in before:
            if offset not in left:
                assert offset < latest[row.k][0] or row.deleted
        self.model[partition] = [(offset, row) for offset, row in before if offset in left]

    def offsets_in(self, topic: Topic, partition: int) -> list[int]:
        batches = topic.read_partition(partition, self.starts[partition], columns=["_offset"])
        return [offset for batch in batches for offset in batch.data.column("_offset").to_pylist()]

    @rule(handle=HANDLES)
    def retain(self, handle: int) -> None:
        """Keep next to nothing, once, and put the setting back."""
        log = self.logs[handle]
        log.topic("t", SCHEMAS[self.version - 1], **self.settings, retention_bytes=1)
        report = log.maintain()
        assert report.ok, str(report)
        log.topic("t", SCHEMAS[self.version - 1], **self.settings, retention_bytes=None)
        self.take_over_new_starts(log.get_topic("t"))

    def take_over_new_starts(self, topic: Topic) -> None:
        for partition, start in topic.start_offsets().items():
            assert self.starts[partition] <= start <= self.ends[partition]
            self.starts[partition] = start
            self.model[partition] = [(offset, row) for offset, row in self.model[partition] if offset >= start]
            self.take_over_what_compaction_left(topic, partition)

    # Crashes

    @rule(handle=HANDLES)
    def reopen(self, handle: int) -> None:
        self.logs[handle].close()
        self.logs[handle] = self.open()

    @rule(
        handle=HANDLES,
        keys=KEYS,
        minute=MINUTES,
        boundary=st.integers(0, 40),
        seed=st.integers(0, 99),
        numbered=st.booleans(),
    )
    def crash(self, handle: int, keys: list[int], minute: int, boundary: int, seed: int, numbered: bool) -> None:
        """One handle dies in an append or in sealing; the other one goes on, or the dead one comes back."""
        self.logs[handle].abandon()
        rows = self.rows(keys, minute)
        appending = rows  # until it is acknowledged
        identity = {"producer": "importer", "sequence": self.sequence + 1} if numbered else {}
        files = CrashingFiles(crash_at=boundary, seed=seed)
        log = None
        try:
            log = self.open(files)
            log.get_topic("t").append(self.written(rows), **identity)
            self.note(rows)
            appending = []
            for partition in range(PARTITIONS):
                log.get_topic("t").partition(partition).roll()
                seal_partition(log.get_topic("t"), partition)
        except Crash:
            pass
        finally:
            if log is not None:
                log.abandon()
        self.logs[handle] = self.open()
        grown = set()
        for partition, end in self.topic(handle).end_offsets().items():
            mine = [row for row in appending if self.partition_of(row.k) == partition]
            assert end in (self.ends[partition], self.ends[partition] + len(mine)), "an append was torn"
            if mine:
                grown.add(end > self.ends[partition])
            if end > self.ends[partition]:
                self.note(mine, partition)
        assert len(grown) <= 1, "some partitions have their part of an append, and others have not"
        if numbered:
            self.sequence += 1
            self.last_numbered = rows
            self.finish(handle, appending)

    def finish(self, handle: int, rows: list[Row]) -> None:
        """The producer tries again; only what is not there yet is written."""
        self.topic(handle).append(self.written(self.last_numbered), producer="importer", sequence=self.sequence)
        there = {row for partition in self.model.values() for _, row in partition}
        self.note([row for row in rows if row not in there])

    # Reading

    @rule(
        handle=HANDLES,
        partition=st.integers(0, PARTITIONS - 1),
        start=st.integers(0, 80),
        length=st.integers(0, 30),
        rows_max=st.sampled_from([1, 3, 1000]),
        columns=st.sampled_from([None, ["v"], ["_offset", "k"]]),
    )
    def read_a_range(
        self, handle: int, partition: int, start: int, length: int, rows_max: int, columns: list[str] | None
    ) -> None:
        topic, end = self.topic(handle), self.ends[partition]
        if not self.starts[partition] <= start <= end:
            with pytest.raises(OffsetOutOfRange):
                list(topic.read_partition(partition, start))
            return
        stop = min(start + length, end)
        batches = list(topic.read_partition(partition, start, stop=stop, rows_max=rows_max, columns=columns))
        found = [row for batch in batches for row in batch.to_pylist()]
        expected = []
        for offset, row in self.model[partition]:
            if start <= offset < stop:
                stored = {**row.stored(self.version), "_offset": offset}
                expected.append({name: stored[name] for name in columns or topic.schema.names})
        assert found == expected
        for batch in batches:
            assert batch.next_offset == stop or batch.next_offset in self.boundaries[partition], "an append was cut"
            inside = [end for end in self.boundaries[partition] if batch.first_offset < end < batch.next_offset]
            assert batch.num_rows <= rows_max or not inside, "more rows than asked for, and several appends"

    @rule(handle=HANDLES, minute=MINUTES)
    def look_up_a_time(self, handle: int, minute: int) -> None:
        found = self.topic(handle).offsets_at(moment(minute))
        for partition, rows in self.model.items():
            later = [offset for offset, row in rows if row.minute is not None and row.minute >= minute]
            assert found[partition] == (later[0] if later else self.ends[partition])

    @invariant()
    def both_handles_agree_with_the_model(self) -> None:
        for log in self.logs:
            topic = log.get_topic("t")
            assert topic.end_offsets() == self.ends
            assert topic.start_offsets() == self.starts
            for partition, rows in self.model.items():
                columns = ["_offset", "k", "v", "_deleted"]
                batches = topic.read_partition(partition, self.starts[partition], columns=columns)
                found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
                assert found == [(offset, row.k, row.v, row.deleted) for offset, row in rows]

    def teardown(self) -> None:
        if self.logs:
            report = self.logs[0].check()
            assert report.ok, str(report)
        for log in self.logs:
            log.close()
        shutil.rmtree(self.path, ignore_errors=True)


TestTheLogIsItsModel = LogMachine.TestCase
TestTheLogIsItsModel.settings = settings(
    max_examples=many(25), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


WRITER = """
import sys
from headwater.log.home import Log
topic = Log(sys.argv[1]).topic("t", "who INT, n INT", fsync="never", segment_bytes_max=4000, partitions=2)
for line in sys.stdin:  # one append for each line, when the test says so
    first, count = map(int, line.split())
    topic.append([{"who": int(sys.argv[2]), "n": n} for n in range(first, first + count)])
    print(sum(topic.end_offsets().values()), flush=True)
"""


def test_two_processes_that_take_turns_see_each_other_at_once(quick_path: Path) -> None:
    home = str(quick_path / "home")
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, home, str(who)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for who in (0, 1)
    ]
    sent: list[list[int]] = [[], []]

    for turn in range(60):
        who, count = (turn * 7 // 3) % 2, turn % 5 + 1
        first = len(sent[who])
        writers[who].stdin.write(f"{first} {count}\n")
        writers[who].stdin.flush()
        sent[who] += range(first, first + count)
        assert int(writers[who].stdout.readline()) == sum(map(len, sent)), "a process did not see the other's rows"
    for writer in writers:
        writer.communicate(timeout=60)

    with Log(home) as log:
        rows = list(log.get_topic("t").rows(columns=["_partition", "who", "n"]))
        for who in (0, 1):
            assert sorted(row["n"] for row in rows if row["who"] == who) == sent[who]
        assert log.check().ok


def test_a_reader_sees_a_segment_that_was_made_anew_after_a_crash() -> None:
    # Found by the machine: one process dies while it makes a segment for a new schema, which another one has open.
    machine = LogMachine()
    try:
        machine.begin(fsync="always")
        machine.both_handles_agree_with_the_model()
        machine.evolve(handle=0)
        machine.both_handles_agree_with_the_model()
        machine.crash(boundary=21, handle=0, keys=[0], minute=0, numbered=True, seed=0)
        machine.both_handles_agree_with_the_model()
    finally:
        machine.teardown()
