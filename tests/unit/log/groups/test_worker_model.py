"""A work group against a plain model: whatever happens, each message is settled once, and only by its holder."""

import tempfile
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from headwater.errors import LeaseLost
from headwater.log.home import Log
from headwater.testing import ManualClock
from tests.unit.weighted_rows import thorough

LEASE_S = 10.0
DELIVERIES_MAX = 3
IN_FLIGHT_MAX = 6


@dataclass
class Known:
    """What the model knows of one message."""

    deliveries: int = 0
    holder: object = None  # the Message that holds it, None when it is in the queue
    until: float = 0.0
    end: str | None = None  # accepted or dead


class WorkGroup(RuleBasedStateMachine):
    messages = Bundle("messages")

    @initialize(rows=st.integers(0, 8))
    def open(self, rows):
        self.directory = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.model: dict[tuple[int, int], Known] = {}
        self.reasons: dict[tuple[int, int], str] = {}
        self._open()
        self.add(rows)

    def _open(self):
        self.log = Log(self.directory.name, clock=self.clock)
        self.topic = self.log.topic("jobs", "id BIGINT", partitions=2, fsync="never")
        self.workers = [self._hire() for _ in range(2)]

    def _hire(self):
        return self.topic.worker("g", lease=LEASE_S, deliveries_max=DELIVERIES_MAX, max_in_flight=IN_FLIGHT_MAX)

    def teardown(self):
        assert self.log.check().problems == ()
        self.log.close()
        self.directory.cleanup()

    def add(self, rows):
        for _ in range(rows):
            before = self.topic.end_offsets()
            self.topic.append([{"id": len(self.model)}])
            after = self.topic.end_offsets()
            [partition] = [p for p in after if after[p] != before[p]]
            self.model[partition, before[partition]] = Known()

    @rule(rows=st.integers(1, 4))
    def append(self, rows):
        self.add(rows)

    @rule(target=messages, worker=st.integers(0, 1), count=st.integers(1, 5))
    def take(self, worker, count):
        now = self.clock.monotonic()
        back = {k for k, m in self.model.items() if not m.end and m.deliveries and (not m.holder or m.until <= now)}
        dying = {k for k in back if self.model[k].deliveries >= DELIVERIES_MAX}
        unsettled = sum(1 for m in self.model.values() if m.deliveries and not m.end)
        new = sum(1 for m in self.model.values() if not m.deliveries)

        taken = self.workers[worker].take(count, timeout=0)

        for key in dying:
            self.model[key].end = "dead"
            self.reasons[key] = "not accepted"
        keys = [(m.partition, m.offset) for m in taken]
        assert len(set(keys)) == len(keys)
        again = [k for k in keys if k in back]
        alive = back - dying
        assert set(again) <= alive
        assert keys[: len(again)] == again, "what came back goes first"
        assert len(again) == min(count, len(alive))
        if again or not dying:
            room = max(0, min(count - len(again), IN_FLIGHT_MAX - unsettled, new))
            assert len(keys) - len(again) == room
        for message in taken:
            known = self.model[message.partition, message.offset]
            known.deliveries += 1
            known.holder, known.until = message, now + LEASE_S
            assert message.deliveries == known.deliveries
        self._new_ones_are_in_order()
        return multiple(*taken)

    def _new_ones_are_in_order(self):
        for partition in range(2):
            delivered = [m.deliveries > 0 for (p, _), m in sorted(self.model.items()) if p == partition]
            assert delivered == sorted(delivered, reverse=True)

    def answer(self, message, act):
        """Runs an answer; True when the model says that the message is this one's, and it went through."""
        known = self.model[message.partition, message.offset]
        if message.answer is not None:
            return False
        if known.holder is message and not known.end:
            act()
            return True
        with pytest.raises(LeaseLost):
            act()
        return False

    @rule(message=messages)
    def accept(self, message):
        if message.answer in (None, "accepted") and self.answer(message, message.accept):
            self.model[message.partition, message.offset].end = "accepted"

    @rule(message=messages)
    def release(self, message):
        if self.answer(message, message.release):
            known = self.model[message.partition, message.offset]
            known.holder = None
            if known.deliveries >= DELIVERIES_MAX:
                known.end = "dead"
                self.reasons[message.partition, message.offset] = "not accepted"

    @rule(message=consumes(messages))
    def reject(self, message):
        if self.answer(message, lambda: message.reject("bad")):
            self.model[message.partition, message.offset].end = "dead"
            self.reasons[message.partition, message.offset] = "bad"

    @rule(message=messages, lease=st.sampled_from([1.0, 20.0]))
    def renew(self, message, lease):
        if self.answer(message, lambda: message.renew(lease)):
            self.model[message.partition, message.offset].until = self.clock.monotonic() + lease

    @rule(seconds=st.sampled_from([1.0, LEASE_S / 2, LEASE_S]))
    def time_passes(self, seconds):
        self.clock.advance(seconds)

    @rule(worker=st.integers(0, 1))
    def a_worker_dies(self, worker):
        # Nothing is told to anybody: its messages stay leased until their leases run out.
        self.workers[worker] = self._hire()

    @rule(worker=st.integers(0, 1))
    def a_worker_closes(self, worker):
        closing = self.workers[worker]
        closing.close()
        for known in self.model.values():
            if known.holder is not None and known.holder._worker is closing and known.holder.answer is None:
                known.holder = None
        self.workers[worker] = self._hire()

    @invariant()
    def positions_are_the_lowest_unsettled_offsets(self):
        if not hasattr(self, "log"):
            return
        ends = self.topic.end_offsets()
        positions = self.topic.group("g").positions()
        for partition in range(2):
            open_ones = [o for (p, o), m in self.model.items() if p == partition and not m.end]
            assert positions[partition] == min(open_ones, default=ends[partition])

    @invariant()
    def dead_letters_are_those_of_the_model_each_once(self):
        dead = {key for key, known in getattr(self, "model", {}).items() if known.end == "dead"}
        letters = [] if not dead else list(self.log.get_topic("jobs.g.dead").rows())
        assert sorted((row["partition"], row["offset"]) for row in letters) == sorted(dead)
        assert all(row["reason"].startswith(self.reasons[row["partition"], row["offset"]]) for row in letters)


TestWorkGroup = WorkGroup.TestCase
TestWorkGroup.settings = settings(max_examples=thorough(20), stateful_step_count=30, deadline=None)
