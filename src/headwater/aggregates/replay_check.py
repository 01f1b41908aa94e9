"""Replay check: every recorded command is decided again, and its events are compared with those in the log.

What it is: ``ReplayCheck``, behind ``verify`` of a repository; ``ReplayDifference``, one thing that is not equal.
Invariants: the clock, the seed and the arguments are those that were recorded, and the state is what the stored events
before it add up to; so equal code gives equal events. Nothing is written.
Not here: damaged files (``headwater check``).
Read next: ``aggregate_repository.py``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from headwater.aggregates.aggregate_states import LoadedState
from headwater.aggregates.command_arguments import from_text
from headwater.aggregates.command_context import CommandContext
from headwater.aggregates.command_decision import decided, is_revoked
from headwater.aggregates.events.event_rows import EPOCH, MICROSECOND
from headwater.aggregates.events.event_types import RecordedEvent
from headwater.aggregates.state_values import state_values
from headwater.errors import CommandFailed, HeadwaterError

if TYPE_CHECKING:
    from headwater.aggregates.aggregate_repository import AggregateRepository


@dataclass(frozen=True)
class ReplayDifference:
    """A command that would be decided otherwise today, or a snapshot that is not what the events give.

    ``kind`` is "events", "snapshot" or "not known": the class no longer has the command.
    """

    aggregate: str
    id: str
    version: int
    kind: str
    command: str | None
    recorded: Any
    replayed: Any

    def to_dict(self) -> dict[str, Any]:
        """The difference as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        after = f'{self.aggregate} "{self.id}" after event {self.version}'
        if self.kind == "snapshot":
            return f"{after}: the snapshot is {self.recorded}, and the events give {self.replayed}"
        if self.kind == "not known":
            return f'{after}: command "{self.command}" is not known any more, so it was not decided again'
        return f'{after}: command "{self.command}" gave {self.recorded}, and now gives {self.replayed}'


class ReplayCheck:
    """Decides the commands of one kind of aggregate again."""

    def __init__(self, repository: AggregateRepository) -> None:
        self._repository = repository

    def stream(self, id: str) -> Iterator[ReplayDifference]:
        """The differences of one aggregate."""
        repository = self._repository
        loaded = repository.states.new()
        snapshot = repository.states.snapshots.find(id)
        for rows in _commands(repository.store.each_of(id)):
            said = (rows[0].extra or {}).get("command")
            if said is not None and not any(map(is_revoked, rows)):
                yield from self._command(id, loaded, said, rows)
            for event in rows:
                repository.states.apply(loaded, event)
                if snapshot is not None and snapshot.version == event.version and snapshot.position == event.position:
                    yield from self._snapshot(id, loaded, snapshot.state[0])

    def _command(
        self, id: str, loaded: LoadedState, said: dict[str, Any], rows: Sequence[RecordedEvent]
    ) -> Iterator[ReplayDifference]:
        repository, name = self._repository, said["name"]
        known = repository.declared.commands.get(name)
        recorded = [_shown(event) for event in rows]
        if known is None and not name.startswith("$"):
            yield ReplayDifference(repository.name, id, loaded.version, "not known", name, recorded, None)
            return
        arguments = from_text(said["arguments"])
        context = CommandContext(
            id=id,
            now_us=_decided_at(rows),
            seed=said["seed"],
            request_id=rows[0].request_id,
            actor=None if rows[0].metadata is None else rows[0].metadata.actor,
            pending=copy.deepcopy(loaded.pending),
        )

        def decide(given: CommandContext, instance: Any) -> None:
            if name == "$expire":
                return
            if known is None:
                getattr(given, name[1:])(arguments["version"])
            else:
                known.decide(instance, given, arguments)

        try:
            drafts, _ = decided(repository.declared, loaded, context, decide, name)
            batch = repository.store.rows.batch(drafts, repository.store.topic.schema)
            replayed = [_shown(event) for event in repository.store.rows.events(batch, 0, range(len(drafts)))]
        except CommandFailed as error:
            replayed = [("failed", error.message)]
        except HeadwaterError as error:
            replayed = [("refused", error.message)]
        if replayed != recorded:
            yield ReplayDifference(repository.name, id, loaded.version, "events", name, recorded, replayed)

    def _snapshot(self, id: str, loaded: LoadedState, state: Any) -> Iterator[ReplayDifference]:
        stored, replayed = state_values(state), state_values(loaded.instance)
        if stored != replayed:
            yield ReplayDifference(self._repository.name, id, loaded.version, "snapshot", None, stored, replayed)


def _commands(events: Iterable[RecordedEvent]) -> Iterator[list[RecordedEvent]]:
    """The rows of each command; rows that no command wrote are by themselves."""
    rows: list[RecordedEvent] = []
    for event in events:
        begins = (event.extra or {}).get("command") is not None
        if rows and (begins or (rows[0].extra or {}).get("command") is None):
            yield rows
            rows = []
        rows.append(event)
    if rows:
        yield rows


def _shown(event: RecordedEvent) -> tuple[str, Any]:
    extra = event.extra or {}
    if extra.get("rejected"):
        return (event.type, extra["rejected"]["reason"])
    return (event.type, {**event.data, **({"settles": extra["settles"]} if extra.get("settles") is not None else {})})


def _decided_at(rows: Sequence[RecordedEvent]) -> int:
    """When the command was decided: expired events before its own have the time of their deadline."""
    return max((event.at - EPOCH) // MICROSECOND for event in rows)
