"""Options of every verb: the home, and JSON.

What it is: the shared options, and ``opened``, which opens the home.
Invariants: ``--home`` may stand before or after the verb (the latter wins), then HEADWATER_HOME, then
``./headwater-data``; a reading verb never creates a home. Heavy imports wait until a home is opened, so ``--help`` is
fast.
Not here: options of a single verb.
Read next: ``cli/log/topic_commands.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli import completions
from headwater.errors import InvalidDeclaration

if TYPE_CHECKING:
    from headwater.log.home import Log

HOME_VARIABLE = "HEADWATER_HOME"
HOME_DEFAULT = "./headwater-data"

HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="DIR",
        help=f"The home directory; default: ${HOME_VARIABLE}, then {HOME_DEFAULT}.",
        show_default=False,
    ),
]
TopicArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The topic's name.", show_default=False, autocompletion=completions.topics)
]
AcceptLossOption = Annotated[
    bool, typer.Option("--accept-loss", help="Go on without rows that retention dropped before a tick took them.")
]
KeyFileOption = Annotated[
    Path | None,
    typer.Option("--key-file", metavar="FILE", help="The key of encrypted backups, in a file.", show_default=False),
]
KeyCommandOption = Annotated[
    str | None,
    typer.Option("--key-command", metavar="COMMAND", help="A command that writes that key.", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON, for programs.")]

# What stood before the verb: headwater --home DIR topic ls.
home_before_verb: ContextVar[Path | None] = ContextVar("home_before_verb", default=None)


def home_of(home: Path | None) -> Path:
    """The home a verb works on: its own option, the one before the verb, the environment, the default."""
    return home or home_before_verb.get() or Path(os.environ.get(HOME_VARIABLE) or HOME_DEFAULT)


@contextmanager
def opened(home: Path | None, *, create: bool = False) -> Iterator[Log]:
    """The log in the home, closed at the end. Without ``create``, a home that is not there is an error."""
    from headwater.log.home import Log

    path = home_of(home) if create else require_home(home_of(home))
    with Log(path, create=create) as log:
        yield log


def require_home(path: Path) -> Path:
    """The same path, if there is a home."""
    from headwater.log.catalog.home_folder import FORMAT_FILE

    if not (path.expanduser() / FORMAT_FILE).exists():
        raise InvalidDeclaration(
            f"no Headwater home at {path}",
            detail=None if path.exists() else "There is no such directory.",
            hint=f"Give its path with --home or {HOME_VARIABLE}; `headwater topic create` makes a new one.",
            home=str(path),
        )
    return path
