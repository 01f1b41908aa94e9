"""The library's own test cases for applications, projections and tags, over our persistence module."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from eventsourcing.dcb.tests import DCBRecorderTestCase
from eventsourcing.persistence import Tracking
from eventsourcing.tests import application as applications
from eventsourcing.tests import projection as projections
from eventsourcing.utils import get_topic

import headwater as hw
from headwater.aggregates import recorder as ours
from headwater.log.table import declare_table

MODULE = "headwater.aggregates.recorder"


class SetByEnvironment:
    """Applications of the test find our module in the environment, as users set it."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        os.environ.update(PERSISTENCE_MODULE=MODULE, HEADWATER_HOME=folder.name, HEADWATER_FSYNC="interval")
        super().setUp()


class TestExampleApplication(SetByEnvironment, applications.ExampleApplicationTestCase):
    expected_factory_topic = get_topic(ours.HeadwaterFactory)


class TestApplication(SetByEnvironment, applications.ApplicationTestCase):
    pass


class TestDCBRecorder(DCBRecorderTestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log = hw.Log(folder.name)
        self.addCleanup(self.log.close)

    def test_append_read(self) -> None:
        self._test_append_read(ours.HeadwaterDCBRecorder(self.log))

    def test_append_subscribe(self) -> None:
        self._test_append_subscribe(ours.HeadwaterDCBRecorder(self.log))

    def test_append_read_after_other_events(self) -> None:
        recorder = ours.HeadwaterDCBRecorder(self.log)
        recorder.append([projections_event(number) for number in range(3)])
        self._test_append_read(recorder, initial_position=3)


def projections_event(number: int) -> Any:
    from eventsourcing.dcb.api import DCBEvent

    return DCBEvent(type="earlier", data=b"", tags=[f"earlier-{number}"])


class EventCounters(ours.HeadwaterTrackingRecorder, projections.EventCountersView):
    """A user's read model: counts in a table, committed together with the tracking."""

    def __init__(self, log: hw.Log, name: str = "counters", **settings: Any) -> None:
        super().__init__(log, name, **settings)
        self._counts = declare_table(log, f"{name}_counts", "what STRING, n BIGINT", key="what")

    def get_created_event_counter(self) -> int:
        return self._count("created")

    def get_subsequent_event_counter(self) -> int:
        return self._count("subsequent")

    def incr_created_event_counter(self, tracking: Tracking) -> None:
        self._increase("created", tracking)

    def incr_subsequent_event_counter(self, tracking: Tracking) -> None:
        self._increase("subsequent", tracking)

    def _count(self, what: str) -> int:
        return sum(row["n"] for row in self._counts.to_arrow().to_pylist() if row["what"] == what)

    def _increase(self, what: str, tracking: Tracking) -> None:
        with self.recording(tracking) as transaction:
            transaction.upsert(self._counts, [{"what": what, "n": self._count(what) + 1}])


class TestEventCountersView(projections.EventCountersViewTestCase):
    def construct_event_counters_view(self) -> EventCounters:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        log = hw.Log(folder.name)
        self.addCleanup(log.close)
        return EventCounters(log)


class TestAggregateProjection(SetByEnvironment, projections.AggregateEventCountersProjectionTestCase):
    view_class = EventCounters


class TestTaggedProjection(SetByEnvironment, projections.TaggedDecisionCountersProjectionTestCase):
    view_class = EventCounters
    env = {"MAPPER_TOPIC": "eventsourcing.dcb.msgpack:MessagePackMapper"}  # noqa: RUF012


class TestEventSourcedProjection(SetByEnvironment, projections.EventSourcedProjectionTestCase):
    pass
