"""``headwater view rebuild APP.py VIEW`` and ``resume``: recompute a view beside the live one.

What it is: rebuilds one view, with ticks in between, a progress bar and a report.
Invariants: the live view answers until the swap; an interrupted command changes nothing. Progress goes to stderr, the
report to stdout.
Not here: rebuilding (``views/lifecycle/rebuild.py``).
Read next: ``views/lifecycle/rebuild.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app_argument import AppFileArgument, app_of
from headwater.cli.command_options import JsonOption
from headwater.cli.output import answer, console
from headwater.cli.quantities import show_duration_ms
from headwater.errors import Corruption, ViewFailed

if TYPE_CHECKING:
    from headwater.app import App
    from headwater.views.lifecycle.rebuild import RebuildReport
    from headwater.views.lifecycle.rebuild_progress import RebuildProgress


def rebuild(
    file: AppFileArgument,
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The view's name.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Recompute a view from what its inputs hold, beside the live one, then swap.

    This takes the app over and keeps its views up to date meanwhile: another process that runs it ends with status 3.
    Start it again afterwards.

    [cyan]headwater view rebuild shop.py revenue[/cyan]
    [cyan]headwater view rebuild shop.py revenue --json[/cyan]
    """
    with app_of(file) as app:
        app.get_view(view)  # fails before Spark starts
        ticks = Ticks(app)
        with _shown(view, quiet=as_json) as show:

            def go_on(now: RebuildProgress) -> None:
                show(now)
                ticks.go_on()

            report = app.rebuild(view, on_progress=go_on)
    answer(asdict(report), sentence_of(report), as_json=as_json)


def resume(
    file: AppFileArgument,
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The view's name.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Let a paused view run again: recompute it from its inputs, with the paused views that depend on it.

    For after the rows were corrected or set aside; a view whose query was changed is refilled by the next run.
    This takes the app over, as rebuild does.

    [cyan]headwater view resume shop.py revenue[/cyan]
    """
    with app_of(file) as app:
        app.get_view(view)  # fails before Spark starts
        with _shown(view, quiet=as_json) as show:
            report = app.get_view(view).resume(on_progress=show)
    answer(asdict(report), sentence_of(report), as_json=as_json)


class Ticks:
    """Run ticks in between, because this process has taken the app over."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._possible = True

    def go_on(self) -> None:
        """One tick, unless the view to rebuild makes ticks fail."""
        if self._possible:
            try:
                self.app.tick()
            except (Corruption, ViewFailed) as error:
                self._possible = False
                console(stderr=True).print(f"no ticks meanwhile: {error.message}", markup=False, soft_wrap=True)


@contextmanager
def _shown(view: str, *, quiet: bool) -> Iterator[Callable[[RebuildProgress], None]]:
    """A progress bar on stderr, if it is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"rebuilding {view}", total=1.0, left="")

        def show(now: RebuildProgress) -> None:
            seconds = now.seconds_left
            left = f"{show_duration_ms(1000 * max(1, round(seconds)))} left" if seconds is not None else ""
            progress.update(task, description=f"rebuilding {view}: {now.step}", completed=now.part, left=left)

        yield show


def sentence_of(report: RebuildReport) -> str:
    """The report as a sentence.

    >>> from headwater.views.lifecycle.rebuild import RebuildReport
    >>> sentence_of(RebuildReport(("revenue",), 7, {"revenue": 0}, (), 2, 1.5))
    'revenue: as it was, in 1.50 s; swapped in with tick 7, after 2 ticks meanwhile'
    """
    parts = []
    for name in report.views:
        count = report.changes.get(name)
        what = "filled again" if count is None else f"{count:,} changes" if count else "as it was"
        parts.append(f"{name}: {what}")
    many = report.ticks_meanwhile
    ticks = f", after {many} tick{'s' * (many != 1)} meanwhile" if many else ""
    return f"{', '.join(parts)}, in {report.seconds:.2f} s; swapped in with tick {report.tick}{ticks}"
