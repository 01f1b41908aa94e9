"""``headwater attach`` and ``headwater detach``: other stores that queries of a home may read.

What it is: the verbs that remember, list and forget stores: PostgreSQL, MariaDB and MySQL, SQLite, files.
Invariants: nothing is connected to, so a store may be away when it is attached. No password is shown.
Not here: querying them (``cli/views/query_command.py``).
Read next: ``federation/attachments.py``, ``docs/federation.md``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli import completions
from headwater.cli.command_options import HomeOption, JsonOption, opened
from headwater.cli.output import ListColumns, answer, answer_list, console, thousands
from headwater.errors import InvalidDeclaration

LIST = "ls"


def attach(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="How queries call the store; `ls` lists all.", show_default=False)
    ],
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="[URL]", help="Where it is; ${NAME} in it is filled in when it is used.", show_default=False
        ),
    ] = None,
    rows_max: Annotated[
        int | None,
        typer.Option("--rows-max", min=1, help="Fetch at most so many rows of a table.", show_default="2000000"),
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION", help="For one statement.", show_default="60s")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Attach another store to this home, so that queries can read its tables; or list what is attached.

    [cyan]headwater attach crm 'postgresql://reader:$\\{CRM_PASSWORD}@db.example/crm'[/cyan]
    [cyan]headwater attach prices prices.parquet[/cyan]
    [cyan]headwater attach ls[/cyan]
    [cyan]headwater query --spark "SELECT * FROM crm.public.customers LIMIT 5"[/cyan]
    """
    if name == LIST and url is None:
        _list(home, as_json=as_json)
        return
    from headwater.cli.quantities import parse_duration_ms
    from headwater.federation.attachments import ROWS_MAX, TIMEOUT_SECONDS, Attachment, Attachments

    if url is None:
        raise InvalidDeclaration(f'no address is given for "{name}"', hint=f"Write: headwater attach {name} URL")
    seconds = TIMEOUT_SECONDS if timeout is None else parse_duration_ms(timeout) / 1000
    made = Attachment.declared(name, url, rows_max=rows_max or ROWS_MAX, timeout=seconds)
    with opened(home) as log:
        Attachments(log).add(made)
    if made.address.has_password:
        console(stderr=True).print(
            "the password is in the home's catalog now, in plain text; a variable is better: "
            "postgresql://user:${PASSWORD}@host/database",
            markup=False,
            soft_wrap=True,
        )
    table = made.name if made.address.is_one_table else f"{made.name}.…"
    sentence = f"attached {made.name} ({made.address.kind}); query it as {table} with headwater query --spark"
    answer(made.to_dict(), sentence, as_json=as_json)


def detach(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The store's name.", show_default=False, autocompletion=completions.stores),
    ],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget an attached store. The store itself is not touched.

    [cyan]headwater detach crm[/cyan]
    """
    from headwater.federation.attachments import Attachments

    with opened(home) as log:
        Attachments(log).remove(name)
    answer({"detached": name}, f"detached {name}", as_json=as_json)


def _list(home: Path | None, *, as_json: bool) -> None:
    from headwater.federation.attachments import Attachments

    with opened(home) as log:
        found = [each.to_dict() for each in Attachments(log).values()]
    columns: ListColumns = {
        "name": "name",
        "kind": "kind",
        "address": "url",
        ">rows at most": thousands("rows_max"),
        ">seconds at most": lambda each: f"{each['timeout']:g}",
    }
    empty = "nothing is attached; attach a store: headwater attach NAME URL"
    answer_list(found, columns, empty=empty, as_json=as_json)
