"""``headwater query``: one SELECT over the views of a home.

What it is: queries the serving store (SQLite, no Java), or with ``--spark`` Spark over views, tables, topics and
attached stores; ``--explain`` shows the queries to those.
Invariants: it only reads, at one tick; rows are written as ``topic tail`` writes them.
Not here: the serving store (``views/serving/serving_store.py``), Spark's queries (``views/serving/snapshot.py``).
Read next: ``views/serving/serving_store.py``.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.command_options import HomeOption, JsonOption, LogOption, home_of, opened, opened_log, require_home
from headwater.cli.output import say, show_facts, write_json
from headwater.cli.quantities import show_bytes
from headwater.errors import InvalidDeclaration, Misuse

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.views.serving.snapshot import QueryReply

AppOption = Annotated[
    str | None,
    typer.Option("--app", metavar="NAME", help="The app; needed when the home has several.", show_default=False),
]


def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One SELECT.", show_default=False)],
    app: AppOption = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="Use Spark: its dialect, tables and topics too. Takes seconds to start.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Run it in Spark and show the queries to attached stores instead of the rows."),
    ] = False,
    push_down: Annotated[
        bool,
        typer.Option("--push-down/--no-push-down", help="Push filters down to attached stores where that is exact."),
    ] = True,
    home: HomeOption = None,
    log_address: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Query the views of a home, as of the last tick.

    [cyan]headwater query "SELECT * FROM revenue ORDER BY total DESC LIMIT 10"[/cyan]
    [cyan]headwater query "SELECT * FROM orders LIMIT 5" --spark --json[/cyan]
    [cyan]headwater query "SELECT * FROM revenue r JOIN crm.public.regions g ON g.country = r.country" --explain[/cyan]
    """
    name = app_in(home, app)
    if not spark and not explain:
        QueryOutput(as_json=as_json).show(_ask_store(sql, name, home))
        return
    began = time.monotonic()
    reply = _ask_spark(sql, name, home, log_address, push_down=push_down)
    if explain:
        show_fetched(reply, time.monotonic() - began, as_json=as_json)
    else:
        QueryOutput(as_json=as_json).show(reply.table)


def app_in(home: Path | None, wanted: str | None) -> str:
    """The app of this name, or the only one of the home."""
    with opened(home, beside_log=True) as log:
        names = [row["name"] for row in log.local.catalog.read("SELECT name FROM apps ORDER BY name")]
    if wanted is not None and wanted in names:
        return wanted
    if wanted is None and len(names) == 1:
        return str(names[0])
    if not names:
        raise InvalidDeclaration("no app has run in this home yet", hint="Run one: headwater run APP.py")
    message = f'no app "{wanted}" has run in this home' if wanted is not None else f"this home has {len(names)} apps"
    raise InvalidDeclaration(message, hint=f"Give one with --app: {', '.join(names)}.", apps=names)


def _ask_store(sql: str, app: str, home: Path | None) -> pa.Table:
    from headwater.views.serving.serving_store import ServingStore, store_path

    with ServingStore(store_path(require_home(home_of(home, beside_log=True)), app)) as store:
        try:
            return store.query(sql)
        except Misuse as error:
            named = [name for name in _attached(home) if re.search(rf"\b{name}\b", sql, re.IGNORECASE)]
            if named:
                error.hint = f"{named[0]} is an attached store, which Spark reads: add --spark."
            raise


def _attached(home: Path | None) -> list[str]:
    from headwater.federation.attachments import Attachments

    with opened(home, beside_log=True) as log:
        return list(Attachments(log))


def _ask_spark(sql: str, app: str, home: Path | None, log_address: str | None, *, push_down: bool) -> QueryReply:
    from headwater.federation.attachments import Attachments
    from headwater.views.runtime import AppRuntime

    with opened_log(home, log_address) as log:
        runtime = AppRuntime(app, log, (), {}, Attachments(log.local))
        try:
            return runtime.reply(sql, push_down=push_down)
        finally:
            runtime.close()


def show_fetched(reply: QueryReply, seconds: float, *, as_json: bool) -> None:
    """The queries to attached stores, and the rows they returned."""
    rows, many = reply.table.num_rows, len(reply.fetched)
    if as_json:
        write_json({"rows": rows, "seconds": round(seconds, 4), "fetched": [each.to_dict() for each in reply.fetched]})
        return
    for each in reply.fetched:
        parameters = f" with {', '.join(map(repr, each.parameters))}" if each.parameters else ""
        facts: list[tuple[str, Any]] = [
            ("table", f"{each.table} ({each.kind})"),
            ("fetched", f"{each.rows:,} rows, {show_bytes(each.bytes)}, in {each.seconds:.2f} s"),
            ("sent", f"{each.statement}{parameters}"),
            *(("filtered there", condition) for condition in each.asked),
            *(("filtered here", f"{condition}: {reason}") for condition, reason in each.kept),
        ]
        if each.lost:
            facts.append(("lost", f"{each.lost:,} values that their column's type cannot hold are null"))
        show_facts(facts)
        say("")
    say(f"{rows:,} rows in {seconds:.2f} s, from {many} fetched table{'s' * (many != 1)}")


class QueryOutput:
    """Rows on stdout: a table for people, JSON lines for programs."""

    def __init__(self, *, as_json: bool) -> None:
        from headwater.cli.log.tail import Lines

        self._lines = None if as_json else Lines(cut=sys.stdout.isatty())

    def show(self, answer: pa.Table) -> None:
        """Write the rows of a table."""
        from headwater.log.schema.json_lines import json_line
        from headwater.log.schema.row_conversion import to_rows

        for batch in answer.to_batches():
            for row in to_rows(batch):
                if self._lines is None:
                    sys.stdout.write(json_line(row) + "\n")
                else:
                    self._lines.add(row)
        if self._lines is not None:
            sys.stdout.writelines(self._lines.flush())
        sys.stdout.flush()
