"""The library's own test cases for recorders, over ours."""

from __future__ import annotations

import tempfile
from uuid import uuid4

from eventsourcing.persistence import InfrastructureFactory, ProcessRecorder
from eventsourcing.tests import persistence as cases
from eventsourcing.utils import Environment

import headwater as hw
from headwater.aggregates import recorder as ours


class HomeOfTest:
    """A new home for each test."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log = hw.Log(folder.name)
        self.addCleanup(self.log.close)
        super().setUp()


class TestAggregateRecorder(HomeOfTest, cases.AggregateRecorderTestCase):
    def create_recorder(self) -> ours.HeadwaterAggregateRecorder:
        return ours.HeadwaterAggregateRecorder(self.log)


class TestAggregateRecorderWithTexts(HomeOfTest, cases.AggregateRecorderTestCase):
    def create_recorder(self) -> ours.HeadwaterAggregateRecorder:
        return ours.HeadwaterAggregateRecorder(self.log, id_type="text")

    def new_originator_id(self) -> str:
        return f"account-{uuid4()}"


class TestApplicationRecorder(HomeOfTest, cases.ApplicationRecorderTestCase):
    def create_recorder(self) -> ours.HeadwaterApplicationRecorder:
        return ours.HeadwaterApplicationRecorder(self.log)

    def test_insert_subscribe(self) -> None:
        self.optional_test_insert_subscribe()


class TestTrackingRecorder(HomeOfTest, cases.TrackingRecorderTestCase):
    def create_recorder(self) -> ours.HeadwaterTrackingRecorder:
        return ours.HeadwaterTrackingRecorder(self.log)


class TestProcessRecorder(HomeOfTest, cases.ProcessRecorderTestCase):
    def create_recorder(self) -> ProcessRecorder:
        return ours.HeadwaterProcessRecorder(self.log)


class TestProcessRecorderAsApplicationRecorder(HomeOfTest, cases.ApplicationRecorderTestCase):
    def create_recorder(self) -> ours.HeadwaterProcessRecorder:
        return ours.HeadwaterProcessRecorder(self.log)


class TestNonInterleavingNotificationIds(HomeOfTest, cases.NonInterleavingNotificationIDsBaseCase):
    def create_recorder(self) -> ours.HeadwaterApplicationRecorder:
        return ours.HeadwaterApplicationRecorder(self.log)


class OtherTrackingRecorder(ours.HeadwaterTrackingRecorder):
    """What a user may make of it."""


class TestFactory(cases.InfrastructureFactoryTestCase[ours.HeadwaterFactory]):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.env = Environment("TestCase")
        self.env[InfrastructureFactory.PERSISTENCE_MODULE] = "headwater.aggregates.recorder"
        self.env[ours.HeadwaterFactory.HEADWATER_HOME] = folder.name
        super().setUp()

    def expected_factory_class(self) -> type[ours.HeadwaterFactory]:
        return ours.HeadwaterFactory

    def expected_aggregate_recorder_class(self) -> type[ours.HeadwaterAggregateRecorder]:
        return ours.HeadwaterAggregateRecorder

    def expected_application_recorder_class(self) -> type[ours.HeadwaterApplicationRecorder]:
        return ours.HeadwaterApplicationRecorder

    def expected_tracking_recorder_class(self) -> type[ours.HeadwaterTrackingRecorder]:
        return ours.HeadwaterTrackingRecorder

    def tracking_recorder_subclass(self) -> type[ours.HeadwaterTrackingRecorder]:
        return OtherTrackingRecorder

    def expected_process_recorder_class(self) -> type[ours.HeadwaterProcessRecorder]:
        return ours.HeadwaterProcessRecorder
