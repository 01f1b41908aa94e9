"""Schema versions in one topic: old rows, new rows, handles that know less than others, followers."""

from __future__ import annotations

import pytest

from headwater.errors import RowRefused
from headwater.log.home import Log
from headwater.log.maintenance.sealing import seal_partition

FIRST = "id INT, name STRING"
SECOND = "id BIGINT, name STRING, country STRING"


@pytest.fixture
def homes(tmp_path):
    """Two handles on one home, as two processes have."""
    with Log(tmp_path / "home") as one, Log(tmp_path / "home") as other:
        yield one, other


@pytest.mark.parametrize("sealed", [False, True])
def test_old_rows_come_out_in_the_new_schema(homes, sealed):
    log, _ = homes
    topic = log.topic("t", FIRST)
    topic.append([{"id": 1, "name": "Ada"}])
    topic = log.topic("t", SECOND)
    topic.append([{"id": 2**40, "name": "Grace", "country": "US"}])
    if sealed:
        topic.partition(0).roll()
        seal_partition(topic, 0)

    assert list(topic.rows()) == [
        {"id": 1, "name": "Ada", "country": None},
        {"id": 2**40, "name": "Grace", "country": "US"},
    ]
    assert list(topic.rows(columns=["country", "_offset"])) == [
        {"country": None, "_offset": 0},
        {"country": "US", "_offset": 1},
    ]
    assert {str(batch.data.schema.field("id").type) for batch in topic.read()} == {"int64"}


def test_a_handle_that_knows_the_older_schema_goes_on_writing(homes):
    old, new = homes
    older = old.topic("t", FIRST)
    older.append([{"id": 1, "name": "Ada"}])
    newer = new.topic("t", SECOND)
    newer.append([{"id": 2, "name": "Grace", "country": "US"}])

    older.append([{"id": 3, "name": "Edith"}])
    newer.append([{"id": 4, "name": "Joan", "country": "UK"}])

    expected = [(1, None), (2, "US"), (3, None), (4, "UK")]
    assert [(row["id"], row["country"]) for row in newer.rows()] == expected
    assert [(row["id"], row["country"]) for row in older.rows()] == expected


def test_a_follower_walks_over_the_border_between_versions(homes):
    old, new = homes
    older = old.topic("t", FIRST)
    older.append([{"id": 1, "name": "Ada"}])
    rows = older.rows(follow=True, timeout=30)
    first = next(rows)
    new.topic("t", SECOND).append([{"id": 2, "name": "Grace", "country": "US"}])

    assert first == {"id": 1, "name": "Ada"}
    assert next(rows) == {"id": 2, "name": "Grace", "country": "US"}


def test_yesterdays_declaration_still_opens_the_topic(homes):
    old, new = homes
    old.topic("t", FIRST)
    new.topic("t", SECOND)

    topic = old.topic("t", FIRST)

    assert topic.schema_version == 2
    assert topic.schema.names == ["id", "name", "country"]


def test_a_row_with_a_column_of_tomorrow_is_refused_until_it_is_declared(homes):
    topic = homes[0].topic("t", FIRST)

    with pytest.raises(RowRefused, match="country"):
        topic.append([{"id": 1, "name": "Ada", "country": "UK"}])
    homes[1].topic("t", SECOND)
    homes[0].get_topic("t").append([{"id": 1, "name": "Ada", "country": "UK"}])

    assert topic.end_offsets() == {0: 1}


def test_an_empty_segment_takes_the_new_schema_where_it_stands(homes):
    old, new = homes
    older = old.topic("t", FIRST)
    assert older.end_offsets() == {0: 0}
    new.topic("t", SECOND).append([{"id": 1, "name": "Ada", "country": "UK"}])

    older.append([{"id": 2, "name": "Grace"}])

    assert [row["country"] for row in older.rows()] == ["UK", None]
    assert len(list((older.directory / "0").glob("*.arrow"))) == 1


def test_the_key_keeps_its_partition_when_it_is_widened(homes):
    log, _ = homes
    topic = log.topic("t", FIRST, key="id", partitions=4)
    for number in range(20):
        topic.append([{"id": number, "name": "old"}])
    topic = log.topic("t", SECOND, key="id", partitions=4)
    for number in range(20):
        topic.append([{"id": number, "name": "new", "country": None}])

    where = {}
    for row in topic.rows(columns=["_partition", "id"]):
        where.setdefault(row["id"], set()).add(row["_partition"])
    assert all(len(partitions) == 1 for partitions in where.values())
