"""Output of the command line: tables for people, JSON for programs.

What it is: the two consoles, tables, JSON documents, errors in three parts, and sparklines.
Invariants: results go to stdout, everything else (errors, progress, questions) to stderr; with ``--json`` stdout holds
one document, and an error is one document on stderr; colour only on a terminal. A piped table is never cut.
Not here: the texts (the verbs); rows of a topic (``cli/log/tail.py``).
Read next: ``main.py``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError, Rejected

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPED_WIDTH = 1000
SPARKS = "▁▂▃▄▅▆▇█"
EXIT_INTERRUPTED = 130

# The columns of a list's table: the heading, and a key of the entries or the function that makes the cell.
ListColumns = dict[str, str | Callable[[Any], Any]]


def console(*, stderr: bool = False) -> Console:
    """A rich console on stdout or stderr. Not on a terminal, lines are not wrapped."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else PIPED_WIDTH, highlight=False, emoji=False)


def say(text: str) -> None:
    """One line of result for people; ``text`` may hold rich markup."""
    console().print(text)


def write_json(document: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(document, default=str, ensure_ascii=False, indent=2) + "\n")


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None) -> Table:
    """A plain table; a column whose name begins with ``>`` is aligned to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        right = name.startswith(">")
        made.add_column(name.removeprefix(">"), justify="right" if right else "left", header_style="dim", no_wrap=right)
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text("" if cell is None else str(cell)) for cell in row))
    return made


def show_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None) -> None:
    """Print a table on stdout."""
    console().print(table(columns, rows, title=title))


def thousands(name: str) -> Callable[[Any], str]:
    """A cell with the number under this key, as in 1,234."""
    return lambda each: f"{each[name]:,}"


def answer(document: Any, sentence: str, *, as_json: bool) -> None:
    """The result of a command: one document for programs, or one sentence for people."""
    if as_json:
        write_json(document)
    else:
        say(sentence)


def answer_list(found: Sequence[Any], columns: ListColumns, *, empty: str, as_json: bool) -> None:
    """A list: one document for programs, or a table for people, and ``empty`` instead of an empty one."""
    if as_json:
        write_json(found)
    elif not found:
        say(empty)
    else:
        makers = [made if callable(made) else itemgetter(made) for made in columns.values()]
        show_table(list(columns), [[made(each) for made in makers] for each in found])


def show_facts(facts: Iterable[tuple[str, Any]]) -> None:
    """Print names and values, one a line, the names aligned."""
    listed = [(name, value) for name, value in facts if value is not None]
    width = max(len(name) for name, _ in listed)
    out = console()
    for name, value in listed:
        out.print(f"[dim]{name:<{width}}[/dim]  ", end="")
        out.print(str(value), markup=False, soft_wrap=True)


def show_error(error: HeadwaterError, *, as_json: bool) -> None:
    """An error on stderr: message, detail and hint in three colours, or one JSON document."""
    if as_json:
        sys.stderr.write(json.dumps(error.to_dict(), default=str, ensure_ascii=False) + "\n")
        return
    from rich.text import Text

    out = console(stderr=True)
    out.print(Text.assemble(("error: ", "bold red"), (error.message, "bold")), soft_wrap=True)
    detail = error.detail
    if detail is None and isinstance(error, Rejected):  # what the rule of an aggregate says beside its reason
        detail = ", ".join(f"{name}: {value}" for name, value in error.data.items())
    if detail:
        out.print(Text(f"  {detail}"), soft_wrap=True)
    if error.hint:
        out.print(Text.assemble(("  hint: ", "cyan"), (error.hint, "cyan")), soft_wrap=True)


def sparkline(values: Sequence[float], *, width: int) -> str:
    """The last values as a small drawing.

    >>> sparkline([0, 1, 2, 4, 8], width=4)
    '▂▃▅█'
    """
    shown = list(values)[-width:]
    top = max(shown, default=0) or 1
    return "".join(SPARKS[min(7, max(0, round(value / top * 7)))] for value in shown)


def abandon_stdout() -> None:
    """The reader of our output has closed it: discard the interpreter's last flush."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    finally:
        os.close(nowhere)
