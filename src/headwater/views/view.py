"""A view: the handle that users hold.

What it is: what a declared view can be asked: its plan, its rows, its changes, its history.
Invariants: asking changes nothing and takes no app over.
Not here: declaring (``app.py``), maintaining (``tick.py``).
Read next: ``feed.py``, ``verify.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.log.token import Token

if TYPE_CHECKING:
    from headwater.app import App


class View:
    """One view of an app.

    >>> import headwater as hw, tempfile
    >>> app = hw.App("shop", home=tempfile.mkdtemp())
    >>> _ = app.table("users", "id BIGINT, country STRING", key="id")
    >>> app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country").columns
    ['country', 'users']
    """

    def __init__(self, app: App, name: str) -> None:
        self.app = app
        self.name = name

    @property
    def declared(self) -> Any:
        """The declaration: SQL or function, and where it stands."""
        return self.app._declared[self.name]

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        plan = self.app._plans.get(self.name)
        if plan is not None:
            return [column.name for column in plan.columns]
        return list(self.app.operation.prepared.views[self.name].schema.names)

    def rows(self, *, at_least: Token | None = None, timeout: float = 30.0) -> pa.Table:
        """Its rows as of the last tick, or of one that covers ``at_least``."""
        contents = self.app.operation.contents(at_least=at_least, timeout=timeout)
        return contents.frame(self.name).toArrow()

    def __repr__(self) -> str:
        plan = self.app._plans.get(self.name)
        columns = ", ".join(column.name for column in plan.columns) if plan is not None else "…"
        return f"View({self.name!r}, columns={columns})"
