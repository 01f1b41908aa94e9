"""Event query: which events a reader wants, or an append must not find.

What it is: ``Query``, by types and tags, and several of them joined by "or": the query of a dynamic consistency
boundary (DCB).
Invariants: an event matches one alternative when its type is one of the types (any, when none is named) and it has all
of the tags. A query without types and tags matches every event.
Not here: finding the events (``event_index.py``), the condition of an append (``event_condition.py``).
Read next: ``event_index.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from headwater.errors import InvalidDeclaration


@dataclass(frozen=True)
class QueryItem:
    """One alternative of a query: any of the types, and all of the tags.

    >>> QueryItem(tags=frozenset({"course:7"})).matches("enrolled", ["course:7", "student:1"])
    True
    """

    types: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()

    def matches(self, kind: str, tags: Collection[str]) -> bool:
        """Whether an event of this type with these tags is wanted."""
        return (not self.types or kind in self.types) and self.tags.issubset(tags)


@dataclass(frozen=True, init=False)
class Query:
    """Events by type and tag; ``|`` joins alternatives.

    >>> query = Query(types="enrolled", tags=["course:7"]) | Query(tags=["student:1", "course:8"])
    >>> query.matches("enrolled", ["course:7", "student:2"]), query.matches("left", ["course:7"])
    (True, False)
    >>> query.matches("left", ["course:8", "student:1"]), Query().matches("left", [])
    (True, True)
    """

    items: tuple[QueryItem, ...]

    def __init__(self, types: str | Iterable[str] = (), tags: str | Iterable[str] = ()) -> None:
        item = QueryItem(_texts("types", types), _texts("tags", tags))
        object.__setattr__(self, "items", (item,))

    @staticmethod
    def any_of(items: Iterable[QueryItem]) -> Query:
        """A query of these alternatives; of none: every event.

        >>> Query.any_of([]).matches("left", [])
        True
        """
        query = Query()
        object.__setattr__(query, "items", tuple(items) or query.items)
        return query

    def __or__(self, other: Query) -> Query:
        return Query.any_of([*self.items, *other.items])

    def matches(self, kind: str, tags: Collection[str]) -> bool:
        """Whether an event of this type with these tags is wanted."""
        return any(item.matches(kind, tags) for item in self.items)

    @property
    def everything(self) -> bool:
        """Whether it matches every event.

        >>> Query().everything, Query(tags=["a"]).everything
        (True, False)
        """
        return any(not item.types and not item.tags for item in self.items)

    def __str__(self) -> str:
        return " or ".join(_shown(item) for item in self.items)


def _shown(item: QueryItem) -> str:
    types = "/".join(sorted(item.types)) or "any event"
    return f"{types} with {', '.join(sorted(item.tags))}" if item.tags else types


def _texts(what: str, given: str | Iterable[str]) -> frozenset[str]:
    texts = (given,) if isinstance(given, str) else tuple(given)
    for text in texts:
        if not isinstance(text, str) or not text:
            raise InvalidDeclaration(
                f"{what} of a query are texts, not {text!r}",
                hint='For example Query(types="enrolled", tags=["course:7"]).',
            )
    return frozenset(texts)
