"""``headwater process``: ls, show, request, retry, run.

What it is: the verbs on processes of an app's file, and on violations of its constraints that were refused.
Invariants: ``request`` writes one event; only ``run`` carries requests out here, others wait for the app that runs.
Not here: running (``aggregates/processes/process_run.py``). Read next: that; ``docs/processes.md``.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from headwater.cli.app_argument import AppFileArgument, app_of
from headwater.cli.command_options import JsonOption
from headwater.cli.output import ListColumns, answer, answer_list, say, show_facts, show_table, write_json
from headwater.cli.processes.request_words import DataOption, RequestIdOption, WordsArgument, request_of

app = typer.Typer(help="Processes: requests that take several steps over several aggregates.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The process.", show_default=False)]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The request's id.", show_default=False)]
WaitOption = Annotated[
    str | None, typer.Option("--wait", metavar="TIME", help="Wait so long for its end, as in 30s.", show_default=False)
]


@app.command("ls")
def ls(
    file: AppFileArgument,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Its requests.", show_default=False)] = None,
    status: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", help="Only those, as in stuck.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List an app's processes, with how many of their requests are open; or the requests of one of them.

    [cyan]headwater process ls bank.py[/cyan]
    [cyan]headwater process ls bank.py transfer --status stuck[/cyan]
    """
    columns: ListColumns
    with app_of(file) as declared:
        if name is not None:
            found = [each.to_dict() for each in declared.get_process(name).requests(status)]
            columns = {"id": "request_id", "status": "status", "request": _request, "reason": _reason}
            answer_list(found, columns, empty="no such requests", as_json=as_json)
            return
        listed = [_summary(each) for each in declared.processes.values()]
    columns = {"process": "process", "declared": "declared", **{f">{each}": each for each in COUNTED}}
    answer_list(listed, columns, empty='no processes; declare one: @app.process("…", request="…")', as_json=as_json)


COUNTED = ("running", "compensating", "stuck", "finished", "failed", "expired")


def _summary(process: Any) -> dict[str, Any]:
    counts = dict.fromkeys(COUNTED, 0)
    for each in process.requests():
        counts[each.status] += 1
    return {"process": process.name, "declared": process.location, **counts}


def _request(each: dict[str, Any]) -> str:
    return json.dumps(each["request"], default=str, ensure_ascii=False)


def _reason(each: dict[str, Any]) -> str:
    return each["reason"] or ""


@app.command("show")
def show(file: AppFileArgument, name: NameArgument, id: IdArgument, as_json: JsonOption = False) -> None:
    """Show how a request stands: its steps, and why it ended.

    [cyan]headwater process show bank.py transfer t-1[/cyan]
    """
    with app_of(file) as declared:
        found = declared.get_process(name).get(id).to_dict()
    if as_json:
        write_json(found)
        return
    facts = [(key, found[key]) for key in ("process", "request_id", "status", "reason", "result", "deadline")]
    show_facts([(key, value) for key, value in facts if value is not None])
    show_facts([("request", _request(found))])
    rows = [
        (each["number"], each["status"], each["aggregate"], each["id"], each["command"], each["arguments"])
        for each in found["steps"]
    ]
    if rows:
        show_table([">step", "status", "aggregate", "id", "command", "arguments"], rows)


@app.command("request")
def request(
    file: AppFileArgument,
    name: NameArgument,
    words: WordsArgument = None,
    data: DataOption = None,
    request_id: RequestIdOption = None,
    wait: WaitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a request of a process. The app that runs carries it out; without --wait, only its id is told.

    [cyan]headwater process request bank.py transfer source=7 target=9 cents=500 --request-id t-1 --wait 30s[/cyan]
    """
    with app_of(file) as declared:
        process = declared.get_process(name)
        asked = process.from_json(request_of(process.columns, words or [], data))
        handle = process.request(asked, request_id=request_id)
        found = handle.get() if wait is None else handle.wait(wait)
    again = " (it was made before)" if handle.repeated else ""
    because = f": {found.reason}" if found.reason else ""
    said = {**found.to_dict(), "repeated": handle.repeated, "token": str(handle.token)}
    answer(said, f"request {found.request_id}{again} is {found.status}{because}", as_json=as_json)


@app.command("retry")
def retry(file: AppFileArgument, name: NameArgument, id: IdArgument, as_json: JsonOption = False) -> None:
    """Let a stuck request be tried again; or, of a constraint, a violation whose compensation was refused.

    [cyan]headwater process retry bank.py transfer t-1[/cyan]
    """
    with app_of(file) as declared:
        if name in declared.constraints:
            declared.get_constraint(name).retry(id)
            answer({"id": id, "retried": True}, f"violation {id} will be tried again", as_json=as_json)
            return
        found = declared.get_process(name).retry(id)
    answer(found.to_dict(), f"request {id} is {found.status}, and will be tried again", as_json=as_json)


@app.command("run")
def run(file: AppFileArgument, as_json: JsonOption = False) -> None:
    """Carry out what has been requested and compensate what was found, then end: for cron. No Spark is started.

    [cyan]headwater process run bank.py[/cyan]
    """
    with app_of(file) as declared:
        ended = {name: process.drain() for name, process in declared.processes.items()}
        ended |= {name: constraint.drain() for name, constraint in declared.constraints.items()}
        ended |= {name: answering.drain() for name, answering in declared.answering.items()}
    if as_json:
        write_json(ended)
        return
    for name, count in ended.items():
        say(f"{name}: {count:,} done")
