"""``headwater completion``: shell completion, including the names of a home.

What it is: the verb that prints or installs the script that typer makes for a shell.
Invariants: only ``install`` writes a file, the shell's own.
Not here: the names of a home (``completions.py``).
Read next: ``completions.py``.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.cli.command_options import JsonOption
from headwater.cli.output import say, write_json
from headwater.errors import InvalidDeclaration

PROGRAM = "headwater"
VARIABLE = "_HEADWATER_COMPLETE"


class Shell(StrEnum):
    """Whose script; ``install`` is for the shell that runs now."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    INSTALL = "install"


def completion(
    shell: Annotated[Shell, typer.Argument(help="Write its script, or install that of your own.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Let your shell complete verbs, options, and the names of topics and views.

    [cyan]headwater completion install[/cyan]
    [cyan]headwater completion bash > /etc/bash_completion.d/headwater[/cyan]
    """
    from typer import completion as scripts

    if shell is Shell.INSTALL:
        name, path = _install(scripts)
        if as_json:
            write_json({"shell": name, "installed": str(path)})
        else:
            say(f"completion for {name} is installed in {path}; it works in the next shell that you open")
        return
    script = scripts.get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=str(shell))  # type: ignore[attr-defined]
    if as_json:
        write_json({"shell": str(shell), "script": script})
    else:
        typer.echo(script)


def _install(scripts: Any) -> tuple[str, Path]:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in set(Shell) - {Shell.INSTALL}:
        raise InvalidDeclaration(
            f"the shell {name or 'of this process'} is not one that completion can be installed for",
            detail="The variable SHELL says which one you use.",
            hint="Write the script of one that is: headwater completion bash|zsh|fish.",
        )
    shell, path = scripts.install(shell=name, prog_name=PROGRAM, complete_var=VARIABLE)
    return str(shell), Path(path)


def ready() -> None:
    """Called before words are read: where a shell asks for completions, typer must know its shells."""
    if VARIABLE in os.environ:
        from typer import completion as scripts

        scripts.completion_init()  # type: ignore[attr-defined]
