"""``headwater sync``: copies a database's tables to another system and keeps the copy up to date.

What it is: the verb over ``Sync``: a live table for people, a line of JSON a second for programs.
Invariants: human output goes to stderr; Ctrl-C ends it with 0 after the running delivery, and the same command
continues.
Not here: the work (``headwater/sync.py``).
Read next: ``headwater/sync.py``.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.command_options import JsonOption
from headwater.cli.output import answer, console, say, table
from headwater.errors import InvalidDeclaration

if TYPE_CHECKING:
    from headwater.sync import Sync, TableSync

LOOK_S = 0.3
TOLD_S = 1.0  # a line of JSON each


def sync(
    source: Annotated[str, typer.Argument(help="The database: postgresql://user:password@host/name, or mysql://….")],
    to: Annotated[
        str,
        typer.Option(
            "--to", help="sqlite:FILE, postgresql://…, redis://…, search:FOLDER, parquet:FOLDER or delta:FOLDER."
        ),
    ],
    tables: Annotated[str, typer.Option("--tables", help="Comma-separated; default: all.")] = "",
    home: Annotated[
        Path | None, typer.Option("--home", help="Directory of the log; default: a folder under .headwater.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when everything committed so far is copied.")] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Remove the replication slot and the log. The copy stays.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy tables of a database to another system and keep the copy up to date, until Ctrl-C. Needs no app file.

    First everything that is there, then every change, in whole transactions. Run it again to go on where it was.

    [cyan]headwater sync postgresql://localhost/shop --tables users,orders --to sqlite:copy.db[/cyan]
    [cyan]headwater sync postgresql://localhost/shop --to redis://localhost/0 --once[/cyan]
    [cyan]headwater sync postgresql://localhost/shop --tables users,orders --to sqlite:copy.db --forget[/cyan]
    """
    from headwater.sync import Sync

    place = home or _place(source, to)
    wanted = [name.strip() for name in tables.split(",") if name.strip()]
    if forget:
        _forget(source, to, wanted, place, as_json=as_json)
        return
    if not as_json:
        say(f"the log is in {place}, and the database keeps a replication slot for it: --forget removes both")
    with asked_to_stop() as asked, Sync(source, to, tables=wanted, home=place) as running:
        running.start(once=once)

        def over() -> bool:
            return asked.is_set() or (once and running.caught_up)

        _tell(running, over) if as_json else _show(running, over)
        if asked.is_set() and not as_json:
            say("stopped; run the same command to continue")


def _forget(source: str, to: str, tables: list[str], place: Path, *, as_json: bool) -> None:
    from headwater.sync import Sync

    if not place.exists():
        raise InvalidDeclaration(
            f"no log of this copy in {place}", hint="Give the same source, target and --home as before."
        )
    with Sync(source, to, tables=tables, home=place) as known:
        slots = known.forget()
    shutil.rmtree(place)
    sentence = f"dropped {', '.join(slots)}, removed {place}; the copy stays as it is"
    answer({"dropped": slots, "removed": str(place)}, sentence, as_json=as_json)


def _place(source: str, to: str) -> Path:
    """The home of a source and a target, the same with every run."""
    digest = hashlib.sha256(f"{source} {to}".encode()).hexdigest()[:8]
    return Path(".headwater") / f"sync-{digest}"


@contextmanager
def asked_to_stop() -> Iterator[threading.Event]:
    """Ctrl-C or SIGTERM sets the event; a second Ctrl-C ends the process."""
    asked = threading.Event()

    def ask(number: int, frame: Any) -> None:
        if asked.is_set():
            signal.default_int_handler(number, frame)
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(running: Sync, over: Callable[[], bool]) -> None:
    while True:
        last = over()
        running.check()
        typer.echo(json.dumps([_facts(each) for each in running.tables()]))
        if last:
            return
        until = time.monotonic() + TOLD_S
        while time.monotonic() < until and not over():
            running.wait(LOOK_S)
            running.check()


def _facts(each: TableSync) -> dict[str, Any]:
    status = each.status
    return {
        "table": each.table,
        "source": each.source,
        "state": _state(each),
        "backfilled_rows": each.backfilled,
        "estimated_rows": each.estimated,
        "copied_rows": each.copied,
        "changes": status.rows,
        "behind_s": round(status.lag.seconds, 3),
        "behind_changes": status.lag.changes,
        "to": status.to,
    }


def _state(each: TableSync) -> str:
    from headwater.sinks.runner.sink_status import SinkState

    if each.status.state in (SinkState.IDLE, SinkState.FOLLOWING) and each.status.tick == 0:
        return "backfill"
    return {SinkState.FILLING: "copying", SinkState.FOLLOWING: "following"}.get(
        each.status.state, str(each.status.state)
    )


def _show(running: Sync, over: Callable[[], bool]) -> None:
    from rich.live import Live

    out = console(stderr=True)
    with Live(_table(running), console=out, refresh_per_second=4, transient=not out.is_terminal) as live:
        while not over():
            running.check()
            running.wait(LOOK_S)
            live.update(_table(running))
        running.check()
        live.update(_table(running))
    if not out.is_terminal:
        out.print(_table(running))


def _table(running: Sync) -> Any:
    rows = []
    for each in running.tables():
        state = _state(each)
        total = max(each.estimated or 0, each.backfilled)
        part = f"{each.backfilled / total:.0%}" if total else ""
        if state == "backfill":
            progress = running.backfills.get(each.table)
            left = None if progress is None else progress.seconds_left
            if progress is not None:
                part += f" of {total:,}, {progress.rows_per_second:,.0f} rows/s"
            part += "" if left is None else f", {left:,.0f} s left"
        lag = each.status.lag
        behind = f"{lag.changes:,} changes, {lag.seconds:.1f} s" if lag.changes else ""
        rows.append(
            (
                each.source,
                state,
                part if state == "backfill" else "",
                f"{max(each.copied, each.status.rows):,}",
                behind,
                each.status.to,
            )
        )
    return table(["table", "state", "read", ">rows written", ">behind", "to"], rows)
