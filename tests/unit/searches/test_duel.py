"""The index of queries beside brute force: random searches and documents, which come, change and go."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.log.schema.ddl import parse_ddl
from headwater.searches import normal_form, query_index
from headwater.searches.index_file import IndexFile
from headwater.searches.query_index import QueryIndex, StoredSearch
from headwater.searches.search_columns import SearchColumns
from tests.workloads.stored_searches import SCHEMA, TEXT, Matcher, random_document, random_search

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
ARROW = parse_ddl(SCHEMA)


@pytest.mark.timeout(300 * THOROUGH)
def test_the_index_finds_what_brute_force_finds_while_searches_come_change_and_go(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for seed in range(12 * THOROUGH):
        chance = random.Random(seed)
        # Small bounds, so that every way is taken: pieces of a batch, segments, evaluators.
        monkeypatch.setattr(query_index, "TABLE_CELLS_MAX", chance.choice([40, 4_000_000]))
        monkeypatch.setattr(query_index, "SLOTS_SPARE", chance.choice([1, 1000]))
        monkeypatch.setattr(normal_form, "CONJUNCTIONS_MAX", chance.choice([1, 3, 32]))
        columns = SearchColumns(ARROW, TEXT)
        index, file = QueryIndex(columns), IndexFile(tmp_path / "kept.index")
        queries: dict[str, str] = {}
        known: dict[str, Matcher] = {}
        for _ in range(6):
            for _ in range(chance.choice([0, 1, 30, 60])):
                search = f"s{chance.randint(0, 80)}"
                if search in known and chance.random() < 0.4:
                    del known[search]
                    index.remove(search)
                else:
                    queries[search], known[search] = random_search(chance)
                    index.put(StoredSearch(search, queries[search]))
                if chance.random() < 0.02:
                    file.write(index.packed())
            if chance.random() < 0.4:  # another process goes on with it: the file is of some moment before, or of none
                index = QueryIndex.read(file.read(columns), columns)
                index.replace_all(StoredSearch(search, queries[search]) for search in known)
            assert index.broken == {}
            assert len(index) == len(known)
            rows = [random_document(chance, number) for number in range(chance.choice([0, 1, 25]))]

            found = index.match(pa.Table.from_pylist(rows, ARROW))

            pairs = [(int(d), index.search(int(s)).id) for d, s in zip(found.documents, found.slots, strict=True)]
            assert len(set(pairs)) == len(pairs)
            wanted = {(place, search) for place, row in enumerate(rows) for search in known if known[search](row)}
            wrong = set(pairs) ^ wanted
            assert not wrong, [(index.get(search), rows[place], (place, search) in wanted) for place, search in wrong][
                :3
            ]
        for search in known:
            index.remove(search)
        assert len(index.dictionary) == 0
        assert not index.dictionary.tokens
