"""The index of queries: scores, times, and that it shrinks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headwater.log.schema.ddl import parse_ddl
from headwater.searches import normal_form, query_index
from headwater.searches.query_index import QueryIndex, StoredSearch
from headwater.searches.search_columns import SearchColumns
from headwater.searches.segments.document_batch import DocumentBatch

SCHEMA = parse_ddl("title STRING, body STRING, price BIGINT")


def index_of(**queries: str) -> QueryIndex:
    index = QueryIndex(SearchColumns(SCHEMA, ["title", "body"]))
    for name, query in queries.items():
        index.put(StoredSearch(name, query))
    assert not index.broken
    return index


def found(index: QueryIndex, **row: object) -> dict[str, float]:
    matches = index.match(pa.Table.from_pylist([row], SCHEMA))
    return {index.search(int(s)).id: float(c) for s, c in zip(matches.slots, matches.scores, strict=True)}


def test_a_score_is_made_of_how_often_the_parts_of_a_query_occur() -> None:
    index = index_of(
        word="river",
        of_title="title:river",
        prefix="riv*",
        phrase='"river bank"',
        several="river OR lake",
        none="price:1",
    )

    scores = found(index, title="river", body="river bank, rivers, lake river bank", price=1)

    def part(times: int) -> float:
        return times / (times + 1.2)

    assert scores == pytest.approx(
        {
            "word": part(3),
            "of_title": part(1),
            "prefix": part(4),
            "phrase": part(2),
            "several": part(3) + part(1),
            "none": 0,
        }
    )


def test_a_phrase_reaches_neither_over_columns_nor_over_documents() -> None:
    index = index_of(phrase='"river bank"')
    rows = [{"title": "river", "body": "bank river"}, {"title": "bank"}, {"title": "a river bank"}]

    matches = index.match(pa.Table.from_pylist(rows, SCHEMA))

    assert matches.documents.tolist() == [2]


def test_a_search_that_does_not_look_back_matches_what_came_since() -> None:
    index = QueryIndex(SearchColumns(SCHEMA, ["title"]))
    index.put(StoredSearch("since", "river", since_us=100, look_back=False))
    index.put(StoredSearch("ever", "river", since_us=100))
    rows = pa.Table.from_pylist([{"title": "river"}] * 3, SCHEMA)

    matches = index.match(rows, at_us=np.array([99, 100, 101]))

    pairs = [(int(d), index.search(int(s)).id) for d, s in zip(matches.documents, matches.slots, strict=True)]
    assert sorted(pairs) == [(0, "ever"), (1, "ever"), (1, "since"), (2, "ever"), (2, "since")]


def test_what_was_removed_leaves_the_dictionary_and_the_slots() -> None:
    index = QueryIndex(SearchColumns(SCHEMA, ["title", "body"]))
    for round_ in range(30):
        for number in range(100):
            index.put(
                StoredSearch(f"s{number}", f'w{round_}x{number} OR "a b{number}" OR price:({round_} OR {number})')
            )
        index.match(pa.Table.from_pylist([{"title": "a b7", "price": 1}], SCHEMA))
    for number in range(99):
        index.remove(f"s{number}")

    assert found(index, title="a b99") == {"s99": pytest.approx(1 / 2.2)}
    assert len(index) == 1
    assert len(index.dictionary) < 12
    assert index.dictionary.capacity < 2_000
    assert len(index._searches) < 1_500


def test_only_the_searches_that_were_chosen_are_compared() -> None:
    index = index_of(one="river", other="river")

    matches = index.match(pa.Table.from_pylist([{"title": "river"}], SCHEMA), among=["other", "unknown"])

    assert [index.search(int(slot)).id for slot in matches.slots] == ["other"]


@pytest.mark.parametrize("query", ["*", "NOT river", "-price:>3"])
def test_a_search_that_every_document_is_compared_with_is_told_its_cost(query: str) -> None:
    index = index_of()

    assert index.reader.read(query).cost is not None
    assert index.reader.read(f"lake AND ({query})").cost is None


def test_words_phrases_values_and_ranges_are_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a query was evaluated over a document by itself")

    monkeypatch.setattr(query_index, "compiled", never)
    monkeypatch.setattr(DocumentBatch, "document", never)
    index = index_of(
        value="price:12",
        both='title:river AND price:[10 TO 20] AND NOT body:"a lake"',
        sql="sql: title = 'A river' AND price BETWEEN 10 AND 20",
        alternatives='(river OR "a lake") AND (price:<5 OR price:>11) AND riv*',
        outside="title:river AND price:{12 TO 20]",
    )

    assert set(found(index, title="A river", body="the lake", price=12)) == {"value", "both", "sql", "alternatives"}
    monkeypatch.undo()
    many = " OR ".join(f"(title:w{n} AND NOT body:w{n})" for n in range(normal_form.CONJUNCTIONS_MAX + 1))
    index.put(StoredSearch("many", many))
    assert found(index, title="w3", body="w4").keys() == {"many"}  # this one is, and its cost says so
    assert "compared with it one by one" in str(index.reader.read(many).cost)
