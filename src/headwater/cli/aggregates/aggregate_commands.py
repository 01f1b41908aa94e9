"""``headwater aggregate``: ls, history, show, send, replay, verify.

What it is: the verbs on aggregates. ``ls`` and ``history`` read a home alone; the others run the code of an app's file.
Invariants: only ``send`` writes. Status 2 for a rejected command, 3 for a version conflict, and 5 when ``verify`` finds
a command that is decided otherwise today, or events that cannot be replayed.
Not here: deciding (``aggregates/aggregate_repository.py``), comparing (``aggregates/replay_check.py``).
Read next: ``argument_words.py``; ``docs/aggregates.md``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli import completions
from headwater.cli.aggregates.argument_words import arguments_of
from headwater.cli.app_argument import AppFileArgument, app_of
from headwater.cli.command_options import HomeOption, JsonOption, opened
from headwater.cli.output import ListColumns, answer_list, console, say, show_facts, show_table, thousands, write_json
from headwater.errors import Corruption, Misuse, ReplayFailed

if TYPE_CHECKING:
    from headwater.aggregates.aggregate_repository import AggregateRepository

SHOWN_MAX = 1000  # events in a table, unless more are asked for

app = typer.Typer(
    help="Aggregates: commands are decided by their classes, and their events are the truth.", no_args_is_help=True
)

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The aggregate's name.", show_default=False, autocompletion=completions.histories
    ),
]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The aggregate's id.", show_default=False)]


@app.command("ls")
def ls(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the histories of a home: aggregates and event stores.

    [cyan]headwater aggregate ls[/cyan]
    """
    from headwater.aggregates.stored_history import histories

    with opened(home) as log:
        found = [{"name": name, "kind": history.kind, **history.counts()} for name, history in histories(log).items()]
    columns: ListColumns = {
        "name": "name",
        "kind": "kind",
        ">ids": thousands("ids"),
        ">events": thousands("events"),
        ">rejected": thousands("rejected"),
        "types": lambda each: ", ".join(f"{name} {count:,}" for name, count in each["types"].items()),
    }
    empty = "no aggregates yet; an app's file declares them: app.aggregate(…)"
    answer_list(found, columns, empty=empty, as_json=as_json)


@app.command("history")
def history(
    name: NameArgument,
    id: IdArgument,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, help="Only the newest so many; default: 1000, and all with --json.", show_default=False
        ),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the life of one aggregate: its events, its rejected commands, and who sent them.

    [cyan]headwater aggregate history account 7[/cyan]
    [cyan]headwater aggregate history account 7 --json | jq '.[].type'[/cyan]
    """
    from headwater.aggregates.stored_history import history_of

    most = SHOWN_MAX if limit is None and not as_json else limit
    with opened(home) as log:
        life = history_of(log, name).life(id, limit=None if most is None else most + 1)
    earlier = most is not None and len(life) > most
    life = life[1:] if earlier else life
    if as_json:
        write_json(life)
        return
    rows = [
        (each["version"], _time(each["at"]), each["type"], _told(each), each["actor"], each["request_id"])
        for each in life
    ]
    show_table([">version", "at", "event", "data", "actor", "request"], rows)
    if earlier:
        say(f"these are the newest {most:,}; --limit shows more of them")


def _time(text: str) -> str:
    return text.replace("+00:00", "Z")


def _told(event: dict[str, Any]) -> str:
    """What an event's row says: its data, why a command was rejected, what became of a tentative event."""
    if event["rejected"]:
        command, rejected = event["command"], event["rejected"]
        sent = "" if command is None else f"{command['name']} {_json(command['arguments'])}: "
        return f"{sent}{rejected['reason']} {_json(rejected['data'])}".rstrip()
    said = _json(event["data"])
    if event["settles"] is not None:
        said = f"event {event['settles']} {said}".rstrip()
    if event["tentative"] is not None:
        tentative = event["tentative"]
        said += f"  ({tentative['became']}; until {_time(tentative['deadline'])})"
    return said


def _json(values: Any) -> str:
    return json.dumps(values, ensure_ascii=False, default=str) if values else ""


@app.command("show")
def show(
    file: AppFileArgument,
    name: NameArgument,
    id: IdArgument,
    version: Annotated[
        int | None,
        typer.Option(
            "--version", metavar="N", min=0, help="After its first N events; default: now.", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the state of one aggregate, as of now or after some of its events.

    [cyan]headwater aggregate show bank.py account 7[/cyan]
    [cyan]headwater aggregate show bank.py account 7 --version 3 --json[/cyan]
    """
    from headwater.aggregates.state_values import json_values, state_values
    from headwater.aggregates.stored_history import history_of, pending_of

    with app_of(file) as opened_app:
        repository = opened_app.get_aggregate(name)
        history = history_of(opened_app.log, name)
        history.events(id, limit=1)  # an id without events is an error, not an empty state
        state = json_values(state_values(repository.get(id, version=version)))
        found = {
            "aggregate": name,
            "id": id,
            "version": repository.version(id) if version is None else version,
            "state": state,
            "pending": pending_of(history.life(id)) if version is None and repository.has_tentative else [],
        }
    if as_json:
        write_json(found)
        return
    show_facts([(key, found[key]) for key in ("aggregate", "id", "version")])
    show_table(["attribute", "value"], [(key, _text(value)) for key, value in state.items()])
    for each in found["pending"]:
        tentative = each["tentative"]
        say(f"event {each['version']} ({each['type']}) is {tentative['became']} until {_time(tentative['deadline'])}")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@app.command("send")
def send(
    file: AppFileArgument,
    name: NameArgument,
    id: IdArgument,
    command: Annotated[str, typer.Argument(metavar="COMMAND", help="The command.", show_default=False)],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Its arguments.", show_default=False)
    ] = None,
    arguments: Annotated[
        str | None,
        typer.Option(
            "--arguments", metavar="JSON", help="Arguments as a JSON object; - reads stdin.", show_default=False
        ),
    ] = None,
    request_id: Annotated[
        str | None,
        typer.Option("--request-id", metavar="ID", help="Sent again, it gives the first answer.", show_default=False),
    ] = None,
    expected: Annotated[
        int | None,
        typer.Option("--expected", metavar="VERSION", min=0, help="Refuse any other version.", show_default=False),
    ] = None,
    actor: Annotated[
        str | None, typer.Option("--actor", metavar="NAME", help="Who sends it; stored with it.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Send a command to an aggregate. Status 2 when a rule rejects it, 3 when the version is not the expected one.

    [cyan]headwater aggregate send bank.py account 7 deposit cents=500 --request-id r-1[/cyan]
    [cyan]headwater aggregate send bank.py account 7 withdraw --arguments '{"cents": 20}' --expected 1[/cyan]
    """
    from headwater.log.schema.event_metadata import Metadata

    document = sys.stdin.read() if arguments == "-" else arguments
    with app_of(file) as opened_app:
        repository = opened_app.get_aggregate(name)
        values = arguments_of(repository.declared.command(command).function, words or [], document)
        outcome = repository.send(
            id,
            command,
            request_id=request_id,
            expected=expected,
            metadata=None if actor is None else Metadata(actor=actor),
            **values,
        )
    if as_json:
        write_json(outcome.to_dict())
        return
    for event in outcome.events:
        console().print(f"{event.version}  {event.type} {_json(event.data)}".rstrip(), markup=False, soft_wrap=True)
    what = "was sent before; this is the first answer" if outcome.repeated else "accepted"
    say(f"{what}; version {outcome.version}" + ("" if outcome.events else ", nothing was to be done"))


@app.command("replay")
def replay(file: AppFileArgument, name: NameArgument, id: IdArgument, as_json: JsonOption = False) -> None:
    """Show the state after each event of an aggregate: what every event has changed.

    [cyan]headwater aggregate replay bank.py account 7[/cyan]
    """
    from headwater.aggregates.stored_history import history_of

    with app_of(file) as opened_app:
        repository = opened_app.get_aggregate(name)
        events = history_of(opened_app.log, name).events(id)
        steps = list(_steps(repository, events))
    if as_json:
        write_json(steps)
        return
    rows = []
    before: dict[str, Any] = {}
    for each in steps:
        changes = {key: value for key, value in each["state"].items() if before.get(key, ...) != value}
        gone = [key for key in before if key not in each["state"]]
        said = [f"{key} = {_text(value)}" for key, value in changes.items()] + [f"{key} is gone" for key in gone]
        rows.append((each["version"], each["type"], _json(each["data"]), ", ".join(said)))
        before = each["state"]
    show_table([">version", "event", "data", "changes of the state"], rows)


def _steps(repository: AggregateRepository, events: Iterable[Any]) -> Iterator[dict[str, Any]]:
    from headwater.aggregates.aggregate_states import LoadedState, apply_recorded
    from headwater.aggregates.state_values import json_values, state_values

    loaded = LoadedState(repository.declared.new())
    for event in events:
        if event.version is not None:
            apply_recorded(repository.declared, loaded, event)
            state = json_values(state_values(loaded.instance))
            yield {"version": event.version, "type": event.type, "data": json_values(event.data), "state": state}


@app.command("verify")
def verify(
    file: AppFileArgument,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Only this aggregate; else all of the app.",
            show_default=False,
            autocompletion=completions.histories,
        ),
    ] = None,
    id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Only this id; else all.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Decide every recorded command again, and compare. Status 5 when one gives other events than those in the log.

    [cyan]headwater aggregate verify bank.py[/cyan]
    [cyan]headwater aggregate verify bank.py account 7 --json[/cyan]
    """
    from headwater.aggregates.stored_history import history_of

    with app_of(file) as opened_app:
        if name is not None:
            repositories = [opened_app.get_aggregate(name)]
        else:
            repositories = list(opened_app.aggregates.values())
        if not repositories:
            raise Misuse(f"{file} declares no aggregates", hint="Declare one: app.aggregate(…).")
        if id is not None:
            history_of(opened_app.log, repositories[0].name).events(id)  # an id without events is an error
        found = [_verified(each, id) for each in repositories]
    if as_json:
        write_json(found)
    else:
        _show_verified(found)
    if any(each["differences"] or each["failures"] for each in found):
        raise typer.Exit(Corruption.exit_status)


def _verified(repository: AggregateRepository, id: str | None) -> dict[str, Any]:
    from headwater.aggregates.replay_check import ReplayCheck

    check = ReplayCheck(repository)
    differences, failures = [], []
    ids = sorted(repository.ids()) if id is None else [id]
    for each in _with_progress(ids, repository.name):
        try:
            differences += [{**found.to_dict(), "sentence": str(found)} for found in check.stream(each)]
        except ReplayFailed as error:
            failures.append({"id": each, **error.to_dict()})
    return {"aggregate": repository.name, "ids": len(ids), "differences": differences, "failures": failures}


def _with_progress(ids: list[str], name: str) -> Iterator[str]:
    """The ids, with a bar on a terminal while they are gone through."""
    from rich.progress import track

    out = console(stderr=True)
    yield from track(ids, f"verifying {name}", console=out, transient=True, disable=not out.is_terminal)


def _show_verified(found: list[dict[str, Any]]) -> None:
    out = console()
    for each in found:
        if not each["differences"] and not each["failures"]:
            say(f"{each['aggregate']}: {each['ids']:,} checked, every command gives what is in the log")
            continue
        wrong = {entry["id"] for entry in (*each["differences"], *each["failures"])}
        say(f"{each['aggregate']}: {len(wrong):,} of {each['ids']:,} differ")
        for entry in each["differences"]:
            out.print(f"  {entry['sentence']}", markup=False, soft_wrap=True)
        for entry in each["failures"]:
            out.print(f"  {entry['message']}", markup=False, soft_wrap=True)
            if entry["hint"]:
                out.print(f"    {entry['hint']}", markup=False, soft_wrap=True)
