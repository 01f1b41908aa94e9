"""Options of every verb: the home, the log where it is not in the home, and JSON.

What it is: the shared options; ``opened``, which opens the home, and ``opened_log``, which opens the log.
Invariants: ``--home`` may stand before or after the verb (the latter wins), then HEADWATER_HOME, then
``./headwater-data``; so may ``--log``, then HEADWATER_LOG, then the log is in the home. A reading verb never creates a
home. Heavy imports wait until a home is opened, so ``--help`` is fast.
Not here: options of a single verb.
Read next: ``cli/log/topic_commands.py``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli import completions
from headwater.errors import InvalidDeclaration

if TYPE_CHECKING:
    from headwater.log.contract import EventLog
    from headwater.log.home import Log

HOME_VARIABLE = "HEADWATER_HOME"
HOME_DEFAULT = "./headwater-data"
LOG_VARIABLE = "HEADWATER_LOG"
ADDRESS = re.compile(r"[a-z0-9+]{2,}:/")  # as a path is written, which has no two slashes

HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="DIR",
        help=f"The home directory; default: ${HOME_VARIABLE}, then {HOME_DEFAULT}.",
        show_default=False,
    ),
]
LogOption = Annotated[
    str | None,
    typer.Option(
        "--log",
        metavar="ADDRESS",
        help=f"The log, where it is not in the home: kafka://host:9092?…; default: ${LOG_VARIABLE}.",
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
log_before_verb: ContextVar[str | None] = ContextVar("log_before_verb", default=None)


def home_of(home: Path | None, *, beside_log: bool = False) -> Path:
    """The home a verb works on: its own option, the one before the verb, the environment, the default.

    ``beside_log``: the verb knows of logs elsewhere too; others refuse ``headwater --log ADDRESS VERB``.
    """
    if log_before_verb.get() is not None and not beside_log:
        raise InvalidDeclaration(
            "this verb works on a home, not on a log elsewhere", hint="Leave --log out. See: docs/kafka.md"
        )
    found = home or home_before_verb.get() or Path(os.environ.get(HOME_VARIABLE) or HOME_DEFAULT)
    if ADDRESS.match(str(found)):
        raise InvalidDeclaration(
            f"a home is a folder, and {str(found).partition('?')[0]!r} is an address",
            hint=f"The address of a log goes to --log, or {LOG_VARIABLE}, of verbs that are about topics.",
        )
    return found


@contextmanager
def opened(home: Path | None, *, create: bool = False, beside_log: bool = False) -> Iterator[Log]:
    """The log in the home, closed at the end. Without ``create``, a home that is not there is an error."""
    from headwater.log.home import Log

    path = home_of(home, beside_log=beside_log)
    path = path if create else require_home(path)
    with Log(path, create=create) as log:
        yield log


@contextmanager
def opened_log(
    home: Path | None, log: str | None, *, create: bool = False, as_json: bool = False
) -> Iterator[EventLog]:
    """The log that a verb works on, closed at the end: at an address, or in the home."""
    address = log or log_before_verb.get() or os.environ.get(LOG_VARIABLE)
    if not address:
        with opened(home, create=create, beside_log=True) as found:
            if not as_json:
                _tell_of_another_log(found)
            yield found
        return
    from headwater.log_address import remote_log

    with closing(remote_log(address, _local(home))) as remote:
        yield remote


def _local(home: Path | None) -> Log | None:
    """The home of an app whose log is elsewhere, if it is on this machine."""
    from headwater.log.home import Log

    path = home_of(home, beside_log=True)
    return Log(path, create=False, maintenance_interval=None) if _is_home(path) else None


def _tell_of_another_log(log: Log) -> None:
    """Say so when an app of this home reads topics that are elsewhere: what is shown has none of them."""
    from headwater.cli.output import console

    entries = log.local.catalog.read(
        "SELECT app, entry FROM manifest_entries WHERE kind = 'field' AND name = 'topics' AND last_tick IS NULL"
    )
    for row in entries:
        elsewhere = sorted(json.loads(row["entry"]).keys() - set(log.topic_names()))
        if elsewhere:
            console(stderr=True).print(
                f'app "{row["app"]}" reads topics that are not in this home: {", ".join(elsewhere)[:200]}. '
                f"If they are on Kafka, give the log's address: --log, or {LOG_VARIABLE}.",
                markup=False,
            )


def _is_home(path: Path) -> bool:
    from headwater.log.catalog.home_folder import FORMAT_FILE

    return (path.expanduser() / FORMAT_FILE).exists()


def require_home(path: Path) -> Path:
    """The same path, if there is a home."""
    if not _is_home(path):
        raise InvalidDeclaration(
            f"no Headwater home at {path}",
            detail=None if path.exists() else "There is no such directory.",
            hint=f"Give its path with --home or {HOME_VARIABLE}; `headwater topic create` makes a new one.",
            home=str(path),
        )
    return path
