"""``headwater check`` and ``headwater maintain``: verification and maintenance of a home.

Invariants: ``check`` changes no data and may run on a live home, also on one too damaged to open; status 0 without
errors, else 5 (corruption), with each error named. ``maintain`` exits with 1 when a step failed.
Not here: the checks (``log/maintenance/home_check.py``) and steps (``log/maintenance/maintenance.py``).
Read next: ``log/maintenance/home_check.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from headwater.cli.command_options import HomeOption, JsonOption, home_of, opened, require_home
from headwater.cli.output import console, say, show_table, write_json
from headwater.cli.quantities import show_bytes
from headwater.errors import Corruption


def check(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Verify the log (checksums, indexes, offsets, the catalog) and the state of views; safe on a live home.

    Leaves with status 0 when all is well, with 5 when something is damaged.

    [cyan]headwater check[/cyan]
    [cyan]headwater check --json | jq .problems[/cyan]
    """
    from headwater.log.maintenance.home_check import check_home
    from headwater.views.lifecycle.views_check import with_views

    path = require_home(home_of(home))
    with byte_progress(f"checking {path}", quiet=as_json) as progress:
        report = check_home(path, progress=progress, also=with_views)
    if as_json:
        write_json(report.to_dict())
    else:
        for problem in report.problems:
            console().print(str(problem), markup=False, style="red" if problem.severity == "error" else "yellow")
        verdict = "[bold green]all is well[/bold green]" if report.ok else "[bold red]damaged[/bold red]"
        say(
            f"{verdict}: {report.topics} topics, {report.partitions} partitions, {report.segments} segments, "
            f"{report.rows:,} rows, {report.state_files} files of views, {show_bytes(report.bytes)} "
            f"in {report.seconds:.2f} s"
        )
    if not report.ok:
        raise typer.Exit(Corruption.exit_status)


def maintain(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Run maintenance once (seal, compact, retain, lag alerts); for cron, where no process stays running.

    [cyan]headwater maintain[/cyan]
    """
    with opened(home) as log:
        report = log.maintain()
    if as_json:
        write_json(report.to_dict())
    elif not report.steps and not report.alerts:
        say(f"nothing to do in {report.topics} topics ({report.seconds:.2f} s)")
    else:
        rows = [
            (
                step.topic,
                "" if step.partition is None else step.partition,
                step.action,
                f"failed: {step.message}" if step.failed else step.message,
            )
            for step in report.steps
        ]
        show_table(["topic", ">partition", "action", "result"], rows)
        for alert in report.alerts:
            console().print(f"alert: {alert}", style="yellow", markup=False)
    if not report.ok:
        raise typer.Exit(1)


@contextmanager
def byte_progress(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on stderr, if it is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), DownloadColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
