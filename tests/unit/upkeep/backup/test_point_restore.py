"""Points in time: a restored log is a cut up to that moment, and what is not covered is refused."""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli.main import app
from headwater.errors import NotBackedUp
from headwater.log.commits import cut_numbers
from headwater.log.home import Log
from headwater.log.maintenance.compaction import compact_partition
from headwater.log.token import Token
from headwater.testing import ManualClock
from headwater.upkeep.backup.backup_writer import create_backup
from headwater.upkeep.backup.point_restore import restore_at
from tests.unit.upkeep.backup.busy_home import BusyHome, assert_is_the_log_at

POINTS = 6 * int(os.environ.get("HEADWATER_THOROUGH", "1"))


def test_at_any_covered_point_the_log_is_a_cut_of_that_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_numbers, "CUT_SECONDS_MAX", 0.01)
    place, points = tmp_path / "backups", []
    with BusyHome(tmp_path / "home", seed=POINTS, compact=False) as busy:
        busy.log.wait_for("plain:0=1")
        for number in range(POINTS):
            time.sleep(busy.random.random() * 0.2)  # any moment
            ends = busy.log.cut(busy.log.topics())
            points.append((busy.log.clock.now_us(), Token(ends)))
            busy.log.maintain()
            if number % 3 == 2:
                create_backup(busy.log, place)

    for number, (at_us, seen) in enumerate(points):
        report = restore_at(place, tmp_path / f"time-{number}", at_us=at_us)
        assert report.token.covers(Token({name: of for name, of in seen.frontier.items() if name != "passing"}))
        assert_is_the_log_at(report.home, report.token, positions=False)
        with Log(report.home, maintenance_interval=None) as log:
            latest = dt.datetime.fromtimestamp(at_us / 1e6, dt.UTC)
            for topic in log.topics():
                for batch in topic.read("earliest", columns=["_appended_at"]):
                    assert max(row["_appended_at"] for row in batch.to_pylist()) <= latest
    (_, seen), (_, later) = points[1:3]
    exact = restore_at(place, tmp_path / "token", token=seen)
    # An append that was under way at the cut has its number, and is listed by the next one.
    for name in exact.token.frontier.keys() - {"passing"}:
        for number, end in exact.token.frontier[name].items():
            assert seen.frontier[name][number] <= end <= later.frontier[name][number], name
    assert_is_the_log_at(exact.home, exact.token, positions=False)


@pytest.fixture
def shop(tmp_path: Path) -> tuple[Log, ManualClock, list[int]]:
    """Ten appends, a minute apart, over sealed and Arrow segments; the times between them."""
    clock = ManualClock()
    log = Log(tmp_path / "home", clock=clock, maintenance_interval=None)
    orders = log.topic("orders", "id BIGINT, n BIGINT", key="id")
    times = []
    producer = orders.producer("till")
    for n in range(10):
        producer.append([{"id": n % 3, "n": n}])
        times.append(clock.now_us() + 1)
        clock.advance(60)
        if n in (3, 6):
            orders.partition(0).roll()
            log.maintain() if n == 6 else None
    return log, clock, times


def numbers(home: Path) -> list[int]:
    with Log(home, maintenance_interval=None) as log:
        return [row["n"] for batch in log.get_topic("orders").read("earliest") for row in batch.to_pylist()]


def test_each_minute_of_the_log_can_be_had_again(shop: tuple[Log, ManualClock, list[int]], tmp_path: Path) -> None:
    log, _, times = shop
    create_backup(log, tmp_path / "backups")

    for n, at_us in enumerate(times):
        report = restore_at(tmp_path / "backups", tmp_path / f"again-{n}", at_us=at_us)
        assert numbers(report.home) == list(range(n + 1))
        assert report.rows == n + 1
        with Log(report.home, maintenance_interval=None) as again:
            assert again.check().ok
            assert str(again.get_topic("orders").append([{"id": 9, "n": 99}])) == f"orders:0={n + 2}"


def test_what_groups_and_requests_know_of_later_rows_is_taken_back(
    shop: tuple[Log, ManualClock, list[int]], tmp_path: Path
) -> None:
    log, clock, times = shop
    orders = log.get_topic("orders")
    with orders.consumer("billing") as consumer:
        consumer.commit(consumer.poll(timeout=5))
    clock.advance(60)
    orders.append([{"id": 1, "n": 10}], request_id="late")
    create_backup(log, tmp_path / "backups")
    restore_at(tmp_path / "backups", tmp_path / "again", at_us=times[4])

    with Log(tmp_path / "again", maintenance_interval=None) as again:
        topic = again.get_topic("orders")
        assert topic.group("billing").positions() == {0: 5}
        again_token = topic.append([{"id": 1, "n": 10}], request_id="late")
        assert (str(again_token), again_token.repeated) == ("orders:0=6", False)
        # The producer's last append is cut off here, and is written when it is repeated.
        producer = topic.producer("till")
        assert str(producer.append([{"id": 1, "n": 9}])) == "orders:0=7"


def test_a_point_that_compaction_has_passed_is_refused_and_the_backups_own_is_not(
    shop: tuple[Log, ManualClock, list[int]], tmp_path: Path
) -> None:
    log, clock, times = shop
    place = tmp_path / "backups"
    orders = log.topic("orders", "id BIGINT, n BIGINT", key="id", compact=True)
    compact_partition(orders, 0, force=True)
    orders = log.get_topic("orders")
    orders.change_settings(compact=False)  # what was compacted stays so
    create_backup(log, place)
    clock.advance(60)
    orders.append([{"id": 0, "n": 10}])
    create_backup(log, place)

    with pytest.raises(NotBackedUp, match='does not have topic "orders" as it was at this point'):
        restore_at(place, tmp_path / "early", at_us=times[4])
    report = restore_at(place, tmp_path / "later", at_us=clock.now_us() - 30_000_000)
    assert sorted(numbers(report.home)) == [7, 8, 9]


def test_a_time_after_the_newest_backup_and_a_token_that_no_backup_has_are_refused(
    shop: tuple[Log, ManualClock, list[int]], tmp_path: Path
) -> None:
    log, clock, _ = shop
    create_backup(log, tmp_path / "backups")
    with pytest.raises(NotBackedUp, match=r"no backup at .* reaches to"):
        restore_at(tmp_path / "backups", tmp_path / "new", at_us=clock.now_us() + 1)
    with pytest.raises(NotBackedUp, match=r"no backup at .* reaches to the token orders:0=11"):
        restore_at(tmp_path / "backups", tmp_path / "new", token=Token.parse("orders:0=11"))
    words = ["restore", "--from", str(tmp_path / "backups"), "--to", str(tmp_path / "n"), "--at", "latest", "--json"]
    told = CliRunner().invoke(app, words)
    assert (told.exit_code, json.loads(told.stderr)["message"]) == (2, "'latest' is no point in time")
