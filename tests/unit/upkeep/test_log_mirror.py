"""A mirror between two homes: the same rows at the same offsets, and what is refused."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headwater as hw
from headwater.cli.main import app as command_line
from headwater.errors import DeclarationConflict, Fenced, Misuse, UnknownTopic
from headwater.log.table import declare_table
from headwater.upkeep.log_checksum import checksum_of
from headwater.upkeep.log_mirror import LogMirror
from headwater.upkeep.mirror_position import PromotedTopic, promote


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[tuple[hw.Log, hw.Log]]:
    with hw.Log(tmp_path / "source") as source, hw.Log(tmp_path / "target") as target:
        yield source, target


def test_rows_settings_and_offsets_are_kept_and_later_topics_and_columns_follow(logs: tuple[hw.Log, hw.Log]) -> None:
    source, target = logs
    users = source.topic("users", "id INT, name STRING", key="id", partitions=3, retention="7 days", compact=True)
    users.append([{"id": n, "name": "Ada"} for n in range(20)], metadata=hw.Metadata(actor="anna"))
    users.delete([{"id": n} for n in range(0, 20, 3)])
    basket = declare_table(source, "basket", "fruit STRING")
    basket.insert([{"fruit": "apple"}] * 3)
    basket.delete([{"fruit": "apple"}])
    mirror = LogMirror(source, target)
    mirror.catch_up()

    source.topic("users", "id BIGINT, name STRING, note STRING", key="id")
    users.append([{"id": 2**40, "note": "new"}])
    source.topic("later", "x INT", partitions=2).append([{"x": 1}], partition=1)
    mirror.look()
    assert mirror.catch_up() == 2

    columns = ["id", "name", "note", "_deleted", "_actor", "_offset", "_partition"]
    users.refresh()
    copy = target.get_topic("users")
    assert sorted(map(str, copy.rows(columns=columns))) == sorted(map(str, users.rows(columns=columns)))
    assert copy.settings == users.settings
    assert [row["fruit"] for row in hw.App("x", home=target.home).get_table("basket").rows()] == ["apple", "apple"]
    assert target.get_topic("later").end_offsets() == {0: 0, 1: 1}
    assert all(each.equal for each in mirror.compare())


def test_topics_of_the_system_are_left_out_and_rows_of_another_origin_refused(logs: tuple[hw.Log, hw.Log]) -> None:
    source, target = logs
    source.topic("_own", "x INT").append([{"x": 1}])
    source.topic("orders", "x INT").append([{"x": 1}])

    mirror = LogMirror(source, target)
    mirror.catch_up()
    assert (mirror.left_out(), target.topic_names()) == (["_own"], ["orders"])
    with pytest.raises(UnknownTopic, match='no topic "order" in the log'):
        LogMirror(source, target, topics=["order"])
    target.topic("other", "x INT").append([{"x": 7}])
    source.topic("other", "x INT").append([{"x": 1}])
    with pytest.raises(DeclarationConflict, match=r'topic "other" .* has rows, and not from this source'):
        LogMirror(source, target)


def test_of_two_mirrors_one_is_told(logs: tuple[hw.Log, hw.Log]) -> None:
    source, target = logs
    orders = source.topic("orders", "x INT")
    one, other = LogMirror(source, target), LogMirror(source, target)
    orders.append([{"x": 1}])

    one.catch_up()
    with pytest.raises(Fenced, match='another process mirrors topic "orders"'):
        other.catch_up()

    assert [row["x"] for row in target.get_topic("orders").rows()] == [1]


def test_a_mirror_that_stalls_over_a_promotion_writes_nothing(
    logs: tuple[hw.Log, hw.Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = logs
    orders = source.topic("orders", "x INT", partitions=2)
    orders.append([{"x": 1}], partition=1)
    stalled = LogMirror(source, target)
    stalled.catch_up()
    orders.append([{"x": 2}], partition=1)
    transaction = target.transaction

    def transaction_later() -> object:  # between the look at the position and the commit
        monkeypatch.undo()
        assert promote(target) == [PromotedTopic("orders", 2, {0: 0, 1: 1})]
        assert promote(target) == [PromotedTopic("orders", 2, {0: 0, 1: 1})]  # again: nothing more
        return transaction()

    monkeypatch.setattr(target, "transaction", transaction_later)
    with pytest.raises(Fenced, match=r'topic "orders" .* is no copy any more'):
        stalled.catch_up()
    orders.append([{"x": 3}], partition=0)  # a partition that had no row of a mirror yet
    with pytest.raises(Fenced, match="no copy any more"):
        stalled.catch_up()
    with pytest.raises(Fenced, match="no copy any more"):
        LogMirror(source, target)
    target.get_topic("orders").append([{"x": 7}], partition=0)
    assert sorted(row["x"] for row in target.get_topic("orders").rows()) == [1, 7]


def test_a_promotion_that_was_killed_is_ended_with_the_same_epoch_and_what_is_no_copy_is_refused(
    tmp_path: Path, logs: tuple[hw.Log, hw.Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = logs
    source.topic("orders", "x INT", partitions=2).append([{"x": n} for n in range(4)])
    LogMirror(source, target).catch_up()
    transactions, transaction = itertools.count(), target.transaction

    def killed_at_the_second() -> object:
        if next(transactions) == 1:
            raise KeyboardInterrupt
        return transaction()

    monkeypatch.setattr(target, "transaction", killed_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        promote(target)
    monkeypatch.undo()

    target.close()
    done = CliRunner().invoke(command_line, ["promote", str(tmp_path / "target"), "--json"])
    assert [each["epoch"] for each in json.loads(done.stdout)["topics"]] == [2]
    with pytest.raises(Misuse, match="has no topic that a mirror has written"):
        promote(source)
    with pytest.raises(UnknownTopic, match='no topic "order"'):
        promote(source, ["order"])


@pytest.mark.parametrize(
    ("key", "changed"),
    [
        ("id", [(1, 5), (2, 5), (1, 6)]),  # a row is missing
        ("id", [(1, 6), (2, 5), (1, 5), (2, 6)]),  # the rows of a key in another order
        (None, [(2, 5), (1, 5), (1, 6), (2, 6)]),  # those of a partition
        (None, [(1, 5), (2, 5), (1, 6), (2, 7)]),  # another value
    ],
)
def test_a_checksum_sees_what_is_missing_changed_or_in_another_order(
    logs: tuple[hw.Log, hw.Log], key: str | None, changed: list[tuple[int, int]]
) -> None:
    one, other = (log.topic("t", "id INT, x INT", key=key) for log in logs)
    for topic, rows in ((one, [(1, 5), (2, 5), (1, 6), (2, 6)]), (other, changed)):
        topic.append([{"id": number, "x": x} for number, x in rows])

    assert checksum_of(one) != checksum_of(other)


def test_the_command_compares_and_says_which_topic_is_another(tmp_path: Path) -> None:
    home, copy = str(tmp_path / "home"), str(tmp_path / "copy")
    with hw.Log(home) as log:
        log.topic("orders", "x INT").append([{"x": n} for n in range(5)])

    first = CliRunner().invoke(command_line, ["migrate", home, "--to", copy, "--json"])
    with hw.Log(copy) as log:
        log.get_topic("orders").append([{"x": 9}])
    second = CliRunner().invoke(command_line, ["migrate", home, "--to", copy, "--json"])
    itself = CliRunner().invoke(command_line, ["mirror", home, "--to", home])

    document = json.loads(first.stdout)
    assert (first.exit_code, document["equal"], document["fenced"], document["left_out"]) == (0, True, True, [])
    assert document["topics"] == [{"topic": "orders", "rows": 5, "rows_there": 5, "equal": True}]
    assert (second.exit_code, json.loads(second.stdout)["topics"][0]["rows_there"]) == (5, 6)
    assert itself.exit_code == 2


def test_who_writes_to_a_home_that_was_moved_is_refused_and_nothing_falls_between(tmp_path: Path) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy"
    written: list[int] = []
    refused: list[str] = []
    with hw.Log(home) as log, hw.Log(home) as other, hw.Log(copy) as target:
        log.topic("orders", "x INT", key="x", partitions=2)

        def write(which: hw.Log, first: int) -> None:
            for n in itertools.count(first, 2):
                try:
                    which.get_topic("orders").append([{"x": n}, {"x": -n}])  # mostly over both partitions
                except Fenced as error:
                    refused.append(error.message)
                    return
                written.append(n)

        writers = [threading.Thread(target=write, args=each) for each in ((log, 1), (other, 2))]
        for writer in writers:
            writer.start()
        mirror = LogMirror(log, target)
        while len(written) < 20:
            mirror.catch_up()
        mirror.hand_over(str(copy))
        for writer in writers:
            writer.join(60)
        assert refused == [f'topic "orders" has moved to {copy}'] * 2
        assert sorted(row["x"] for row in target.get_topic("orders").rows()) == sorted(
            sign * n for n in written for sign in (1, -1)
        )
        assert all(each.equal for each in mirror.compare())
        assert log.check().ok
        mirror.take_back()
        other.get_topic("orders").append([{"x": 0}])
