"""Stored searches, as an app's user holds them: put, remove, list, percolate.

What it is: ``Searches``, made by ``app.searches``: a table of queries over documents, and an index of it for documents
that are only asked about.
Invariants: a query that cannot be read is refused when it is put, and nothing is written. What ``percolate`` knows is
the table as the log has it at that moment; it writes nothing and needs no tick.
Not here: the view of the matches (``views/stages/search_run.py``).
Read next: ``query_index.py``; ``docs/searches.md``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import HeadwaterError, InvalidQuery, Misuse
from headwater.log.schema.json_lines import json_rows
from headwater.log.schema.row_conversion import to_batches
from headwater.searches.index_file import IndexFile
from headwater.searches.query_index import QueryIndex, QueryReader, StoredSearch
from headwater.searches.search_columns import SearchColumns
from headwater.searches.search_rows import SINCE, status_of, stored_searches

if TYPE_CHECKING:
    from headwater.log.schema.event_metadata import Metadata
    from headwater.log.table import Table
    from headwater.log.token import Token

DELETED = "_deleted"
ID_LENGTH_MAX = 500


@dataclass(frozen=True)
class PutSearch:
    """A search that was put: its token, and what it costs beyond the ordinary (None: nothing)."""

    id: str
    token: Token
    cost: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {"id": self.id, "token": str(self.token), "cost": self.cost}


@dataclass(frozen=True)
class SearchStatus:
    """A search as it is in the table; ``problem``: why its query cannot be read."""

    id: str
    query: str
    owner: str | None
    tags: tuple[str, ...]
    look_back: bool
    problem: str | None
    cost: str | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {**vars(self), "tags": list(self.tags)}


class Searches:
    """Searches that wait for documents.

    >>> import headwater as hw, tempfile
    >>> app = hw.App("news", home=tempfile.mkdtemp())
    >>> articles = app.table("articles", "id BIGINT, title STRING, price DOUBLE", key="id")
    >>> watch = app.searches("watch", over=articles, text=["title"])
    >>> watch.put("s1", "rivers AND price:[10 TO 20]", owner="ada").cost
    >>> _ = articles.upsert([{"id": 7, "title": "Rivers of Europe", "price": 12.5}])
    >>> _ = app.tick()
    >>> list(app.get_view("watch").rows())
    [{'search': 's1', 'document': 7, 'score': 0.45454545454545453}]
    """

    def __init__(
        self,
        name: str,
        table: Table,
        over: str,
        schema: Callable[[], pa.Schema],
        *,
        text: Sequence[str],
        tokenizer: str,
        location: str,
        kept: Path,
    ) -> None:
        self.name = name
        self.table = table
        self.over = over
        self.text = tuple(text)
        self.tokenizer = tokenizer
        self.location = location
        self._kept = kept  # the file of the index that the process that ticks keeps
        self._schema = schema
        self._reader: QueryReader | None = None
        self._index: QueryIndex | None = None
        self._read_up_to: dict[int, int] = {}
        self._lock = threading.Lock()

    @property
    def columns(self) -> SearchColumns:
        """What searches may ask about."""
        return self._queries().columns

    def _queries(self) -> QueryReader:
        schema = self._schema()
        if self._reader is None or self._reader.columns.schema != schema:
            self._reader = QueryReader(SearchColumns(schema, self.text, tokenizer=self.tokenizer))
            self._index = None
        return self._reader

    # Writing

    def put(
        self,
        id: str,
        query: str,
        *,
        owner: str | None = None,
        tags: Iterable[str] = (),
        look_back: bool = False,
        request_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> PutSearch:
        """Store a search, or another query under its id. A query that cannot be read is refused; nothing is written.

        ``look_back``: it matches the documents that are there already too; else those that come or change from now on.
        ``tags``: words by which ``find`` and ``percolate`` choose. ``request_id``: a repeated call is recognised.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("news", home=tempfile.mkdtemp())
        >>> watch = app.searches("watch", over=app.topic("articles", "title STRING"), text=["title"])
        >>> watch.put("s1", "NOT rivers").cost
        'every document is compared with it: it has neither a word, a value nor a range that must be there'
        >>> watch.put("s2", 'title:"rivers of')
        Traceback (most recent call last):
            ...
        headwater.errors.InvalidQuery: the quotation mark is not closed
          title:"rivers of
                ^^^^^^^^^^
          Hint: Write " at the end.
        """
        row = {"id": id, "query": query, "owner": owner, "tags": list(tags), "look_back": look_back}
        return self.put_all([row], request_id=request_id, metadata=metadata)[0]

    def put_all(
        self, rows: Iterable[Mapping[str, Any]], *, request_id: str | None = None, metadata: Metadata | None = None
    ) -> list[PutSearch]:
        """Store several searches in one append: dicts with the arguments of ``put``. All or none.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("news", home=tempfile.mkdtemp())
        >>> watch = app.searches("watch", over=app.topic("articles", "title STRING"), text=["title"])
        >>> [made.id for made in watch.put_all([{"id": "s1", "query": "rivers"}, {"id": "s2", "query": "lakes"}])]
        ['s1', 's2']
        """
        read, checked, costs = self._queries().read, [], []
        for given in rows:
            row = {"owner": None, "tags": [], "look_back": False, **given}
            if not isinstance(row.get("id"), str) or not 0 < len(row["id"]) <= ID_LENGTH_MAX:
                raise Misuse(
                    f"a search's id is a text of 1 to {ID_LENGTH_MAX} characters, not {row.get('id')!r}",
                    hint='Give it a name: watch.put("s1", "…").',
                )
            if not isinstance(row.get("query"), str):
                raise InvalidQuery(f'the query of search "{row["id"]}" is not a text', hint="Write it as a text.")
            try:
                costs.append(read(row["query"]).cost)
            except InvalidQuery as error:
                error.data.setdefault("search", row["id"])
                raise
            checked.append(row)
        if not checked:
            return []
        token = self.table.upsert(checked, request_id=request_id, metadata=metadata)
        return [PutSearch(row["id"], token, cost) for row, cost in zip(checked, costs, strict=True)]

    def remove(self, *ids: str, request_id: str | None = None, metadata: Metadata | None = None) -> Token:
        """Take searches away, with their matches. One that is not there is no error.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("news", home=tempfile.mkdtemp())
        >>> watch = app.searches("watch", over=app.topic("articles", "title STRING"), text=["title"])
        >>> _ = watch.put("s1", "rivers")
        >>> _ = watch.remove("s1")
        >>> watch.get("s1")
        """
        return self.table.delete([{"id": id} for id in ids], request_id=request_id, metadata=metadata)

    # Reading

    def get(self, id: str) -> SearchStatus | None:
        """The search of an id, as the log has it now; None when there is none."""
        with self._lock:
            found = self._current().get(id)
            return None if found is None else self._status(found)

    def find(self, *, owner: str | None = None, tags: Iterable[str] = ()) -> list[SearchStatus]:
        """The searches, as the log has them now: of an owner, and with one of these tags.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("news", home=tempfile.mkdtemp())
        >>> watch = app.searches("watch", over=app.topic("articles", "title STRING"), text=["title"])
        >>> _ = watch.put("s1", "rivers", owner="ada", tags=["water"])
        >>> [found.id for found in watch.find(tags=["water"])]
        ['s1']
        """
        with self._lock:
            index = self._current()
            among = index.chosen(owner, tags)
            return [self._status(each) for each in index.searches() if among is None or each.id in among]

    def percolate(
        self, document: Mapping[str, Any], *, owner: str | None = None, tags: Iterable[str] = ()
    ) -> list[dict[str, Any]]:
        """The searches that a document would match, the best first. Nothing is written.

        ``owner`` and ``tags`` choose among the searches before anything is compared.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("news", home=tempfile.mkdtemp())
        >>> watch = app.searches("watch", over=app.topic("articles", "title STRING"), text=["title"])
        >>> _ = watch.put_all([{"id": "s1", "query": "rivers"}, {"id": "s2", "query": "lakes"}])
        >>> watch.percolate({"title": "Rivers, and rivers"})
        [{'search': 's1', 'score': 0.625}]
        """
        return self._percolated(to_batches([dict(document)], self._asked(document)), owner, tags)

    def percolate_json(
        self, document: dict[str, Any], *, owner: str | None = None, tags: Iterable[str] = ()
    ) -> list[dict[str, Any]]:
        """The same of a document whose values are JSON's: times as text."""
        return self._percolated(json_rows([document], self._asked(document)), owner, tags)

    def _asked(self, document: Mapping[str, Any]) -> pa.Schema:
        known = self.columns.schema
        unknown = [name for name in document if name not in known.names]
        if unknown:
            raise Misuse(
                f'the documents have no column "{unknown[0]}"', hint=f"Their columns are {', '.join(known.names)}."
            )
        return pa.schema([field.with_nullable(True) for field in known])

    def _percolated(self, batch: pa.RecordBatch, owner: str | None, tags: Iterable[str]) -> list[dict[str, Any]]:
        with self._lock:
            index = self._current()
            found = index.match(pa.Table.from_batches([batch]), among=index.chosen(owner, tags))
            pairs = zip(found.slots, found.scores, strict=True)
            matched: list[dict[str, Any]] = [
                {"search": index.search(int(slot)).id, "score": float(score)} for slot, score in pairs
            ]
        return sorted(matched, key=lambda each: (-float(each["score"]), str(each["search"])))

    # The index

    def _current(self) -> QueryIndex:
        """The index of the searches that the log has now."""
        reader = self._queries()
        topic, index = self.table.topic, self._index
        if index is None:
            self._read_up_to = {}
        changed: dict[str, StoredSearch | None] = {}
        try:
            for partition, stop in topic.end_offsets().items():
                start = max(self._read_up_to.get(partition, 0), topic.start_offsets()[partition])
                if start < stop:
                    changed |= self._records(partition, start, stop)
                self._read_up_to[partition] = stop
        except HeadwaterError:
            self._index = None  # it lacks what was read of other partitions
            raise
        if index is None:
            index = self._index = QueryIndex.read(IndexFile(self._kept).read(reader.columns), reader.columns, reader)
            index.replace_all(each for each in changed.values() if each is not None)
            return index
        for name, search in changed.items():
            index.remove(name) if search is None else index.put(search)
        return index

    def _records(self, partition: int, start: int, stop: int) -> dict[str, StoredSearch | None]:
        """What the records of a range leave of each search that they change; None: it is gone."""
        columns = ["id", "query", "owner", "tags", "look_back", DELETED, SINCE]
        found: dict[str, StoredSearch | None] = {}
        for batch in self.table.topic.read_partition(partition, start, stop=stop, columns=columns):
            for search, gone in zip(stored_searches(batch.data), batch.data.column(DELETED).to_pylist(), strict=True):
                found[search.id] = None if gone else search
        return found

    def _status(self, search: StoredSearch) -> SearchStatus:
        problem, cost = status_of(search.query, self._queries().read)
        return SearchStatus(search.id, search.query, search.owner, search.tags, search.look_back, problem, cost)

    def __repr__(self) -> str:
        return f"Searches({self.name!r}, over={self.over!r}, text={', '.join(self.text)})"
