"""Our recorders where the library's test cases do not look: processes, restarts, order, settings."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from eventsourcing.dcb.api import DCBAppendCondition, DCBEvent, DCBQuery, DCBQueryItem
from eventsourcing.persistence import (
    InfrastructureFactory,
    InfrastructureFactoryError,
    IntegrityError,
    StoredEvent,
    Tracking,
)
from eventsourcing.utils import Environment

from headwater.aggregates import recorder as ours
from headwater.aggregates.recorder import history_wait
from headwater.errors import Misuse
from headwater.log.home import Log

WRITER = """
import sys, uuid
from eventsourcing.persistence import IntegrityError, StoredEvent
from headwater.aggregates.recorder import HeadwaterApplicationRecorder
from headwater.log.home import Log
recorder = HeadwaterApplicationRecorder(Log(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
won = 0
for version in range(1, 51):
    try:
        recorder.insert_events([StoredEvent(uuid.UUID(int=7), version, "by " + sys.argv[2], b"")])
        won += 1
    except IntegrityError:
        pass
print(won, flush=True)
"""


SEVEN = UUID(int=7)


def stored(version: int, originator: UUID | str = SEVEN, topic: str = "topic", state: bytes = b"{}") -> StoredEvent:
    return StoredEvent(originator, version, topic, state)


def test_of_several_processes_one_has_each_version(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "home")]
    with Log(tmp_path / "home") as log:
        recorder = ours.HeadwaterApplicationRecorder(log)
        writers = [
            subprocess.Popen([*command, str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for n in range(3)
        ]
        assert [writer.stdout and writer.stdout.readline() for writer in writers] == ["ready\n"] * 3
        with recorder.subscribe() as subscription:
            won = [int(writer.communicate("\n", timeout=120)[0]) for writer in writers]
            followed = [next(subscription) for _ in range(50)]

        assert sum(won) == 50
        assert [event.originator_version for event in recorder.select_events(UUID(int=7))] == list(range(1, 51))
        assert [(one.id, one.originator_version) for one in followed] == [(n, n) for n in range(1, 51)]
        assert recorder.max_notification_id() == 50


def test_versions_may_have_gaps_and_come_in_any_order(tmp_path: Path) -> None:
    with Log(tmp_path / "home") as log:
        snapshots = ours.HeadwaterAggregateRecorder(log, "snapshots")
        for version in (10, 11, 30, 20, 12):
            snapshots.insert_events([stored(version)])
        for reader in (snapshots, ours.HeadwaterAggregateRecorder(log, "snapshots")):
            for version in (10, 11, 12, 20, 30):
                with pytest.raises(IntegrityError, match=f"version {version}"):
                    reader.insert_events([stored(version)])

            def versions(**options: object) -> list[int]:
                return [event.originator_version for event in reader.select_events(UUID(int=7), **options)]  # noqa: B023

            assert versions() == [10, 11, 12, 20, 30]
            assert versions(desc=True, limit=2) == [30, 20]
            assert versions(gt=11, lte=20) == [12, 20]
            assert versions(lte=9) == versions(gt=30) == []
        snapshots.insert_events([stored(21), stored(1)])
        assert [event.originator_version for event in snapshots.select_events(UUID(int=7), lte=10)] == [1, 10]


@pytest.mark.parametrize("first", [0, 1, 5])
def test_versions_that_rise_by_one_are_found_by_range(tmp_path: Path, first: int) -> None:
    with Log(tmp_path / "home") as log:
        recorder = ours.HeadwaterApplicationRecorder(log)
        recorder.insert_events([stored(first + n, state=b"%d" % n) for n in range(6)])
        expected = list(range(first, first + 6))
        for gt in (None, -1, first - 1, first, first + 3, first + 9):
            for lte in (None, first - 1, first, first + 2, first + 9):
                found = [event.originator_version for event in recorder.select_events(UUID(int=7), gt=gt, lte=lte)]
                assert found == [v for v in expected if (gt is None or v > gt) and (lte is None or v <= lte)]


def test_what_was_recorded_is_there_after_a_restart(tmp_path: Path) -> None:
    one, other = uuid4(), uuid4()
    with Log(tmp_path / "home") as log:
        recorder = ours.HeadwaterProcessRecorder(log, segment_bytes_max=3_000)
        for version in range(1, 30):
            recorder.insert_events(
                [stored(version, one, state=b"a"), stored(version, other, "t2", b"\x00\xff")],
                tracking=Tracking("upstream", version),
            )
        log.maintain()  # some segments get sealed
    with Log(tmp_path / "home") as log:
        recorder = ours.HeadwaterProcessRecorder(log)

        assert [(e.originator_version, e.state) for e in recorder.select_events(other)] == [
            (version, b"\x00\xff") for version in range(1, 30)
        ]
        assert [n.id for n in recorder.select_notifications(None, 100, topics=["t2"])] == list(range(2, 59, 2))
        assert recorder.max_tracking_id("upstream") == 29
        with pytest.raises(IntegrityError):
            recorder.insert_events([stored(30, one)], tracking=Tracking("upstream", 29))
        assert recorder.insert_events([stored(30, one)], tracking=Tracking("upstream", 30)) == [59]


def test_two_processes_that_track_one_application_do_not_both_get_in(tmp_path: Path) -> None:
    with Log(tmp_path / "home") as log, Log(tmp_path / "home") as elsewhere:
        recorders = [ours.HeadwaterProcessRecorder(each, "orders_events") for each in (log, elsewhere)]
        for number in range(1, 21):
            gate, outcomes = threading.Barrier(2), []

            def insert(recorder: ours.HeadwaterProcessRecorder) -> None:
                gate.wait()  # noqa: B023
                try:
                    recorder.insert_events([stored(1, uuid4())], tracking=Tracking("shop", number))  # noqa: B023
                except IntegrityError:
                    return
                outcomes.append(number)  # noqa: B023

            threads = [threading.Thread(target=insert, args=(recorder,)) for recorder in recorders]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert outcomes == [number]

        assert recorders[0].max_notification_id() == 20  # what was refused left no event


def test_a_stopped_subscription_wakes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_wait, "LOOK_S", 3600.0)  # it would look by itself only then
    with Log(tmp_path / "home") as log:
        recorder = ours.HeadwaterApplicationRecorder(log)
        subscription = recorder.subscribe()
        ended = threading.Event()

        def follow() -> None:
            assert list(subscription) == []
            ended.set()

        threading.Thread(target=follow, daemon=True).start()
        subscription.stop()

        assert ended.wait(120)


def test_a_type_of_any_name_is_no_column(tmp_path: Path) -> None:
    with Log(tmp_path / "home") as log:
        tags = ours.HeadwaterDCBRecorder(log)
        for name in ("stream", "tags", "data", "at", "a:b.c"):
            tags.append([DCBEvent(name, name.encode(), ["x"])])
        found = list(ours.HeadwaterDCBRecorder(log).read(DCBQuery(items=[DCBQueryItem(tags=["x"])])))

        assert [(one.event.type, one.event.data) for one in found] == [
            (name, name.encode()) for name in ("stream", "tags", "data", "at", "a:b.c")
        ]
        with pytest.raises(IntegrityError):
            tags.append([DCBEvent("b", b"")], DCBAppendCondition(after=4))


def test_a_history_is_written_by_its_recorder_alone(tmp_path: Path) -> None:
    with Log(tmp_path / "home") as log:
        ours.HeadwaterApplicationRecorder(log).insert_events([stored(1)])

        with pytest.raises(Misuse, match="history of events"):
            log.get_topic("stored_events").append([{"stream": "7"}])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "HEADWATER_HOME"),
        ({"HEADWATER_HOME": "home", "HEADWATER_FSYNC": "sometimes"}, "use always, interval or never"),
        ({"HEADWATER_HOME": "home", "ORIGINATOR_ID_TYPE": "int"}, "use uuid or text"),
    ],
)
def test_wrong_settings_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    environment = Environment("Bank", {"PERSISTENCE_MODULE": "headwater.aggregates.recorder", **settings})

    with pytest.raises(InfrastructureFactoryError, match=said):
        InfrastructureFactory.construct(environment)


def test_histories_are_named_after_the_application(tmp_path: Path) -> None:
    environment = {
        "PERSISTENCE_MODULE": "headwater.aggregates.recorder",
        "BANK_HEADWATER_HOME": str(tmp_path / "home"),
        "BANK_HEADWATER_FSYNC": "always",
    }
    factory = InfrastructureFactory.construct(Environment("Bank", environment))
    factory.application_recorder()
    factory.aggregate_recorder(purpose="snapshots")
    factory.dcb_recorder()

    assert factory.log.topic_names() == ["bank_dcb_events", "bank_events", "bank_snapshots"]
    assert factory.log.get_topic("bank_events").settings.fsync == "always"
    factory.close()
