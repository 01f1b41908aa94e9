"""The end of an alert is told, as its beginning is: in the topic, and to the callback."""

from __future__ import annotations

from pathlib import Path

from headwater.log.home import Log
from headwater.testing import ManualClock


def test_the_topic_and_the_callback_are_told_that_it_is_over(tmp_path: Path, clock: ManualClock) -> None:
    told: list[str] = []
    with Log(
        tmp_path / "home", clock=clock, on_alert=lambda alert: told.append(str(alert)), maintenance_interval=None
    ) as log:
        topic = log.topic("clicks", "x INT", retention="100 seconds")
        topic.consumer("billing").close()
        topic.append([{"x": 1}])
        clock.advance(85)
        log.maintain()

        topic.group("billing").reset("latest")
        log.maintain()
        log.maintain()

        rows = list(log.get_topic("_alerts").rows())

    assert len(rows) == len(told) == 2
    assert [row["kind"] for row in rows] == ["lag_at_risk", "lag_at_risk"]
    assert [row["state"] for row in rows] == ["begin", "end"]
    assert rows[1]["message"] == f"over: {rows[0]['message']}. It has read on."
