"""Token: the frontier that contains an append.

What it is: for each topic and partition, the offset after the last row of interest. ``append`` returns one; a query
with ``at_least=token`` waits until its views cover it.
Invariants: tokens only grow when joined; a token is plain text for other processes and languages.
Not here: waiting for a view (the tick). Read next: ``topic.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from headwater.errors import InvalidDeclaration

if TYPE_CHECKING:
    from headwater.log.contract import EventLog


class LogPosition(Protocol):
    """A place that is no token yet, such as one in a captured database's log (``capture/captured_position.py``)."""

    def token(self, log: EventLog, timeout: float) -> Token:
        """The token of the rows up to it; waits until the log has them."""


@dataclass(frozen=True)
class Token:
    """A frontier of the log: offsets by topic and partition.

    >>> first, second = Token({"orders": {0: 5}}), Token({"orders": {0: 3, 1: 7}})
    >>> str(first | second)
    'orders:0=5,1=7'
    >>> (first | second).covers(first)
    True
    >>> Token.parse("orders:0=5") == first
    True
    """

    frontier: Mapping[str, Mapping[int, int]]
    dropped_rows: int = field(default=0, compare=False)  # rows that the overflow policy "drop" dropped
    repeated: bool = field(
        default=False, compare=False, repr=False
    )  # the request id was known: this is the first append's token

    def covers(self, other: Token) -> bool:
        """Whether this frontier is at or beyond ``other``."""
        return all(
            self.frontier.get(topic, {}).get(partition, 0) >= offset
            for topic, offsets in other.frontier.items()
            for partition, offset in offsets.items()
        )

    def __or__(self, other: Token) -> Token:
        joined: dict[str, dict[int, int]] = {topic: dict(offsets) for topic, offsets in self.frontier.items()}
        for topic, offsets in other.frontier.items():
            mine = joined.setdefault(topic, {})
            for partition, offset in offsets.items():
                mine[partition] = max(offset, mine.get(partition, 0))
        return Token(joined, self.dropped_rows + other.dropped_rows)

    def __str__(self) -> str:
        topics = (
            topic + ":" + ",".join(f"{partition}={offset}" for partition, offset in sorted(offsets.items()))
            for topic, offsets in sorted(self.frontier.items())
        )
        return ";".join(topics)

    @staticmethod
    def of(given: Token | str | None) -> Token | None:
        """A token that was given as such, or as its text.

        >>> Token.of("orders:0=5") == Token.of(Token({"orders": {0: 5}})) == Token({"orders": {0: 5}})
        True
        """
        return Token.parse(given) if isinstance(given, str) else given

    @staticmethod
    def parse(text: str) -> Token:
        """The token of a text that ``str(token)`` wrote."""
        frontier: dict[str, dict[int, int]] = {}
        try:
            for part in filter(None, text.split(";")):
                topic, _, offsets = part.rpartition(":")
                pairs = (pair.split("=") for pair in filter(None, offsets.split(",")))
                frontier[topic] = {int(partition): int(offset) for partition, offset in pairs}
        except ValueError as error:
            raise InvalidDeclaration(f"{text!r} is not a token", hint="A token looks like orders:0=120,1=98") from error
        return Token(frontier)


AtLeast = Token | str | LogPosition  # what a reader of views may wait for
