"""Command decision: one command over one state gives events, or a rejection.

What it is: ``decide``, which calls a command method on a copy of the state; the rows of rejections and what they were.
Invariants: nothing is written and the state is not touched. Tentative events whose deadline has passed expire before
the command sees the state. An error that is no rejection is told with the command's name, and leaves no trace.
Not here: writing, retrying (``aggregate_repository.py``).
Read next: ``command_context.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headwater.aggregates.aggregate_class import AggregateClass
from headwater.aggregates.aggregate_states import NOTED, REJECTED, LoadedState
from headwater.aggregates.command_arguments import from_text, to_text
from headwater.aggregates.command_context import DECIDING, EXPIRED, CommandContext, Decision, PendingEvent
from headwater.aggregates.events.event_rows import EPOCH, MICROSECOND, EventDraft
from headwater.aggregates.events.event_types import RecordedEvent
from headwater.aggregates.interrupts import is_interrupt
from headwater.errors import CommandFailed, HeadwaterError, Rejected

Decide = Callable[[CommandContext, Any], object]


def decided(
    declared: AggregateClass, loaded: LoadedState, context: CommandContext, decide: Decide, command: str
) -> tuple[list[EventDraft], Rejected | None]:
    """What a command emits over a state, or its rejection; the state itself is not touched."""
    instance = declared.copy(loaded.instance)
    pending = loaded.pending or {}

    def apply_settled(target: Any, version: int, how: str) -> None:
        declared.apply_settled(target, pending[version].type, pending[version].data, how)

    decision = Decision(instance, context, apply_settled)
    before = DECIDING.set(decision)
    try:
        for overdue in _overdue(pending, context):
            decision.settle(overdue.version, EXPIRED, _us(overdue))
        lapsed = len(decision.drafts)
        try:
            decide(context, instance)
        except Rejected as error:
            return _requested([*decision.drafts[:lapsed], _rejection(error, context)], context), error
    except HeadwaterError:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise CommandFailed(
            f'command "{command}" of {declared.name} "{context.id}" raised {type(error).__name__}: {error}',
            detail="Nothing was written.",
            hint="A rule that refuses a command raises Rejected.",
            aggregate=declared.name,
            id=context.id,
            command=command,
        ) from error
    finally:
        DECIDING.reset(before)
    drafts = decision.drafts
    if not drafts and context.request_id is not None:  # so that a repetition finds that nothing was to be done
        drafts = [EventDraft(NOTED, {}, stream=context.id, at_us=context.now_us, counted=False)]
    return _requested(drafts, context), None


def _requested(drafts: list[EventDraft], context: CommandContext) -> list[EventDraft]:
    for draft in drafts:
        draft.request_id = context.request_id
    return drafts


def _overdue(pending: Mapping[int, PendingEvent], context: CommandContext) -> list[PendingEvent]:
    overdue = [each for each in pending.values() if each.deadline <= context.now]
    for each in overdue:
        context.forget(each.version)
    return overdue


def _us(pending: PendingEvent) -> int:
    return (pending.deadline - EPOCH) // MICROSECOND


def _rejection(error: Rejected, context: CommandContext) -> EventDraft:
    said = {"reason": error.message, "details": to_text(error.data, "rejection") if error.data else None}
    return EventDraft(REJECTED, {}, stream=context.id, at_us=context.now_us, extra={"rejected": said}, counted=False)


def rejection_of(event: RecordedEvent) -> Rejected:
    """The error that a recorded rejection was."""
    said = (event.extra or {}).get("rejected") or {}
    details = from_text(said["details"]) if said.get("details") else {}
    return Rejected(said.get("reason") or "", **details)


def revoked(reason: str) -> Rejected:
    """The rejection of a command that is not to be decided."""
    return Rejected(reason, revoked=True)


def is_revoked(event: RecordedEvent) -> bool:
    """Whether an event says that a command was revoked before it was decided."""
    said = (event.extra or {}).get("rejected") or {}
    return bool(said.get("details")) and "revoked" in from_text(said["details"])
