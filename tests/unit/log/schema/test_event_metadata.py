"""Event metadata: stored with the rows that have it, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import headwater as hw
from headwater.errors import InvalidDeclaration
from headwater.log.schema.event_metadata import METADATA_COLUMNS
from headwater.log.table import declare_table

ANNA = hw.Metadata(correlation_id="basket-7", causation_id="click-1", actor="anna")
SAID = {"_correlation_id": "basket-7", "_causation_id": "click-1", "_actor": "anna"}
UNSAID = dict.fromkeys(SAID)


@pytest.fixture
def log(tmp_path: Path):
    with hw.Log(tmp_path / "home") as log:
        yield log


def said(topic: hw.Topic, column: str = "n") -> dict[int, dict[str, str | None]]:
    rows = topic.rows(columns=[column, *METADATA_COLUMNS])
    return {row.pop(column): row for row in rows}


def test_rows_of_one_append_have_its_metadata_and_others_have_none(log: hw.Log) -> None:
    topic = log.topic("t", "n BIGINT", partitions=3, ordered_by="n")
    topic.append([{"n": n} for n in range(10)])
    topic.append([{"n": n} for n in range(10, 20)], metadata=ANNA)
    topic.append([{"n": n} for n in range(20, 30)])

    assert said(topic) == {n: SAID if 10 <= n < 20 else UNSAID for n in range(30)}
    assert set(next(topic.rows())) == {"n"}


def test_sealing_and_compaction_keep_metadata(log: hw.Log) -> None:
    users = log.topic("users", "n BIGINT, name STRING", key="n", compact=True)
    users.append([{"n": 1, "name": "a"}, {"n": 2, "name": "b"}], metadata=ANNA)
    users.append([{"n": 2, "name": "c"}, {"n": 3, "name": "d"}])
    users.partition(0).roll()
    log.maintain()
    users.append([{"n": 3, "name": "e"}], metadata=hw.Metadata(actor="bob"))
    users.partition(0).roll()
    log.maintain()

    assert said(users) == {1: SAID, 2: UNSAID, 3: {**UNSAID, "_actor": "bob"}}
    assert log.check().ok


def test_a_segment_without_metadata_has_no_column_for_it(log: hw.Log) -> None:
    topic = log.topic("t", "n BIGINT")
    topic.append([{"n": 1}])
    topic.partition(0).roll()
    log.maintain()

    [file] = topic.directory.glob("0/*.parquet")
    assert pq.read_schema(file).names == ["_offset", "_appended_at", "_producer", "n"]
    assert said(topic) == {1: UNSAID}


def test_frames_without_metadata_are_as_long_as_before(log: hw.Log) -> None:
    plain, empty = log.topic("plain", "n BIGINT"), log.topic("empty", "n BIGINT")
    plain.append([{"n": 1}])
    empty.append([{"n": 1}], metadata=hw.Metadata())

    sizes = [next(topic.directory.glob("0/*.arrow")).stat().st_size for topic in (plain, empty)]
    assert sizes[0] == sizes[1]


def test_a_table_has_the_metadata_of_upserts_and_deletes(log: hw.Log) -> None:
    users = declare_table(log, "users", "id BIGINT, name STRING", key="id")
    users.insert([{"id": 1, "name": "Ada"}], metadata=hw.Metadata(actor="anna"))
    users.upsert([{"id": 1, "name": "Ada L."}], metadata=hw.Metadata(actor="bob"))
    users.delete([{"id": 1}], metadata=hw.Metadata(actor="carl"))

    assert [row["_actor"] for row in users.topic.rows(columns=["_actor"])] == ["anna", "bob", "carl"]


def test_a_multiset_has_them_too(log: hw.Log) -> None:
    basket = declare_table(log, "basket", "fruit STRING")
    basket.insert([{"fruit": "apple"}], metadata=hw.Metadata(actor="anna"))
    basket.delete([{"fruit": "apple"}], metadata=hw.Metadata(actor="bob"))

    assert [row["_actor"] for row in basket.topic.rows(columns=["_actor"])] == ["anna", "bob"]


def test_a_transaction_gives_its_metadata_to_all_its_rows(log: hw.Log) -> None:
    one, other = log.topic("one", "n BIGINT"), log.topic("other", "n BIGINT", partitions=2, ordered_by="n")
    with log.transaction(metadata=ANNA) as t:
        t.append(one, [{"n": 1}])
        t.append(other, [{"n": 1}, {"n": 2}, {"n": 3}])
        t.append(one, [{"n": 2}])

    assert said(one) == {1: SAID, 2: SAID}
    assert said(other) == {1: SAID, 2: SAID, 3: SAID}


def test_a_repeated_request_may_have_another_cause(log: hw.Log) -> None:
    topic = log.topic("t", "n BIGINT")
    topic.append([{"n": 1}], request_id="a", metadata=hw.Metadata(causation_id="first attempt"))
    again = topic.append([{"n": 1}], request_id="a", metadata=hw.Metadata(causation_id="second attempt"))

    assert again.repeated
    assert said(topic)[1]["_causation_id"] == "first attempt"


def test_metadata_survives_a_new_column(log: hw.Log) -> None:
    topic = log.topic("t", "n BIGINT")
    topic.append([{"n": 1}], metadata=ANNA)
    grown = log.topic("t", "n BIGINT, more STRING")
    topic.append([{"n": 2}], metadata=ANNA)

    assert said(grown) == {1: SAID, 2: SAID}


def test_a_large_append_has_it_in_every_frame(log: hw.Log) -> None:
    topic = log.topic("t", "n BIGINT")
    topic.append([{"n": n} for n in range(70_000)], metadata=ANNA)

    assert {tuple(row.values()) for row in topic.rows(columns=list(METADATA_COLUMNS))} == {tuple(SAID.values())}


def test_a_crash_keeps_rows_with_their_metadata(tmp_path: Path) -> None:
    with hw.Log(tmp_path / "home") as log:
        topic = log.topic("t", "n BIGINT")
        topic.append([{"n": 1}], metadata=ANNA)
        [index] = topic.directory.glob("0/*.index")
    index.write_bytes(index.read_bytes()[:128])  # recovery finds the frame in the data file

    with hw.Log(tmp_path / "home") as log:
        assert said(log.get_topic("t")) == {1: SAID}


def test_what_is_no_metadata_is_refused(log: hw.Log) -> None:
    topic = log.topic("t", "n BIGINT")

    with pytest.raises(InvalidDeclaration, match=r"^metadata is hw\.Metadata, not int"):
        topic.append([{"n": 1}], metadata=7)  # type: ignore[arg-type]
    with pytest.raises(InvalidDeclaration, match=r"^actor has 1 to 1000 characters, not 0"):
        hw.Metadata(actor="")
    with pytest.raises(InvalidDeclaration, match='"_actor" has a reserved name'):
        log.topic("other", "_actor STRING")
