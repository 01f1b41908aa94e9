"""The table of stored searches: its columns, and a row of it as a search.

What it is: the schema that ``app.searches`` declares for ``<name>_searches``, ``stored_searches`` and ``status_of``.
Invariants: a search begins when its row was appended; a row that was put again, begins again. What a row lacks is as
if it had not been said: no query is an empty one, which is broken.
Not here: putting and removing (``stored_searches.py``).
Read next: ``stored_searches.py``.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from headwater.errors import InvalidQuery
from headwater.searches.query_index import ReadQuery, StoredSearch

SCHEMA = "id STRING NOT NULL, query STRING, owner STRING, tags ARRAY<STRING>, look_back BOOLEAN"
SINCE = "_appended_at"


def stored_searches(rows: pa.Table | pa.RecordBatch) -> list[StoredSearch]:
    """Rows of the table as searches.

    >>> rows = {"id": ["s1"], "query": ["a"], "owner": [None], "tags": [["x"]], "look_back": [None]}
    >>> moments = pa.array([1_000_000], pa.timestamp("us", tz="UTC"))
    >>> stored_searches(pa.table({**rows, SINCE: moments}))
    [StoredSearch(id='s1', query='a', since_us=1000000, look_back=False, owner=None, tags=('x',))]
    """
    moments = rows.column(SINCE).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    names = ("id", "query", "look_back", "owner", "tags")
    columns = [rows.column(name).to_pylist() for name in names]
    return [
        StoredSearch(
            id,
            query or "",
            since or 0,
            bool(look_back),
            owner,
            tuple(tag for tag in tags if tag is not None) if tags else (),
        )
        for id, query, look_back, owner, tags, since in zip(*columns, moments.to_pylist(), strict=True)
    ]


def status_of(query: str, read: Callable[[str], ReadQuery]) -> tuple[str | None, str | None]:
    """What is wrong with a query, and what it costs beyond the ordinary."""
    try:
        return None, read(query).cost
    except InvalidQuery as error:
        return str(error), None
