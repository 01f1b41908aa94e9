"""Bad input: each mistake gets a sentence that says what, where and what to do, and changes nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from headwater.errors import (
    ClosedError,
    CorruptCatalog,
    DeclarationConflict,
    InvalidDeclaration,
    Misuse,
    NewerFormat,
    OffsetOutOfRange,
    RowRefused,
    SchemaConflict,
    UnknownTopic,
)
from headwater.log.home import Log


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def orders(home):
    with Log(home) as log:
        topic = log.topic("orders", "id BIGINT, amount DOUBLE", key="id", partitions=2)
        topic.append([{"id": 1, "amount": 9.5}, {"id": 2, "amount": 3.0}])
        yield topic


def everything(home):
    """Each file of the home and its bytes, without SQLite's scratch files."""
    files = (path for path in sorted(home.rglob("*")) if path.is_file())
    return {path: path.read_bytes() for path in files if not path.name.endswith(("-shm", "-wal"))}


# Topics and rows


def test_an_unknown_topic_is_told_with_the_nearest_name(orders):
    with pytest.raises(UnknownTopic) as refused:
        orders.log.get_topic("order")

    assert refused.value.message == 'no topic "order" in this home'
    assert refused.value.hint == 'Did you mean "orders"?'
    assert [topic.name for topic in orders.log.topics()] == ["orders"]


def test_a_value_of_a_wrong_type_is_told_by_row_column_and_value_and_nothing_is_written(orders):
    before = orders.end_offsets()

    with pytest.raises(RowRefused) as refused:
        orders.append([{"id": 3, "amount": 1.0}, {"id": 4, "amount": "much"}])

    for part in ("amount", "much", "1", "DOUBLE"):
        assert part in str(refused.value)
    assert orders.end_offsets() == before


def test_a_schema_that_cannot_follow_is_refused_with_the_reason(orders):
    with pytest.raises(SchemaConflict) as refused:
        orders.log.topic("orders", "id BIGINT, amount STRING", key="id", partitions=2)

    assert "amount" in str(refused.value)
    assert orders.log.get_topic("orders").schema_version == 1


def test_the_number_of_partitions_cannot_change(orders):
    with pytest.raises(DeclarationConflict) as refused:
        orders.log.topic("orders", "id BIGINT, amount DOUBLE", key="id", partitions=8)

    assert refused.value.message == 'partitions of topic "orders" is 2 and cannot become 8'
    assert "another partition" in refused.value.detail
    assert "new topic" in refused.value.hint
    assert orders.log.get_topic("orders").settings.partitions == 2


@pytest.mark.parametrize(("offset", "sentence"), [(-1, "before the start"), (99, "after the end")])
def test_an_offset_out_of_range_is_told_with_the_bounds(orders, offset, sentence):
    with pytest.raises(OffsetOutOfRange) as refused:
        orders.read({0: offset})

    assert f'offset {offset} is {sentence} of topic "orders" partition 0' in refused.value.message
    assert refused.value.hint
    assert refused.value.data["partition"] == 0
    assert {"start", "end"} <= set(refused.value.data)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"start": "yesterday"}, "cannot read from 'yesterday'"),
        ({"start": {7: 0}}, "has no partition 7"),
        ({"partitions": [7]}, "has no partition 7"),
        ({"columns": ["colour"]}, 'has no column "colour"'),
    ],
)
def test_a_place_or_column_that_is_not_there_is_refused(orders, arguments, sentence):
    with pytest.raises(InvalidDeclaration, match=sentence) as refused:
        orders.read(**arguments)

    assert refused.value.hint


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "with space", "x" * 201])
def test_a_name_that_cannot_be_a_file_is_refused(orders, name):
    with pytest.raises(InvalidDeclaration, match="is not allowed"):
        orders.log.topic(name, "x INT")


@pytest.mark.parametrize("sequence", [-1, 1 << 46])
def test_a_sequence_out_of_bounds_is_refused(orders, sequence):
    with pytest.raises(InvalidDeclaration, match="sequence cannot be"):
        orders.append([{"id": 1, "amount": 1.0}], producer="p", sequence=sequence)
    with pytest.raises(InvalidDeclaration, match="producer and sequence go together"):
        orders.append([{"id": 1, "amount": 1.0}], producer="p")


# Handles


def test_a_closed_log_says_so(orders):
    orders.log.close()

    for call in (lambda: orders.log.topics(), lambda: orders.append([{"id": 1, "amount": 1.0}]), lambda: orders.read()):
        with pytest.raises(ClosedError, match="was closed") as refused:
            call()
        assert "Open it again" in refused.value.hint


def test_a_topic_deleted_by_another_handle_is_told_and_not_written_to(orders, home):
    with Log(home) as other:
        other.delete_topic("orders")

    with pytest.raises(Misuse, match='topic "orders" was deleted') as refused:
        orders.append([{"id": 3, "amount": 1.0}])

    assert refused.value.hint
    assert list((home / "topics").iterdir()) == []


def test_a_topic_made_anew_under_the_same_name_is_another_topic(orders, home):
    with Log(home) as other:
        other.delete_topic("orders")
        anew = other.topic("orders", "id BIGINT, amount DOUBLE", key="id", partitions=2)
        assert anew.id != orders.id

        with pytest.raises(Misuse, match="was deleted"):
            orders.append([{"id": 3, "amount": 1.0}])

        assert list(anew.rows()) == []
        assert orders.log.get_topic("orders").id == anew.id


# Homes


def test_a_directory_that_holds_other_things_is_not_made_a_home(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")

    with pytest.raises(InvalidDeclaration, match=r"is not a Headwater home, and not empty \(it holds 'letter.txt'\)"):
        Log(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_file_is_not_a_home(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")

    with pytest.raises(InvalidDeclaration, match=r"no home can be made at .*: not a directory"):
        Log(tmp_path / "letter.txt" / "home")
    with pytest.raises(InvalidDeclaration, match="is a file, not a directory"):
        Log(tmp_path / "letter.txt")


def test_a_home_of_a_newer_format_is_refused_untouched(home):
    Log(home).close()
    (home / "headwater.json").write_text(json.dumps({"format": 99}))
    before = everything(home)

    with pytest.raises(NewerFormat, match="has format 99; this Headwater knows formats up to 2") as refused:
        Log(home)

    assert "pip install --upgrade headwater" in refused.value.hint
    assert everything(home) == before


@pytest.mark.parametrize("contents", [b"", b"{", b"[]", b'{"version": 1}', b"\xff\xfe\x00"])
def test_a_damaged_marker_is_told_with_its_cure(home, contents):
    Log(home).close()
    (home / "headwater.json").write_bytes(contents)

    with pytest.raises(CorruptCatalog, match=r"headwater\.json is damaged") as refused:
        Log(home)

    assert "Restore" in refused.value.hint


# The catalog


@pytest.fixture
def closed_home(home):
    with Log(home) as log:
        topic = log.topic("orders", "id BIGINT, amount DOUBLE", key="id", partitions=2)
        for number in range(30):
            log.topic(f"filler-{number}", "x INT, " + ", ".join(f"column_{n} STRING" for n in range(20)))
        topic.append([{"id": 1, "amount": 9.5}])
    return home


def look_at_everything(home):
    """What a user may do with a home; the rows of the first topic."""
    with Log(home) as log:
        for topic in log.topics():
            topic.end_offsets()
        return list(log.get_topic("orders").rows())


@pytest.mark.parametrize(
    "damage",
    [
        lambda contents: b"garbage " * (len(contents) // 8),
        lambda contents: bytes(len(contents)),
        lambda contents: contents[:100],
        lambda contents: contents[: len(contents) // 2],
        lambda contents: contents[:0],
    ],
    ids=["garbage", "zeros", "cut in the header", "cut in half", "emptied"],
)
def test_a_damaged_catalog_is_told_and_not_made_anew(closed_home, damage):
    catalog = closed_home / "catalog.sqlite"
    catalog.write_bytes(damage(catalog.read_bytes()))
    before = everything(closed_home)

    with pytest.raises(CorruptCatalog, match=r"catalog\.sqlite") as refused:
        look_at_everything(closed_home)

    assert "from a backup" in refused.value.hint
    assert everything(closed_home) == before


def test_a_missing_catalog_beside_segments_is_told(closed_home):
    (closed_home / "catalog.sqlite").unlink()

    with pytest.raises(CorruptCatalog, match="is missing") as refused:
        Log(closed_home)

    assert "restore catalog.sqlite from a backup" in refused.value.hint
    assert not (closed_home / "catalog.sqlite").exists()


def test_a_catalog_that_another_process_makes_at_this_moment_is_not_damaged(closed_home, monkeypatch):
    catalog = closed_home / "catalog.sqlite"
    whole, listed = catalog.read_bytes(), Path.iterdir
    catalog.write_bytes(b"")

    def made_meanwhile(folder):
        if folder.name == "topics":
            catalog.write_bytes(whole)
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", made_meanwhile)

    assert look_at_everything(closed_home) == [{"id": 1, "amount": 9.5}]


def test_no_zeroed_page_of_the_catalog_yields_a_wrong_row(closed_home, tmp_path):
    pages = (closed_home / "catalog.sqlite").stat().st_size // 4096
    told = 0

    for page in range(pages):
        copy = tmp_path / f"copy-{page}"
        shutil.copytree(closed_home, copy)
        with (copy / "catalog.sqlite").open("r+b") as catalog:
            catalog.seek(page * 4096)
            catalog.write(bytes(4096))
        try:
            # Not every page is needed for this: what comes out must be right, or the one error.
            assert look_at_everything(copy) == [{"id": 1, "amount": 9.5}]
        except CorruptCatalog:
            told += 1

    assert told > pages // 4
