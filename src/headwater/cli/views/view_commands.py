"""``headwater view``: ls, describe, changes.

What it is: the verbs on views that have run in a home; they need neither the app's file nor Spark.
Invariants: nothing is changed or taken over; they work while the app runs.
Not here: declared views (``plan_command.py``); running and rebuilding (``run_command.py``, ``rebuild_commands.py``).
Read next: ``run_command.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli import completions
from headwater.cli.command_options import HomeOption, JsonOption, opened
from headwater.cli.output import ListColumns, answer_list, console, say, show_facts, show_table, thousands, write_json
from headwater.cli.quantities import show_bytes
from headwater.cli.views.diagnose_command import diagnose
from headwater.cli.views.plan_command import explain, plan
from headwater.cli.views.query_command import AppOption, QueryOutput, query
from headwater.cli.views.rebuild_commands import rebuild, resume
from headwater.cli.views.run_command import run
from headwater.cli.views.submit_command import pack, submit
from headwater.cli.views.verify_command import verify
from headwater.cli.views.why_command import why
from headwater.errors import UnknownView
from headwater.log.token import Token

if TYPE_CHECKING:
    from headwater.log.home import Log
    from headwater.views.state.manifest import Manifest, Manifests

app = typer.Typer(help="Views: SQL that is kept up to date.", no_args_is_help=True)

ViewArgument = Annotated[
    str, typer.Argument(metavar="VIEW", help="The view's name.", show_default=False, autocompletion=completions.views)
]


def mount(root: typer.Typer, *, panel: str | None = None) -> None:
    """Add every verb about views to the command line."""
    root.command("run", rich_help_panel=panel)(run)
    root.command("submit", rich_help_panel=panel)(submit)
    root.command("pack", rich_help_panel=panel)(pack)
    root.command("plan", rich_help_panel=panel)(plan)
    root.command("explain", rich_help_panel=panel)(explain)
    root.command("query", rich_help_panel=panel)(query)
    root.command("why", rich_help_panel=panel)(why)
    root.command("verify", rich_help_panel=panel)(verify)
    app.command("rebuild")(rebuild)
    app.command("resume")(resume)
    app.command("diagnose")(diagnose)
    root.add_typer(app, name="view", rich_help_panel=panel)


@app.command("ls")
def ls(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the views of a home with their ticks.

    [cyan]headwater view ls[/cyan]
    """
    with opened(home) as log:
        views = [
            _description(log, manifests, manifest, name)
            for manifests in _apps(log)
            for manifest in [manifests.current()]
            for name in sorted(manifest.views)
        ]
    columns: ListColumns = {
        **{name: name for name in ("app", "view", "state", "kind")},
        ">tick": "tick",
        ">rows behind": thousands("behind"),
        ">state": lambda each: show_bytes(each["bytes"]),
        "key": lambda each: ", ".join(each["key"]),
        "columns": "columns",
    }
    empty = "no views; run an app that declares some: headwater run APP.py"
    answer_list(views, columns, empty=empty, as_json=as_json)


@app.command("describe")
def describe(view: ViewArgument, name: AppOption = None, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show a view's columns, key, state and tick.

    [cyan]headwater view describe revenue[/cyan]
    """
    with opened(home) as log:
        manifests, manifest = _find(log, view, name)
        found = _description(log, manifests, manifest, view)
    if as_json:
        write_json(found)
        return
    first, last = found["kept_ticks"]
    show_facts(
        [
            ("view", found["view"]),
            ("app", found["app"]),
            ("kind", found["kind"]),
            ("columns", found["columns"]),
            ("key", ", ".join(found["key"]) or None),
            ("tick", f"{found['tick']}, committed {found['committed_at']}"),
            ("frontier", found["frontier"]),
            ("behind", f"{found['behind']:,} rows of the topics that the app reads"),
            ("since", f"tick {found['created_tick']}"),
            ("changes kept", f"ticks {first} to {last}"),
            (
                "state",
                f"{found['weighted_rows']:,} weighted rows in {found['runs']} runs, {show_bytes(found['bytes'])}",
            ),
            ("state at", found["state_at"]),
            ("watermark", found["watermark"]),
            ("fingerprint", found["fingerprint"]),
        ]
    )
    if found["paused"]:
        paused = found["paused"]
        say(f"paused since {paused['since']}, with the contents of tick {paused['tick']}")
        console().print(f"  {paused['reason']}", markup=False, soft_wrap=True)
        say(f"after a fix: headwater view resume APP.py {paused['because'][0]}")
    if found["late_rows"]:
        rows = [(each["topic"], each["producer"], f"{each['rows']:,}") for each in found["late_rows"]]
        show_table(["late rows of", "producer", ">rows"], rows)


@app.command("changes")
def changes(
    view: ViewArgument,
    start: Annotated[
        int | None,
        typer.Option("--from", metavar="TICK", help="The first tick; default: the first kept one.", show_default=False),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow new ticks, until Ctrl-C.")] = False,
    name: AppOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the changes of a view, tick by tick.

    [cyan]headwater view changes revenue -f[/cyan]
    [cyan]headwater view changes revenue --from 120 --json | jq ._change_type[/cyan]
    """
    from headwater.views.serving.change_feed import ChangeFeed
    from headwater.views.serving.committed_changes import CommittedChanges
    from headwater.views.serving.serving_store import ServingStore, store_path

    with opened(home) as log:
        manifests, _ = _find(log, view, name)
        path = store_path(log.home, manifests.app)
        with ServingStore(path) as store, _quiet_interrupt():
            feed = ChangeFeed(view, CommittedChanges(manifests, path.parent, log.local.files), store.wait)
            answer = QueryOutput(as_json=as_json)
            for table in feed.changes(start, follow=follow):
                answer.show(table)


@contextmanager
def _quiet_interrupt() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        sys.stdout.flush()  # the usual way to end


def _apps(log: Log) -> list[Manifests]:
    from headwater.views.state.manifest import Manifests

    rows = log.local.catalog.read("SELECT name FROM apps ORDER BY name")
    return [Manifests(log.local.catalog, row["name"]) for row in rows]


def _find(log: Log, view: str, app_name: str | None) -> tuple[Manifests, Manifest]:
    """The app that has this view, and its current manifest."""
    found, names = [], []
    for manifests in _apps(log):
        manifest = manifests.current()
        names += [f"{name} (app {manifests.app})" for name in sorted(manifest.views)]
        if view in manifest.views and app_name in (None, manifests.app):
            found.append((manifests, manifest))
    if len(found) == 1:
        return found[0]
    if found:
        apps = ", ".join(manifests.app for manifests, _ in found)
        raise UnknownView(f'several apps have a view "{view}"', hint=f"Give one with --app: {apps}.", view=view)
    raise UnknownView(
        f'no view "{view}" has run in this home', hint=f"There are: {', '.join(names) or 'none yet'}.", view=view
    )


def _description(log: Log, manifests: Manifests, manifest: Manifest, name: str) -> dict[str, Any]:
    from headwater.clock import format_us
    from headwater.views.event_time import late_rows
    from headwater.views.tick.pausing import paused_in

    pause = paused_in(manifest).get(name)
    names = {topic: log.get_topic(topic).producer_names() for topic in manifest.times.get("topics", {})}
    about = manifest.views[name]
    runs = manifest.runs_of(name)
    known = set(log.topic_names())
    ends = {topic: log.get_topic(topic).end_offsets() for topic in manifest.frontier if topic in known}
    behind = sum(
        end - (manifest if pause is None else pause).frontier.get(topic, {}).get(number, 0)
        for topic, of in ends.items()
        for number, end in of.items()
    )
    kept = [tick for tick, _ in manifests.kept()]
    return {
        "app": manifests.app,
        "view": name,
        "state": "live" if pause is None else "paused",
        "paused": None if pause is None else pause.describe(name),
        "kind": about["kind"],
        "columns": about["columns"],
        "key": list(about["key"]),
        "fingerprint": about["fingerprint"],
        "created_tick": about["created_tick"],
        "tick": manifest.tick if pause is None else pause.tick,
        "committed_at": format_us(manifest.committed_us),
        "frontier": str(manifest.token if pause is None else Token(pause.frontier)),
        "behind": behind,
        "kept_ticks": [kept[0], kept[-1]],
        "runs": len(runs),
        "weighted_rows": sum(run.rows for run in runs),
        "bytes": sum(run.bytes for run in runs),
        "state_at": manifests.address(),
        "watermark": late_rows.shown_watermark(manifest, name),
        "late_rows": late_rows.describe(manifest, name, names),
    }
