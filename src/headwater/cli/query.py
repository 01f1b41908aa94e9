"""``headwater query``: one SELECT over the views of a home.

What it is: asks the serving store (SQLite, no Java), or with ``--spark`` Spark over views, tables and topics.
Invariants: it reads only, and one tick only; JSON lines and tables are written as ``topic tail`` writes them.
Not here: the serving store (``views/serving.py``), Spark's queries (``views/reading.py``).
Read next: ``views/serving.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.options import HomeOption, JsonOption, home_of, opened, require_home
from headwater.errors import InvalidDeclaration

if TYPE_CHECKING:
    import pyarrow as pa

AppOption = Annotated[
    str | None,
    typer.Option("--app", metavar="NAME", help="The app; needed when the home has several.", show_default=False),
]


def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One SELECT.", show_default=False)],
    app: AppOption = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="Ask Spark: its dialect, over tables and topics too. Starts in seconds.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask the views of a home, as of the last tick.

    [cyan]headwater query "SELECT * FROM revenue ORDER BY total DESC LIMIT 10"[/cyan]
    [cyan]headwater query "SELECT * FROM orders LIMIT 5" --spark --json[/cyan]
    """
    name = app_in(home, app)
    answer = _ask_spark(sql, name, home) if spark else _ask_store(sql, name, home)
    Answer(as_json=as_json).show(answer)


def app_in(home: Path | None, wanted: str | None) -> str:
    """The app of this name, or the only one of the home."""
    with opened(home) as log:
        names = [row["name"] for row in log.catalog.read("SELECT name FROM apps ORDER BY name")]
    if wanted is not None and wanted in names:
        return wanted
    if wanted is None and len(names) == 1:
        return str(names[0])
    if not names:
        raise InvalidDeclaration("no app has run in this home yet", hint="Run one: headwater run APP.py")
    message = f'no app "{wanted}" has run in this home' if wanted is not None else f"this home has {len(names)} apps"
    raise InvalidDeclaration(message, hint=f"Give one with --app: {', '.join(names)}.", apps=names)


def _ask_store(sql: str, app: str, home: Path | None) -> pa.Table:
    from headwater.views.serving import ServingStore, store_path

    with ServingStore(store_path(require_home(home_of(home)), app)) as store:
        return store.query(sql)


def _ask_spark(sql: str, app: str, home: Path | None) -> pa.Table:
    from headwater.views.operation import Operation

    with opened(home) as log:
        operation = Operation(app, log, (), {})
        try:
            return operation.query(sql)
        finally:
            operation.close()


class Answer:
    """Rows on stdout: aligned for people, a JSON object a line for programs. May be given several tables."""

    def __init__(self, *, as_json: bool) -> None:
        from headwater.cli.tail import Lines

        self._lines = None if as_json else Lines(cut=sys.stdout.isatty())

    def show(self, answer: pa.Table) -> None:
        """Write the rows of a table."""
        from headwater.log.json_lines import json_line
        from headwater.log.rows import to_rows

        for batch in answer.to_batches():
            for row in to_rows(batch):
                if self._lines is None:
                    sys.stdout.write(json_line(row) + "\n")
                else:
                    self._lines.add(row)
        if self._lines is not None:
            sys.stdout.writelines(self._lines.flush())
        sys.stdout.flush()
