"""``headwater mirror``, ``headwater promote`` and ``headwater migrate``: one log copied into another.

What it is: the verbs over ``LogMirror``: progress for people, a line of JSON a second for programs.
Invariants: both may be killed and run again: they go on where they were. ``migrate`` ends with status 0 only when every
topic is equal in both logs, and with 5 where one is not. A home that was moved takes no more appends to these topics;
``mirror`` changes nothing in the source.
Not here: the work (``upkeep/log_mirror.py``).
Read next: ``upkeep/log_mirror.py``; ``docs/mirror.md``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.command_options import JsonOption, require_home
from headwater.cli.connectors.sync_command import asked_to_stop
from headwater.cli.output import console, say, show_table, write_json
from headwater.errors import Corruption, HeadwaterError, Misuse

if TYPE_CHECKING:
    from headwater.log.contract import EventLog
    from headwater.upkeep.log_mirror import LogMirror, MirrorProgress

TOLD_S = 1.0
ROUNDS_MAX = 100

SourceArgument = Annotated[
    str, typer.Argument(metavar="SOURCE", help="The log that is read: a home, or kafka://….", show_default=False)
]
TargetOption = Annotated[
    str, typer.Option("--to", metavar="TARGET", help="The log that is written: a home, or kafka://….")
]
TopicsOption = Annotated[str, typer.Option("--topics", help="Comma-separated; default: all but captured tables.")]


def mirror(
    source: SourceArgument,
    to: TargetOption,
    topics: TopicsOption = "",
    once: Annotated[bool, typer.Option("--once", help="End when everything that is there now is copied.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy the topics of one log into another, and go on with what comes, until Ctrl-C.

    Run it again to go on where it was: nothing is missing then and nothing there twice. A Kafka that does not answer is
    waited for: the home of a machine that is not always online takes rows meanwhile.

    [cyan]headwater mirror shop-data --to kafka://localhost:9092?prefix=shop.[/cyan]
    [cyan]headwater mirror kafka://localhost:9092?prefix=shop. --to copy --once[/cyan]
    """
    with asked_to_stop() as asked, _mirrored(source, to, topics, as_json=as_json, patient=not once) as (copy, told):
        if once:
            copy.catch_up(asked.is_set)
        else:
            copy.follow(asked.is_set)
        told.end(ended=True)
    if not as_json:
        say("stopped; run the same command to continue" if asked.is_set() else "everything is copied")


def migrate(source: SourceArgument, to: TargetOption, topics: TopicsOption = "", as_json: JsonOption = False) -> None:
    """Copy the topics of one log into another, and compare every row; for a move from a home to Kafka, or back.

    A home refuses appends from then on, and says where its topics are. Of a log on Kafka, stop the writers first.
    Leaves with status 0 when all is equal, with 5 when something is not: then the home takes appends as before.

    [cyan]headwater migrate shop-data --to kafka://localhost:9092?prefix=shop.[/cyan]
    [cyan]headwater migrate kafka://localhost:9092?prefix=shop. --to back --json[/cyan]
    """
    with asked_to_stop() as asked, _mirrored(source, to, topics, as_json=as_json) as (copy, told):
        for _ in range(ROUNDS_MAX):
            if not copy.catch_up(asked.is_set):
                break
        else:
            raise Misuse(
                f"rows come to the log at {copy.source.shown} all the time",
                hint="Stop what writes to it; or keep a copy with `headwater mirror`.",
            )
        if asked.is_set():
            raise typer.Exit(130)
        fenced = copy.hand_over(copy.target.shown)
        told.end()
        found = copy.compare()
        equal = all(each.equal for each in found)
        if not equal:
            copy.take_back()
        _show(copy, [each.to_dict() for each in found], fenced=fenced and equal, as_json=as_json)
    if not equal:
        raise typer.Exit(Corruption.exit_status)


def promote(
    log: Annotated[str, typer.Argument(metavar="LOG", help="The copy: a home, or kafka://….", show_default=False)],
    topics: TopicsOption = "",
    as_json: JsonOption = False,
) -> None:
    """Make a copy that `headwater mirror` has written a log of its own, when its source is lost or given up.

    No mirror writes to its topics any more, also one that stalled and goes on later. There is no way back.

    [cyan]headwater promote copy[/cyan]
    [cyan]headwater promote kafka://localhost:9092?prefix=shop. --topics orders --json[/cyan]
    """
    from headwater.upkeep.mirror_position import promote as promoted_topics

    with _opened(log, create=False) as opened:
        found = promoted_topics(opened, _names(topics))
        if as_json:
            write_json({"log": opened.shown, "topics": [each.to_dict() for each in found]})
            return
        rows = [
            (each.topic, str(each.epoch), " ".join(f"{number}:{at}" for number, at in each.copied.items()))
            for each in found
        ]
        show_table(["topic", ">epoch", "copied up to (offsets of the source)"], rows)
        say(f"{opened.shown} is a log of its own: open the apps over it")


def _show(copy: LogMirror, found: list[dict[str, Any]], *, fenced: bool, as_json: bool) -> None:
    equal, left_out = all(each["equal"] for each in found), copy.left_out()
    if as_json:
        write_json(
            {
                "source": copy.source.shown,
                "target": copy.target.shown,
                "equal": equal,
                "fenced": fenced,
                "topics": found,
                "left_out": left_out,
            }
        )
        return
    rows = [
        (each["topic"], f"{each['rows']:,}", f"{each['rows_there']:,}", "yes" if each["equal"] else "NO")
        for each in found
    ]
    show_table(["topic", ">rows", ">rows there", "equal"], rows)
    if left_out:
        say(f"left out: {', '.join(left_out)}")
    if fenced:
        say(f"who writes to {copy.source.shown} is told from now on to write to {copy.target.shown}")
    say("[bold green]all is equal[/bold green]" if equal else "[bold red]the logs differ[/bold red]")


class _Told:
    """Progress: a line of JSON for programs, one line that changes for people; each at most once a second."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._at = time.monotonic()
        self._last: dict[str, MirrorProgress] = {}
        self._waits_for: str | None = None

    def waits_for(self, error: HeadwaterError | None) -> None:
        """A log does not answer, or does again: told once."""
        said = None if error is None else error.message
        if said == self._waits_for:
            return
        self._waits_for = said
        if self._as_json:
            sys.stderr.write(json.dumps({"waiting": said}) + "\n")
            sys.stderr.flush()
        else:
            console(stderr=True).print(f"waiting: {said}" if said else "it answers again", markup=False)

    def __call__(self, progress: MirrorProgress) -> None:
        self._last[progress.topic] = progress
        if time.monotonic() - self._at >= TOLD_S:
            self._at = time.monotonic()
            self._tell()

    def end(self, **more: Any) -> None:
        """What was copied in all."""
        if self._last or more:
            self._tell(**more)

    def _tell(self, **more: Any) -> None:
        rows = sum(each.rows for each in self._last.values())
        left = sum(each.left for each in self._last.values())
        if self._as_json:
            # Progress is not the result: with --json that is one document on stdout.
            stream = sys.stdout if more else sys.stderr
            stream.write(json.dumps({"rows": rows, "left": left, **more}) + "\n")
            stream.flush()
        elif rows:
            console(stderr=True).print(f"{rows:,} rows copied, {left:,} offsets left", markup=False)


@contextmanager
def _mirrored(
    source: str, to: str, topics: str, *, as_json: bool, patient: bool = False
) -> Iterator[tuple[LogMirror, _Told]]:
    from headwater.upkeep.log_mirror import LogMirror

    if source.rstrip("/") == to.rstrip("/"):
        raise Misuse(f"the log at {source} cannot be copied into itself", hint="Name another one: --to TARGET.")
    told = _Told(as_json=as_json)
    with _opened(source, create=False) as read, _opened(to, create=True) as written:
        yield (
            LogMirror(
                read, written, topics=_names(topics), on_progress=told, on_waiting=told.waits_for, patient=patient
            ),
            told,
        )


def _names(topics: str) -> list[str]:
    return [name.strip() for name in topics.split(",") if name.strip()]


@contextmanager
def _opened(address: str, *, create: bool) -> Iterator[EventLog]:
    from headwater.log.home import Log
    from headwater.log_address import is_remote

    if is_remote(address):
        from headwater.kafka.kafka_log import KafkaLog

        with KafkaLog(address) as log:
            yield log
    else:
        path = Path(address) if create else require_home(Path(address))
        with Log(path, create=create) as home:
            yield home
