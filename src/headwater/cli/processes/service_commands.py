"""``headwater service``: ls, ask.

What it is: the verbs on services of an app's file.
Invariants: ``ask`` writes one request, and waits; who answers is the app that runs. Status 4 when nobody has in time.
Not here: answering (``aggregates/services/service_runner.py``). Read next: that; ``docs/processes.md``.
"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from headwater.cli.app_argument import AppFileArgument, app_of
from headwater.cli.command_options import JsonOption
from headwater.cli.output import ListColumns, answer, answer_list, thousands
from headwater.cli.processes.request_words import DataOption, RequestIdOption, WordsArgument, request_of

app = typer.Typer(help="Services: requests that are answered once, through the log.", no_args_is_help=True)


@app.command("ls")
def ls(file: AppFileArgument, as_json: JsonOption = False) -> None:
    """List an app's services: their columns, and how many requests and replies there are.

    [cyan]headwater service ls shop.py[/cyan]
    """
    from headwater.log.schema.ddl import to_ddl

    with app_of(file) as declared:
        found = [
            {
                "service": each.name,
                "declared": each.location,
                "by": "view" if each.table is not None else "function",
                "request": to_ddl(each.request_columns),
                "reply": to_ddl(each.reply_columns),
                "key": list(each.key),
                "requests": sum(each.requests.end_offsets().values()),
                "replies": sum(each.replies.end_offsets().values()),
            }
            for each in declared.services.values()
        ]
    columns: ListColumns = {
        **{name: name for name in ("service", "by", "request", "reply")},
        "key": lambda each: ", ".join(each["key"]),
        ">requests": thousands("requests"),
        ">replies": thousands("replies"),
    }
    empty = 'no services; declare one: @app.service("…", request="…", reply="…")'
    answer_list(found, columns, empty=empty, as_json=as_json)


@app.command("ask")
def ask(
    file: AppFileArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The service.", show_default=False)],
    words: WordsArgument = None,
    data: DataOption = None,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="The deadline of the request, as in 30s.")
    ] = "5s",
    request_id: RequestIdOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a service, and wait for its reply. The app that runs answers it.

    [cyan]headwater service ask shop.py quote item=cup amount=3 --timeout 10s[/cyan]
    """
    with app_of(file) as declared:
        service = declared.get_service(name)
        asked = service.from_json(request_of(service.request_columns, words or [], data))
        id = service.post(asked, timeout=timeout, request_id=request_id)
        reply = service.wait(id, timeout)
        value = reply.value()
    text = "nothing" if value is None else json.dumps(value, default=str, ensure_ascii=False)
    answer(reply.to_dict(), text, as_json=as_json)
