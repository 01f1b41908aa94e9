"""A round of care: everything at once, as often as one likes, by as many as there are."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from headwater.errors import ClosedError
from headwater.log.home import Log
from headwater.log.maintenance.maintenance import maintain
from headwater.testing import ManualClock
from tests.waiting import eventually


def test_a_segment_older_than_segment_ms_max_is_ended_and_sealed(log: Log, clock: ManualClock) -> None:
    topic = log.topic("t", "x INT", segment_age_max="1 minute")
    topic.append([{"x": 1}])
    young = log.maintain()

    clock.advance(60)
    report = log.maintain()

    assert young.steps == ()
    assert report.steps[0].action == "roll"
    eventually(lambda: topic.describe()["partitions"][0]["sealed_segments"] == 1)
    assert log.maintain().steps == ()


def test_the_report_can_be_read_by_people_and_programs(log: Log, clock: ManualClock) -> None:
    topic = log.topic("t", "x INT", retention="1 second")
    topic.consumer("g").close()
    topic.append([{"x": 1}] * 3)
    clock.advance(1)

    report = log.maintain()

    assert "t[0]: dropped 1 segments (3 rows" in str(report)
    assert 'has overtaken group "g"' in str(report)
    values = json.loads(json.dumps(report.to_dict()))
    assert values["ok"] is True
    assert values["steps"][-1]["numbers"]["start_offset"] == 3
    assert str(log.maintain()).startswith("Nothing to do: 2 topics, 2 partitions")


def test_a_step_that_fails_is_reported_alerted_and_does_not_stop_the_others(log: Log, clock: ManualClock) -> None:
    broken = log.topic("a", "id INT", key="id", compact=True)
    broken.append([{"id": 1}])
    broken.partition(0).roll()
    log.maintain()
    path = next((broken.directory / "0").glob("*.parquet"))
    data = bytearray(path.read_bytes())
    data[30] ^= 1
    path.write_bytes(data)
    broken.append([{"id": 1}])
    broken.partition(0).roll()
    sound = log.topic("b", "x INT", retention="1 second")
    sound.append([{"x": 1}])
    clock.advance(1)

    report = log.maintain()

    assert not report.ok
    assert [(s.topic, s.action) for s in report.steps if s.failed] == [("a", "compact")]
    assert [alert.kind for alert in report.alerts] == ["corruption"]
    assert sound.start_offsets() == {0: 1}
    assert "compact failed: the sealed segment" in str(report)


def test_two_rounds_at_once_do_everything_once(tmp_path: Path, clock: ManualClock) -> None:
    logs = [Log(tmp_path / "home", clock=clock, maintenance_interval=None) for _ in range(2)]
    topics = [
        log.topic("t", "id INT, x INT", key="id", partitions=3, compact=True, retention="10 seconds") for log in logs
    ]
    for turn in range(6):
        topics[0].append([{"id": n, "x": turn} for n in range(30)])
        for number in range(3):
            topics[0].partition(number).roll()

    reports = []
    threads = [threading.Thread(target=lambda log=log: reports.append(maintain(log))) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(report.ok for report in reports), [str(report) for report in reports]
    assert sorted(row["id"] for row in topics[1].rows()) == list(range(30))
    assert {row["x"] for row in topics[1].rows()} == {5}
    assert logs[1].check().problems == ()
    for log in logs:
        log.close()


def test_a_process_that_stays_cares_by_itself(tmp_path: Path, clock: ManualClock) -> None:
    with Log(tmp_path / "home", clock=clock, maintenance_interval=0.05) as log:
        topic = log.topic("t", "x INT", retention="1 second")
        topic.append([{"x": 1}])

        clock.advance(1)

        eventually(lambda: topic.start_offsets() == {0: 1})


def test_without_an_interval_nothing_happens_by_itself_and_opening_starts_no_thread(tmp_path: Path) -> None:
    def maintainers() -> int:
        return sum(thread.name == "headwater-maintenance" for thread in threading.enumerate())

    before = maintainers()
    with Log(tmp_path / "a") as log, Log(tmp_path / "b", maintenance_interval=None) as other:
        opened = maintainers()
        log.topic("t", "x INT")
        other.topic("t", "x INT")

        assert opened == before
        assert maintainers() == before + 1
    assert maintainers() == before


def test_a_closed_log_is_not_cared_for(log: Log) -> None:
    log.close()

    with pytest.raises(ClosedError):
        log.maintain()


def test_a_closed_segment_whose_index_is_damaged_is_told_instead_of_waited_for(tmp_path: Path) -> None:
    class UnsealedLog(Log):
        def wake_maintenance(self) -> None:
            """Nothing: the segments stay Arrow until the round."""

    with UnsealedLog(tmp_path / "home", maintenance_interval=None) as log:
        topic = log.topic("t", "x INT")
        for _ in range(2):
            topic.append([{"x": 1}])
            topic.partition(0).roll()
        index = topic.directory / "0" / f"{0:020d}.index"
        index.write_bytes(index.read_bytes()[:-64])

        report = log.maintain()

        assert [(step.action, step.failed) for step in report.steps] == [("seal", True)]
        assert [alert.kind for alert in report.alerts] == ["corruption"]
