"""``headwater inlet``: run, ls.

What it is: ``run`` opens the inlets of an app in this process, without Spark; ``ls`` shows their counters over all
processes and runs.
Invariants: ``run`` ends with Ctrl-C or SIGTERM after received messages are in the log; ``ls`` starts nothing and works
while another process runs them.
Not here: an inlet (``inlets/inlet.py``).
Read next: ``inlets/inlet.py``.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import typer

from headwater.cli.app_argument import AppFileArgument, app_of
from headwater.cli.command_options import JsonOption
from headwater.cli.output import ListColumns, answer_list, thousands
from headwater.errors import InvalidDeclaration

if TYPE_CHECKING:
    from headwater.app import App
    from headwater.inlets.inlet import Inlet

app = typer.Typer(help="Inlets: foreign messages into topics.", no_args_is_help=True)

LOOK_AGAIN_S = 1.0


@app.command("run")
def run(file: AppFileArgument, as_json: JsonOption = False) -> None:
    """Receive messages until Ctrl-C, without Spark.

    [cyan]headwater inlet run shop.py[/cyan]
    """
    with app_of(file) as declared:
        _require_inlets(declared)
        ended = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
        with declared.inlets as inlets:
            for inlet in inlets:
                _tell(inlet, as_json=as_json)
            problems: dict[str, str | None] = {}
            while not ended.wait(LOOK_AGAIN_S):
                for inlet in inlets:
                    if inlet.problem != problems.get(inlet.name):
                        problems[inlet.name] = inlet.problem
                        _tell(inlet, as_json=as_json)
        for inlet in inlets:
            _tell(inlet, as_json=as_json, ended=True)


@app.command("ls")
def ls(file: AppFileArgument, as_json: JsonOption = False) -> None:
    """List the inlets of an app with their counters over all runs.

    [cyan]headwater inlet ls shop.py --json[/cyan]
    """
    from headwater.inlets.counters import stored

    with app_of(file) as declared:
        known = stored(declared.log.local, declared.name, [inlet.name for inlet in declared.inlets])
        found = [
            {"inlet": each.name, "kind": each.kind, "topic": each.topic.name, **known[each.name]}
            for each in declared.inlets
        ]
    counted = ("received", "appended", "repeated", "refused", "dropped")
    columns: ListColumns = {
        **{name: name for name in ("inlet", "kind", "topic")},
        **{f">{name}": thousands(name) for name in counted},
        ">lag": lambda each: "" if each["lag"] is None else f"{each['lag']:,}",
        "address": "address",
        "last counted": lambda each: each["counted_at"] or "never",
        "problem": "problem",
    }
    answer_list(found, columns, empty="no inlets are declared", as_json=as_json)


def _require_inlets(declared: App) -> None:
    if not len(declared.inlets):
        raise InvalidDeclaration(
            f'app "{declared.name}" declares no inlet', hint='Declare one: app.inlet("github", hw.inlets.Webhook(…)).'
        )


def _tell(inlet: Inlet, *, as_json: bool, ended: bool = False) -> None:
    counted: dict[str, Any] = inlet.counters.to_dict()
    if as_json:
        facts = {"inlet": inlet.name, "kind": inlet.kind, "topic": inlet.topic.name, "address": inlet.address}
        sys.stdout.write(
            json.dumps({**facts, "problem": inlet.problem, "lag": inlet.lag, "ended": ended, **counted}) + "\n"
        )
    elif ended:
        numbers = ", ".join(f"{number:,} {name}" for name, number in counted.items() if number)
        sys.stdout.write(f"{inlet.name}: {numbers or 'nothing came'}\n")
    else:
        problem = f": {inlet.problem}" if inlet.problem else ""
        sys.stdout.write(f"{inlet.name} ({inlet.kind}) {inlet.address or ''} into {inlet.topic.name}{problem}\n")
    sys.stdout.flush()
