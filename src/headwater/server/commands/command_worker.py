"""A command worker: a process that decides clients' commands with the code of the app's file.

What it is: ``python -m headwater.server.commands.command_worker FD APP.py``, started by ``command_workers.py``: it runs
the app's file once, then answers one request after the other: send a command, settle a tentative event, show a state.
Invariants: it is expendable: what it has written is in the log, and its states in memory are copies. A request that
takes longer than its time ends the process. It starts no Spark; what the app's code prints goes to standard error.
Not here: which request goes to which process (``command_workers.py``), the loop (``server/queries/question_loop.py``).
Read next: ``command_workers.py``, ``aggregates/aggregate_repository.py``.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.aggregates.aggregate_states import NOTED
from headwater.aggregates.command_arguments import from_json
from headwater.aggregates.events.event_rows import EventDraft
from headwater.aggregates.state_values import json_values, state_values
from headwater.aggregates.stored_history import described
from headwater.app_file import app_of
from headwater.errors import HeadwaterError, Misuse, UnknownAggregate
from headwater.log.schema.event_metadata import Metadata
from headwater.server.http.renderings import JSON, Rendered
from headwater.server.queries.question_loop import answer_questions, prepare_signals

if TYPE_CHECKING:
    from headwater.aggregates.aggregate_repository import AggregateRepository, Outcome
    from headwater.app import App

RETRIED = "headwater-retried"  # a header to the server: how often the command was decided again
READY = "ready"  # the first request: answered when the app's file was run, with its error if it has one


def main(arguments: list[str]) -> None:
    """Answer requests until the server closes the socket."""
    number, file = int(arguments[0]), Path(arguments[1])
    prepare_signals()
    os.dup2(2, 1)
    try:
        app = app_of(file)
    except HeadwaterError as error:
        answer_questions(number, partial(_refused, error), 0)
        return
    with app:
        answer_questions(number, partial(_answered, app), 0)


def _refused(error: HeadwaterError, **_: Any) -> Rendered:
    raise error


def _answered(app: App, *, what: str, aggregate: str, id: str, seconds_max: float, **given: Any) -> Rendered:
    del seconds_max
    if what == READY:
        _warm(app)
        return Rendered(b"", JSON, {})
    repository = app.get_aggregate(aggregate)
    if what == "state":
        return _state(repository, id, given["version"])
    conflicts = repository.conflicts
    if what == "send":
        outcome = _sent(repository, id, **given)
    else:
        outcome = _settled(repository, id, **given)
    document = {
        "aggregate": aggregate,
        "id": id,
        "version": outcome.version,
        "events": [described(event) for event in outcome.events],
        "token": str(outcome.token),
        "repeated": outcome.repeated,
    }
    return _rendered(document, outcome.version, {RETRIED: str(repository.conflicts - conflicts)})


def _warm(app: App) -> None:
    """Read the indexes, and let pyarrow import what it makes rows with: the first command need not wait for it."""
    for repository in app.aggregates.values():
        for index in repository.store.indexes:
            index.catch_up()
        repository.store.rows.batch([EventDraft(NOTED, {})])


def _sent(
    repository: AggregateRepository,
    id: str,
    *,
    command: str,
    arguments: dict[str, Any],
    request_id: str | None,
    expected: int | None,
    metadata: dict[str, Any],
) -> Outcome:
    method = repository.declared.command(command)
    method.checked(arguments)  # before types are looked at: an unknown name has none
    return repository.send(
        id,
        command,
        request_id=request_id,
        expected=expected,
        metadata=_metadata(metadata),
        **from_json(method.function, arguments),
    )


def _settled(
    repository: AggregateRepository, id: str, *, version: int, how: str, request_id: str | None, **_: Any
) -> Outcome:
    if how not in ("confirm", "cancel"):
        raise Misuse(f'a tentative event cannot be "{how}"', hint="Use confirm or cancel.")
    settle = repository.confirm if how == "confirm" else repository.cancel
    return settle(id, version, request_id=request_id)


def _state(repository: AggregateRepository, id: str, version: int | None) -> Rendered:
    now = repository.version(id)
    if not now:
        raise UnknownAggregate(
            f'there is no {repository.name} "{id}"', hint="It has no events.", aggregate=repository.name, id=id
        )
    state = repository.get(id, version=version)
    shown = now if version is None else version
    document = {
        "aggregate": repository.name,
        "id": id,
        "version": shown,
        "state": json_values(state_values(state)),
        "commands": sorted(repository.declared.commands),
    }
    return _rendered(document, shown, {})


def _rendered(document: dict[str, Any], version: int, headers: dict[str, str]) -> Rendered:
    return Rendered(json.dumps(document, default=str).encode(), JSON, {"ETag": f'"{version}"', **headers})


def _metadata(given: dict[str, Any]) -> Metadata | None:
    said = Metadata(**given)
    return None if said.empty else said


if __name__ == "__main__":
    main(sys.argv[1:])
