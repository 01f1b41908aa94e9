"""Claims: values that one owner has at a time, such as names, seats and numbers.

What it is: ``Claims``, made by ``app.claims``; ``Claim``, one value that is taken. Each value is an aggregate.
Invariants: a value is decided in its own partition, so of several claimants at one instant one wins, over all
processes, and the others are told who. A claim belongs to the request that made it: the same request, repeated, gets
the same answer, and only who names that request and the owner releases or transfers it.
Not here: rules over several values at once (``processes/``); deciding (``aggregate_repository.py``).
Read next: ``aggregate_repository.py``; ``docs/processes.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.aggregates.aggregate_class import command, event
from headwater.aggregates.aggregate_repository import AggregateRepository
from headwater.aggregates.command_context import CommandContext
from headwater.errors import Misuse, Rejected
from headwater.log.contract import EventLog
from headwater.log.schema.event_metadata import Metadata
from headwater.log.token import Token


@dataclass(frozen=True)
class Claim:
    """A value that is taken: by whom, and by which request (``id``).

    >>> Claim("ada", "user-7", "signup-1").to_dict()["owner"]
    'user-7'
    """

    value: str
    owner: str
    id: str
    token: Token | None = None
    repeated: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The claim as plain values."""
        token = None if self.token is None else str(self.token)
        return {"value": self.value, "owner": self.owner, "id": self.id, "token": token, "repeated": self.repeated}


class ClaimedValue:
    """One value: who has it."""

    def __init__(self) -> None:
        self.owner: str | None = None
        self.id: str | None = None

    @command
    def claim(self, owner: str, id: str | None = None, *, context: CommandContext) -> None:
        """Take the value, if nobody has it."""
        _refuse_nobody("owner", owner)
        if self.owner is not None:
            raise Rejected(f'"{context.id}" is taken by {self.owner}', value=context.id, owner=self.owner)
        self.claimed(owner=owner, id=id or context.request_id or context.new_id())

    @command
    def release(self, owner: str, id: str, *, context: CommandContext) -> None:
        """Give the value up."""
        self._check(context.id, owner, id)
        self.released(owner=owner, id=id)

    @command
    def transfer(self, owner: str, id: str, to: str, *, context: CommandContext) -> None:
        """Give the value to another owner; the claim is the transferring request's from then on."""
        _refuse_nobody("to", to)
        self._check(context.id, owner, id)
        self.transferred(owner=to, id=context.request_id or context.new_id(), before=owner)

    def _check(self, value: str, owner: str, id: str) -> None:
        if self.owner is None:
            raise Rejected(f'"{value}" is not taken', value=value, owner=None)
        if owner != self.owner:
            raise Rejected(f'"{value}" is taken by {self.owner}, not by {owner}', value=value, owner=self.owner)
        if id != self.id:
            raise Rejected(
                f'"{value}" was claimed by {owner} in request "{self.id}", not in "{id}"', value=value, owner=owner
            )

    @event
    def claimed(self, owner: str, id: str) -> None:
        """Somebody has the value."""
        self.owner, self.id = owner, id

    @event
    def released(self, owner: str, id: str) -> None:  # noqa: ARG002 (columns of the event)
        """Nobody has the value."""
        self.owner = self.id = None

    @event
    def transferred(self, owner: str, id: str, before: str) -> None:  # noqa: ARG002
        """Somebody else has the value."""
        self.owner, self.id = owner, id


class Claims:
    """Values of one kind, each with at most one owner; made by ``app.claims``.

    >>> import headwater as hw, tempfile
    >>> names = hw.App("shop", home=tempfile.mkdtemp()).claims("username")
    >>> claim = names.claim("ada", owner="user-7", request_id="signup-1")
    >>> names.claim("ada", owner="user-7", request_id="signup-1").repeated  # the request is sent again
    True
    >>> try:
    ...     names.claim("ada", owner="user-9", request_id="signup-2")
    ... except hw.errors.Rejected as error:
    ...     print(error, error.data["owner"])
    "ada" is taken by user-7 user-7
    >>> names.transfer(claim, to="user-9", request_id="gift-1").owner
    'user-9'
    >>> names.release(claim)  # an old claim: the value is another request's by now
    Traceback (most recent call last):
        ...
    headwater.errors.Rejected: "ada" is taken by user-9, not by user-7
    >>> names.release(names.get("ada"))
    >>> names.owner("ada") is None
    True
    """

    def __init__(self, log: EventLog, name: str, *, partitions: int) -> None:
        self.name = name
        self.repository = AggregateRepository(log, name, ClaimedValue, partitions=partitions, snapshot_every=1000)

    def claim(
        self, value: str, *, owner: str, request_id: str | None = None, metadata: Metadata | None = None
    ) -> Claim:
        """Take a value. ``Rejected`` when it is taken, with who has it in ``error.data["owner"]``.

        >>> import headwater as hw, tempfile
        >>> seats = hw.App("cinema", home=tempfile.mkdtemp()).claims("seat", partitions=1)
        >>> seats.claim("7A", owner="order-1", request_id="r-1")
        Claim(value='7A', owner='order-1', id='r-1', token=Token(frontier={'seat': {0: 1}}, dropped_rows=0), \
repeated=False)
        """
        _check_owner("owner", owner)
        outcome = self.repository.send(value, "claim", owner=owner, request_id=request_id, metadata=metadata)
        data = outcome.events[0].data
        return Claim(str(value), data["owner"], data["id"], outcome.token, outcome.repeated)

    def release(
        self,
        value: str | Claim,
        *,
        owner: str | None = None,
        claim: str | None = None,
        request_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> None:
        """Give a value up: a ``Claim``, or the value with its owner and the request that claimed it.

        >>> import headwater as hw, tempfile
        >>> names = hw.App("shop", home=tempfile.mkdtemp()).claims("username")
        >>> _ = names.claim("ada", owner="user-7", request_id="signup-1")
        >>> names.release("ada", owner="user-7", claim="signup-1")
        """
        named, owner, claim = self._held(value, owner, claim)
        self.repository.send(named, "release", owner=owner, id=claim, request_id=request_id, metadata=metadata)

    def transfer(
        self,
        value: str | Claim,
        *,
        to: str,
        owner: str | None = None,
        claim: str | None = None,
        request_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> Claim:
        """Give a value to another owner, without a moment at which it is free; returns the new claim.

        >>> import headwater as hw, tempfile
        >>> names = hw.App("shop", home=tempfile.mkdtemp()).claims("username")
        >>> claim = names.claim("ada", owner="user-7", request_id="signup-1")
        >>> names.transfer(claim, to="user-9", request_id="gift-1").id
        'gift-1'
        """
        named, owner, claim = self._held(value, owner, claim)
        _check_owner("to", to)
        outcome = self.repository.send(
            named, "transfer", owner=owner, id=claim, to=to, request_id=request_id, metadata=metadata
        )
        data = outcome.events[0].data
        return Claim(named, data["owner"], data["id"], outcome.token, outcome.repeated)

    def owner(self, value: str) -> str | None:
        """Who has a value now; None when nobody does.

        >>> import headwater as hw, tempfile
        >>> hw.App("shop", home=tempfile.mkdtemp()).claims("username").owner("ada") is None
        True
        """
        found = self.get(value)
        return None if found is None else found.owner

    def get(self, value: str) -> Claim | None:
        """The claim of a value now; None when it is free.

        >>> import headwater as hw, tempfile
        >>> names = hw.App("shop", home=tempfile.mkdtemp()).claims("username")
        >>> _ = names.claim("ada", owner="user-7", request_id="signup-1")
        >>> names.get("ada").id
        'signup-1'
        """
        state = self.repository.get(value)
        return None if state.owner is None else Claim(str(value), state.owner, state.id)

    def _held(self, value: str | Claim, owner: str | None, claim: str | None) -> tuple[str, str, str]:
        if isinstance(value, Claim):
            return value.value, owner or value.owner, claim or value.id
        if owner is None or claim is None:
            raise Misuse(
                f'a claim of "{self.name}" is given up by who names its owner and its request',
                hint='Give the Claim, or owner="…" and claim="…": the request id that claimed the value. '
                f'app.get_claims("{self.name}").get(value) has both.',
            )
        return value, owner, claim

    def __repr__(self) -> str:
        return f"Claims({self.name})"


def _refuse_nobody(what: str, owner: str) -> None:
    """Also for who sends the command without ``Claims``, such as a process: a value of nobody would be free."""
    try:
        _check_owner(what, owner)
    except Misuse as error:
        raise Rejected(error.message) from error


def _check_owner(what: str, owner: str) -> None:
    if not isinstance(owner, str) or not owner:
        raise Misuse(f"{what} is a text, not {owner!r}", hint='Name who the value belongs to, for example "user-7".')
