"""``headwater capture``: run, ls, watch, drop, export, restart.

What it is: the verbs on the databases that an app's tables follow. They need the app's file, which knows the addresses.
Invariants: progress goes to stderr; ``ls`` changes nothing and also answers while the database is away.
Not here: what a capture does (``capture/capture.py``).
Read next: ``cli/app_argument.py``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.app_argument import AppFileArgument, app_of
from headwater.cli.command_options import JsonOption
from headwater.cli.output import ListColumns, answer, answer_list, console, say, thousands, write_json
from headwater.cli.quantities import parse_duration_ms, parse_size, show_bytes
from headwater.errors import InvalidDeclaration

if TYPE_CHECKING:
    from headwater.app import App
    from headwater.capture.backfill import BackfillProgress

app = typer.Typer(help="Captures: tables that follow other databases.", no_args_is_help=True)


@app.command("run")
def run(
    file: AppFileArgument,
    once: Annotated[bool, typer.Option("--once", help="End when everything committed by now is in the log.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Follow the databases of an app's tables, until Ctrl-C. [cyan]headwater run[/cyan] does this too.

    [cyan]headwater capture run shop.py[/cyan]
    [cyan]headwater capture run shop.py --once[/cyan]
    """
    with _captured(file) as shop, backfill_bars(shown=not as_json) as show:
        shop.capture(until="caught up" if once else None, on_progress=show)
        if as_json:
            write_json(_tables(shop))


@app.command("ls")
def ls(file: AppFileArgument, as_json: JsonOption = False) -> None:
    """List the captured tables of an app: phase, position, and what the database keeps for us.

    [cyan]headwater capture ls shop.py[/cyan]
    """
    with _captured(file) as shop:
        tables = _tables(shop)
    columns: ListColumns = {
        **{name: name for name in ("table", "source", "phase")},
        ">backfilled": thousands("rows_done"),
        "position": "position",
        "last commit": "committed_at",
        ">kept for us": lambda each: "" if each["lag_bytes"] is None else show_bytes(each["lag_bytes"]),
        "kept in": "slot",
        ">nulled": thousands("values_lost"),
    }
    empty = f"nothing was captured yet; begin with: headwater capture run {file}"
    answer_list(tables, columns, empty=empty, as_json=as_json)


@app.command("watch")
def watch(
    file: AppFileArgument,
    limit: Annotated[str, typer.Option("--limit", metavar="SIZE", help="What a database may keep for us.")] = "1GiB",
    every: Annotated[
        str | None, typer.Option("--every", metavar="DURATION", help="Look again and again, until Ctrl-C.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Alert when a database keeps much of its log for an app, also while the app is stopped. For cron.

    A slot without a reader fills its database's disk. Beyond the limit the slot is named, an alert is written to the
    topic [cyan]_alerts[/cyan], and the exit code is 1.

    [cyan]headwater capture watch shop.py[/cyan]
    [cyan]headwater capture watch shop.py --limit 10GiB --every 1m[/cyan]
    """
    limit_bytes = parse_size(limit)
    pause = None if every is None else parse_duration_ms(every) / 1000
    with _captured(file) as shop:
        while True:
            found = shop.captures.watch(shop.log, lag_bytes_alert=limit_bytes)
            if as_json:
                write_json([asdict(each) for each in found])
            else:
                for each in found:
                    kept = "nothing" if each.lag_bytes is None else show_bytes(each.lag_bytes)
                    say(f"alert: {each.message}" if each.message else f"{each.capture}: {kept} kept in {each.state}")
            if pause is None:
                break
            time.sleep(pause)
    if any(each.message for each in found):
        raise typer.Exit(1)


@app.command("drop")
def drop(file: AppFileArgument, as_json: JsonOption = False) -> None:
    """Remove slots and publications from the databases. The tables keep what they have.

    [cyan]headwater capture drop shop.py[/cyan]
    """
    with _captured(file) as shop:
        names = shop.captures.drop(shop.log)
    answer({"dropped": names}, f"dropped: {', '.join(names)}", as_json=as_json)


@app.command("export")
def export(
    file: AppFileArgument,
    table: Annotated[str, typer.Argument(help="The table whose records are written.")],
    start: Annotated[int, typer.Option("--from", help="The first offset.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Write a table's records as Debezium's messages, one JSON line each: offset, key and value.

    [cyan]headwater capture export shop.py users > users.jsonl[/cyan]
    """
    from headwater.capture.debezium.envelope import envelopes
    from headwater.log.event_time.capture_markers import Markers

    del as_json  # it is JSON in any case

    with app_of(file) as shop:
        topic = shop.log.get_topic(table)
        captured = topic.settings.captured_by
        markers = Markers.find(shop.log, captured) if captured is not None else None
        last = markers.last() if markers is not None else None
        stop = None if captured is None else last.ends.get(table, 0) if last is not None else 0
        for offset, key, value in envelopes(topic, start=start, stop=stop):
            sys.stdout.write(f'{{"offset": {offset}, "key": {key}, "value": {value}}}\n')


@app.command("restart")
def restart(file: AppFileArgument, as_json: JsonOption = False) -> None:
    """Give up the place in the databases' logs, and backfill every table again with the next run.

    Until that is done the tables stay as they are; then they are what the databases hold.

    [cyan]headwater capture restart shop.py[/cyan]
    """
    with _captured(file) as shop:
        names = shop.captures.restart(shop.log)
    answer({"restarted": names}, f"the next run reads again: {', '.join(names)}", as_json=as_json)


@contextmanager
def _captured(file: Any) -> Iterator[App]:
    with app_of(file) as found:
        if not found.captures:
            raise InvalidDeclaration(
                f"{file} captures nothing", hint='Declare a table with a source: app.table("users", source=…).'
            )
        yield found


def _tables(shop: App) -> list[dict[str, Any]]:
    found = [asdict(each) for each in shop.captures.describe(shop.log)]
    for each in found:
        at = each["committed_at"]
        each["committed_at"] = None if at is None else at.isoformat()
    return found


@contextmanager
def backfill_bars(*, shown: bool) -> Iterator[Callable[[BackfillProgress], None] | None]:
    """A bar for each table that is backfilled."""
    if not shown:
        yield None
        return
    from rich import progress

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[rate]}"),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console(stderr=True)) as bars:
        tasks: dict[str, Any] = {}

        def show(about: BackfillProgress) -> None:
            if about.table not in tasks:
                tasks[about.table] = bars.add_task(f"backfill {about.table}", rate="")
            rate = f"{about.rows_per_second:,.0f} rows/s"
            bars.update(
                tasks[about.table],
                completed=about.rows_done,
                total=max(about.rows_estimated, about.rows_done),
                rate=rate,
            )

        yield show
