"""Declarations of views: what a user said, and where.

What it is: ``ViewDeclaration`` (SQL or a PySpark function) and ``caller``, the user's file and line.
Invariants: a view is declared behind everything that it reads, so views cannot read each other in a circle.
Not here: what the SQL means (``compiler/``).
Read next: ``views/tick/engine.py``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from headwater.log.schema.personal_columns import Personal
from headwater.views.event_time.timing import Timing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PACKAGE = str(Path(__file__).resolve().parent.parent) + os.sep

ViewFunction: TypeAlias = "Callable[..., DataFrame]"  # of frames, one for each input


@dataclass(frozen=True)
class ViewDeclaration:
    """One view as declared."""

    name: str
    sql: str | None
    location: str  # "shop.py:42"
    function: ViewFunction | None = None
    inputs: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    serve: bool = True
    timing: Timing = field(default_factory=Timing)
    on_error: str = "stop"  # or "pause", see ``views/tick/pausing.py``
    privacy: Mapping[str, Personal | None] = field(default_factory=dict)  # of its columns; None: not personal
    rows_by: Mapping[str, str] | None = None  # column to claim; empty: all rows are for everybody; None: not said
    people_min: int | None = None  # groups of fewer people are not shown, see ``views/privacy/people_min.py``

    @property
    def title(self) -> str:
        """How messages name it.

        >>> ViewDeclaration("revenue", "SELECT 1 AS one", "shop.py:42").title
        'view "revenue" (shop.py:42)'
        """
        return f'view "{self.name}" ({self.location})'


def caller() -> str:
    """The first file and line outside this package, as messages show it."""
    frame = sys._getframe(1)
    while frame is not None and (frame.f_code.co_filename.startswith(PACKAGE)):
        if frame.f_back is None:
            break
        frame = frame.f_back
    name = frame.f_code.co_filename
    try:
        short = os.path.relpath(name)
    except ValueError:  # another drive
        short = name
    return f"{short if not short.startswith('..') else name}:{frame.f_lineno}"
