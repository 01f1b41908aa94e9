"""``headwater run APP.py``: keep an app's views up to date.

What it is: runs the app in this process until Ctrl-C, and prints each tick.
Invariants: one line a tick on stdout, JSON with ``--json``; with ``--once`` it ends when everything committed in
databases at its start, and everything in the log, is in the views and sinks.
Not here: a tick (``views/tick/engine.py``), the file (``cli/app_argument.py``).
Read next: ``views/runtime.py``.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.app_argument import AppFileArgument, app_of
from headwater.cli.command_options import AcceptLossOption, JsonOption
from headwater.cli.connectors.capture_commands import backfill_bars
from headwater.cli.output import console, say
from headwater.cli.quantities import parse_seconds
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.app import App
    from headwater.views.tick.reports import TickReport

LOOK_S = 1.0
STALLED_AFTER_S = 60.0


def run(
    file: AppFileArgument,
    once: Annotated[
        bool, typer.Option("--once", help="Process what is waiting in databases and in the log, then end.")
    ] = False,
    stalled_after: Annotated[
        str,
        typer.Option("--stalled-after", metavar="DURATION", help="Warn when rows wait and no tick comes for so long."),
    ] = f"{STALLED_AFTER_S:g}s",
    accept_loss: AcceptLossOption = False,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby", help="While another process runs the app, be ready; take over when it ends or is silent."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Keep the views of an app up to date, until Ctrl-C.

    A second process that runs the same app takes over, and this one ends with status 3; with --standby it waits
    until it is needed.

    [cyan]headwater run shop.py[/cyan]
    [cyan]headwater run shop.py --once --json[/cyan]
    """

    with app_of(file) as app:
        if standby and not stand_by(app, as_json=as_json):
            return
        run_app(
            app,
            once=once,
            stalled_after=parse_seconds(stalled_after, "--stalled-after", at_least="1s"),
            accept_loss=accept_loss,
            as_json=as_json,
        )


def stand_by(app: App, *, as_json: bool = False) -> bool:
    """Wait until no process runs the app; False when Ctrl-C came first."""
    from headwater.views.lifecycle.standby import Standby

    def ready() -> None:
        if as_json:
            sys.stdout.write(json.dumps({"event": "standby"}) + "\n")
            sys.stdout.flush()
        else:
            console(stderr=True).print(f'app "{app.name}": standing by', markup=False)

    try:
        Standby(app._runtime).wait(threading.Event(), on_ready=ready, watches=True)
    except KeyboardInterrupt:
        return False
    app._runtime.prepare_again()
    return True


def run_app(
    app: App,
    *,
    once: bool = False,
    stalled_after: float = STALLED_AFTER_S,
    accept_loss: bool = False,
    as_json: bool = False,
) -> None:
    """Run an app until Ctrl-C, or until nothing waits, and print each tick."""

    def show(report: TickReport) -> None:
        sys.stdout.write(json.dumps(report_of(report)) + "\n" if as_json else f"{sentence_of(report)}\n")
        sys.stdout.flush()

    if not as_json:
        many = len(app.views)
        console(stderr=True).print(f'app "{app.name}" in {app.home}, {many} view{"s" * (many != 1)}', markup=False)
    if not once:
        with stalls_reported(app, stalled_after):
            app.run(on_tick=show, accept_loss=accept_loss)
        return
    if app.captures:
        with backfill_bars(shown=not as_json) as show_backfill:
            app.capture(until="caught up", on_progress=show_backfill)
    report = app.tick(accept_loss=accept_loss)
    while report.moved:
        show(report)
        if not report.behind:
            break
        report = app.tick(accept_loss=accept_loss)
    if not as_json:
        say(f"all views are at tick {report.tick}")


@contextmanager
def stalls_reported(app: App, seconds: float) -> Iterator[None]:
    """Warn on stderr and by an alert when rows wait and no tick comes."""
    from headwater.log.maintenance.alerts import note_engine
    from headwater.views.lifecycle.stalls import StallWatch, topics_read

    folder = app.log.home / "views" / app.name
    watch = StallWatch(app.log, app.name, lambda: topics_read(app.views), folder, limit_seconds=seconds)
    ended = threading.Event()

    def look() -> None:
        reported = True  # possibly by an earlier process
        while not ended.wait(LOOK_S):
            with suppress(HeadwaterError):  # busy catalog, deleted topic
                found = watch.look()
                if found.stalled and not reported:
                    reported = True
                    console(stderr=True).print(f'app "{app.name}": {found.sentence}', markup=False)
                    note_engine(app.log.local, app.name, f'app "{app.name}": {found.sentence}', {"tick": found.tick})
                elif reported and not found.stalled:
                    note_engine(app.log.local, app.name, None, {})
                    reported = False

    threading.Thread(target=look, name="headwater-stalls", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def report_of(report: TickReport) -> dict[str, Any]:
    """A tick's report as JSON values."""
    frontier = {topic: {str(part): offset for part, offset in of.items()} for topic, of in report.frontier.items()}
    return {**report.to_json(), "frontier": frontier}


def sentence_of(report: TickReport) -> str:
    """A tick's report as a sentence."""
    moved = [f"{each.view} {each.changes:,}" for each in report.views if each.changes]
    changes = f"changes: {', '.join(moved)}" if moved else "no view changed"
    behind = f"; {report.behind:,} rows behind" if report.behind else ""
    return f"tick {report.tick}: {report.rows_in:,} rows in {report.seconds:.2f} s; {changes}{behind}"
