"""The table of stored searches: its columns, and a row of it as a search.

What it is: the schema that ``app.searches`` declares for ``<name>_searches``, ``stored_search`` and ``status_of``.
Invariants: a search begins when its row was appended; a row that was put again, begins again. What a row lacks is as
if it had not been said: no query is an empty one, which is broken.
Not here: putting and removing (``stored_searches.py``).
Read next: ``stored_searches.py``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

from headwater.errors import InvalidQuery
from headwater.searches.query_index import ReadQuery, StoredSearch

SCHEMA = "id STRING NOT NULL, query STRING, owner STRING, tags ARRAY<STRING>, look_back BOOLEAN"
SINCE = "_appended_at"
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def stored_search(row: Mapping[str, Any]) -> StoredSearch:
    """A row of the table as a search.

    >>> since = dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)
    >>> stored_search({"id": "s1", "query": "a", "owner": None, "tags": ["x"], "look_back": None, SINCE: since})
    StoredSearch(id='s1', query='a', since_us=1000000, look_back=False, owner=None, tags=('x',))
    """
    since = row.get(SINCE)
    return StoredSearch(
        row["id"],
        row["query"] or "",
        0 if since is None else (since - EPOCH) // dt.timedelta(microseconds=1),
        bool(row["look_back"]),
        row["owner"],
        tuple(tag for tag in row["tags"] or () if tag is not None),
    )


def status_of(query: str, read: Callable[[str], ReadQuery]) -> tuple[str | None, str | None]:
    """What is wrong with a query, and what it costs beyond the ordinary."""
    try:
        return None, read(query).cost
    except InvalidQuery as error:
        return str(error), None
