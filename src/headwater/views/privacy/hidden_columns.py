"""Hidden columns: what a query of a reader without the right gets null of, and which rows it reads.

What it is: ``HiddenColumns``, the columns and rows of one relation; ``Hidden``, those of every relation, by its name
in lower case. They go to the processes that run queries, as JSON.
Invariants: a column that is not known by name is hidden if any column that it may come from is.
Not here: masks of rows that are read by key (``log/schema/column_masks.py``): a query computes with what it reads, so
of a hidden column it gets nothing at all.
Read next: ``views/serving/sql_authorizer.py``, ``views/serving/snapshot.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwater.views.privacy.personal_data import PrivacyRights, RelationMarks
from headwater.views.privacy.row_rules import RowsShown


@dataclass(frozen=True)
class HiddenColumns:
    """The hidden columns of a relation; with ``others``, also those that are not among ``shown``. And its rows."""

    hidden: frozenset[str]
    shown: frozenset[str] = frozenset()
    others: bool = False
    rows: RowsShown | None = None  # queries read these rows alone
    closed: str | None = None  # why queries may not read it

    @staticmethod
    def of(marks: RelationMarks, rights: PrivacyRights) -> HiddenColumns | None:
        """Those of a relation; None: none are."""
        hidden = frozenset(name for name, mark in marks.columns.items() if mark.mask(rights) is not None)
        others = marks.rest is not None and marks.rest.mask(rights) is not None
        if not hidden and not others:
            return None
        return HiddenColumns(hidden, marks.unmarked.union(marks.columns.keys() - hidden), others)

    def hides(self, column: str) -> bool:
        """Whether a column is hidden.

        >>> columns = HiddenColumns(frozenset({"email"}), frozenset({"id"}), others=True)
        >>> [columns.hides(name) for name in ("Email", "id", "upper(email)")]
        [True, False, True]
        """
        name = column.lower()
        return name in self.hidden or (self.others and name not in self.shown)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        rows = None if self.rows is None else [self.rows.relation, self.rows.values]
        return {
            "hidden": sorted(self.hidden),
            "shown": sorted(self.shown),
            "others": self.others,
            "rows": rows,
            "closed": self.closed,
        }

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> HiddenColumns:
        """The inverse of ``to_json``."""
        rows = None
        if values["rows"] is not None:
            relation, listed = values["rows"]
            rows = RowsShown(relation, tuple((column, tuple(each)) for column, each in listed))
        hidden, shown = frozenset(values["hidden"]), frozenset(values["shown"])
        return HiddenColumns(hidden, shown, values["others"], rows, values["closed"])


Hidden = Mapping[str, HiddenColumns]


def hidden_from_json(values: Mapping[str, Mapping[str, Any]]) -> dict[str, HiddenColumns]:
    """Those of every relation, from a request."""
    return {name: HiddenColumns.from_json(each) for name, each in values.items()}
