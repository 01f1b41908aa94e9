"""A work group that looks at its messages, against a plain model.

What it is: the lease state machine with times of delivery and expiry, priorities, order by key, delays and redrives:
hypothesis takes, answers, kills and waits; a dictionary says what must come out.
Invariants: each take gives exactly what the model gives, in that order. At no moment are two messages of a key held:
delivered and not answered, whether or not the lease has run out.
Not here: groups that look at nothing (``test_worker_model.py``); real processes (``tests/crash/``).
Read next: ``log/groups/staging.py``.
"""

import datetime as dt
import tempfile
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from headwater.errors import LeaseLost
from headwater.log.home import Log
from headwater.testing import ManualClock
from tests.unit.weighted_rows import thorough

LEASE_S = 10.0
DELIVERIES_MAX = 3
IN_FLIGHT_MAX = 4
NEVER = float("inf")

jobs = st.fixed_dictionaries(
    {
        "account": st.sampled_from([None, "a", "b"]),
        "urgency": st.sampled_from([None, 0, 1, 2]),
        "due": st.sampled_from([None, 3.0, 15.0]),
        "until": st.sampled_from([None, None, 4.0, 20.0]),
    }
)


@dataclass
class Job:
    """What the model knows of one message. Times are of the clock."""

    place: tuple[int, int]
    account: str | None
    urgency: int
    visible: float
    expires: float
    deliveries: int = 0
    holder: object = None
    until: float = 0.0
    end: str | None = None
    deaths: int = field(default=0)

    def leased(self, now):
        return self.holder is not None and self.until > now


class Queue(RuleBasedStateMachine):
    messages = Bundle("messages")

    @initialize()
    def open(self):
        self.directory = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.log = Log(self.directory.name, clock=self.clock, maintenance_interval=None)
        self.topic = self.log.topic(
            "jobs", "account STRING, urgency INT, due TIMESTAMP, until TIMESTAMP", partitions=2, fsync="never"
        )
        self.model: dict[tuple[int, int], Job] = {}
        self.waiting_letters: list[tuple[int, int]] = []
        self.workers = [self._hire() for _ in range(2)]

    def _hire(self):
        return self.topic.worker(
            "g",
            lease=LEASE_S,
            deliveries_max=DELIVERIES_MAX,
            max_in_flight=IN_FLIGHT_MAX,
            deliver_at="due",
            expires_at="until",
            priority="urgency",
            ordered_by="account",
        )

    def teardown(self):
        if hasattr(self, "log"):
            assert self.log.check().problems == ()
            self.log.close()
            self.directory.cleanup()

    def now(self):
        return self.clock.now_us() / 1e6

    @rule(rows=st.lists(jobs, min_size=1, max_size=4))
    def append(self, rows):
        now = self.now()
        for row in rows:
            times = {name: None if row[name] is None else now + row[name] for name in ("due", "until")}
            stored = {name: at and dt.datetime.fromtimestamp(at, dt.UTC) for name, at in times.items()}
            before = self.topic.end_offsets()
            self.topic.append([{**row, **stored}])
            [partition] = [p for p, end in self.topic.end_offsets().items() if end != before[p]]
            place = (partition, before[partition])
            visible, expires = times["due"] or 0.0, times["until"] or NEVER
            self.model[place] = Job(place, row["account"], row["urgency"] or 0, visible, expires)

    # Taking

    def over(self, now):
        """What the next take gives up: its time is over, or it came back too often."""
        return [
            job
            for job in self.model.values()
            if not job.end
            and not job.leased(now)
            and (job.expires <= now or (job.deliveries >= DELIVERIES_MAX and job.visible <= now))
        ]

    def choice(self, now, count, giving_up):
        """What a look at the queue chooses; what is being given up counts as leased."""
        leased = [job for job in self.model.values() if not job.end and job.leased(now)] + giving_up
        room = min(count, IN_FLIGHT_MAX - len(leased))
        found = []
        for job in sorted(self.model.values(), key=lambda j: (-j.urgency, j.place[1], j.place[0])):
            if job.end or job in leased or job.visible > now or (job.holder is not None and job.until > now):
                continue
            others = [o for o in self.model.values() if o is not job and not o.end and o.account == job.account]
            earlier = any(o.place[0] == job.place[0] and o.place[1] < job.place[1] for o in others)
            held = any(o in leased or o.holder is not None for o in others)
            if job.account is not None and (earlier or held):
                continue
            found.append(job)
        chosen = []
        for job in found[: max(0, room)]:
            if job.account is None or all(job.account != other.account for other in chosen):
                chosen.append(job)
        return chosen

    @rule(target=messages, worker=st.integers(0, 1), count=st.integers(1, 5))
    def take(self, worker, count):
        now = self.now()
        giving_up = self.over(now)
        expected = self.choice(now, count, giving_up)
        for job in sorted(giving_up, key=lambda job: job.place):  # letters of one transaction are in this order
            self.dies(job)
        if not expected and giving_up:
            expected = self.choice(now, count, [])

        taken = self.workers[worker].take(count, timeout=0)

        assert [(m.partition, m.offset) for m in taken] == [job.place for job in expected]
        for message, job in zip(taken, expected, strict=True):
            job.deliveries += 1
            job.holder, job.until, job.visible = message, now + LEASE_S, now + LEASE_S
            assert message.deliveries == job.deliveries
        return multiple(*taken)

    def dies(self, job):
        job.end, job.holder = "dead", None
        self.waiting_letters.append(job.place)

    # Answering

    def answered(self, message, act):
        job = self.model[message.partition, message.offset]
        if message.answer is not None:
            return None
        if job.holder is message and not job.end:
            act()
            return job
        with pytest.raises(LeaseLost):
            act()
        return None

    @rule(message=messages)
    def accept(self, message):
        job = self.answered(message, message.accept)
        if job is not None:
            job.end = "accepted"

    @rule(message=messages, delay=st.sampled_from([0.0, 2.0, 30.0]))
    def release(self, message, delay):
        job = self.answered(message, lambda: message.release(delay))
        if job is not None and job.deliveries >= DELIVERIES_MAX:
            self.dies(job)
        elif job is not None:
            job.holder, job.visible = None, self.now() + delay

    @rule(message=messages)
    def reject(self, message):
        job = self.answered(message, lambda: message.reject("bad"))
        if job is not None:
            self.dies(job)

    @rule(message=messages)
    def renew(self, message):
        job = self.answered(message, lambda: message.renew(20.0))
        if job is not None:
            job.until = job.visible = self.now() + 20.0

    @rule(limit=st.sampled_from([None, 1]))
    def redrive(self, limit):
        put_back = self.waiting_letters[:limit]
        self.waiting_letters = self.waiting_letters[len(put_back) :]

        assert self.topic.group("g").redrive(limit=limit).redriven == len(put_back)

        for place in put_back:
            job = self.model[place]
            job.end, job.deliveries, job.visible, job.expires = None, 0, 0.0, NEVER

    # Time and death

    @rule(seconds=st.sampled_from([1.0, 5.0, LEASE_S]))
    def time_passes(self, seconds):
        self.clock.advance(seconds)

    @rule(worker=st.integers(0, 1))
    def a_worker_dies(self, worker):
        self.workers[worker] = self._hire()

    @rule(worker=st.integers(0, 1))
    def a_worker_closes(self, worker):
        closing = self.workers[worker]
        closing.close()
        for job in self.model.values():
            if job.holder is not None and not job.end and job.holder._worker is closing:
                job.holder, job.visible = None, self.now()
        self.workers[worker] = self._hire()

    # What always holds

    @invariant()
    def at_most_one_message_of_a_key_is_held(self):
        if hasattr(self, "log"):
            sql = (
                "SELECT order_key FROM work_messages JOIN work_details USING (group_id, partition, offset)"
                " WHERE released = 0 AND order_key IS NOT NULL"
            )
            keys = [row["order_key"] for row in self.log.catalog.read(sql)]
            assert len(keys) == len(set(keys))

    @invariant()
    def details_are_kept_for_unsettled_messages_only(self):
        if hasattr(self, "log"):
            have = {tuple(row) for row in self.log.catalog.read("SELECT partition, offset FROM work_details")}
            staged = {tuple(row) for row in self.log.catalog.read("SELECT partition, offset FROM work_messages")}
            assert have == staged
            assert all(not self.model[place].end for place in have)

    @invariant()
    def every_death_is_one_letter(self):
        if hasattr(self, "log"):
            about = self.topic.group("g").describe()
            assert about.dead_letters - about.redriven == len(self.waiting_letters)


TestQueue = Queue.TestCase
# As few as a minute allows on a busy machine; 500 of them were run by hand.
TestQueue.settings = settings(
    max_examples=thorough(15), stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
