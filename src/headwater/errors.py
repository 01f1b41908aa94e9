"""Errors: every exception that Headwater raises on purpose.

    HeadwaterError
    ├── Misuse          the call is wrong; change the call
    │   ├── InvalidDeclaration   a topic, key or setting that is invalid by itself
    │   │   └── InvalidPattern       a MATCH_RECOGNIZE clause that cannot be read or run
    │   ├── InvalidView          a view's SQL that cannot be read, or is not a function of its inputs
    │   ├── UnknownTopic         no topic of that name
    │   ├── UnknownGroup         no group of that name
    │   ├── UnknownApp           no app of that name reads a topic
    │   ├── DeclarationConflict  the topic exists with another key, partition count, …
    │   ├── SchemaConflict       the new schema cannot follow the old one
    │   ├── RowRefused           a row does not fit the schema
    │   ├── MessageRefused       an inlet does not take a message: its signature, size or form
    │   ├── OffsetOutOfRange     before the start or after the end
    │   ├── PatternFailed        a row pattern cannot be matched over the rows there are
    │   ├── ViewFailed           a view cannot be computed over the rows there are
    │   ├── UnknownView          no view of that name
    │   ├── UnknownRow           a view has no row with that key
    │   ├── UnknownAggregate     no aggregate, command, claim, process or service of that name
    │   ├── Rejected             an aggregate's rule refuses a command
    │   ├── CommandFailed        a command raised an error that is no rejection
    │   ├── ReplayFailed         an event cannot be applied: its type, its upcaster, or its method
    │   ├── UnknownRequest       no request of that id was made of a process or service
    │   ├── ProcessFailed        a process function raised an error that is no rejection
    │   ├── ProcessDiverged      a process function, run again, yields another step than before
    │   ├── ServiceFailed        the function or query of a service failed for a request
    │   ├── UnknownSink          no sink of that name
    │   ├── UndoRefused          changes of a topic cannot be taken back by events
    │   ├── SinkRefused          another system refuses a sink's changes
    │   ├── InvalidQuery         a query that cannot be run
    │   ├── MissingExtra         an optional package is not installed
    │   ├── NotOffered           the log lacks a capability that the call needs
    │   ├── SourceRefused        a database that is to be captured lacks a setting, a right, a key or the table
    │   ├── StoreRefused         an attached store refuses what a query asks of it, or has no such table
    │   ├── ObjectStoreRefused   an object store (state, backups) refuses: credentials, bucket, rights, another app
    │   ├── TooManyRows          a query needs more rows of an attached store than allowed
    │   ├── NotBackedUp          there is no such backup, or none that covers the point in time
    │   ├── KeyRefused           an encryption key is missing, cannot be read, or is another one
    │   ├── NotEncrypted         a home must be on an encrypted volume, and is not, or what is written beside it
    │   ├── CaptureBlocked       a captured table changed in a way that its topic cannot follow
    │   ├── Unauthenticated      the server requires a key, and the request has no valid one
    │   ├── Forbidden            the key lacks the scope, or the request comes from another site
    │   ├── UnknownPath          the server has nothing at that address
    │   ├── TooLarge             a request's body is larger than the server takes
    │   ├── AnswerTooLarge       a query's answer, or a value in it, is larger than it may be
    │   ├── OutOfMemory          a query needs more memory, or temporary disk, than it may
    │   └── ClosedError          the log was closed
    ├── Conflict        another process was first; read again and retry
    │   ├── Fenced               a newer member, generation or producer has taken over
    │   ├── OutOfOrder           a producer's number comes too late to be known as new or repeated
    │   ├── VersionConflict      a stream or row has another version than the writer expected
    │   ├── AppendConflict       events that an append must not find are there
    │   ├── RequestConflict      a request id was used before, with other content
    │   ├── LeaseLost            the message's lease ran out
    │   ├── BackupRefused        the repository has another home's backups, or another process writes to it
    │   └── CaptureLost          the captured database no longer retains the capture's position
    ├── Unavailable     it may work later
    │   ├── NotYetCovered        the views have not reached a token in time
    │   ├── ViewPaused           a view is paused after a failure and has not reached the token
    │   ├── LogUnavailable       the cluster that the log is on does not answer
    │   ├── CommitUnsure         whether a transaction of Kafka or a command was written is not known
    │   ├── SourceUnavailable    a captured database does not answer
    │   ├── StoreUnavailable     an attached store does not answer, or not in time
    │   ├── ObjectStoreUnavailable an object store (state, backups) does not answer
    │   ├── RequestExpired       a service has not answered a request before its deadline
    │   ├── Backpressure         the slowest group is too far behind
    │   ├── TooMany              more requests, or open subscriptions, than the server allows
    │   ├── TimedOut             a query took longer than it may
    │   ├── EngineUnavailable    the server's engine does not run, or is starting
    │   ├── SparkEnded           the Java process that Spark runs in has ended
    │   ├── DiskFull             no space left
    │   ├── TooManyFiles         as many files are open as the system allows
    │   ├── ReadOnlyHome         the home cannot be written
    │   └── CatalogBusy          another process held the catalog for too long
    └── Corruption      stop; the data on disk is not what was written
        ├── CorruptSegment
        ├── CorruptCatalog
        ├── BackupDamaged        bytes of a backup are missing, or not those that were written
        └── NewerFormat          the home was written by a newer Headwater

Invariants: each class has one stable ``code`` (docs, HTTP body) and its branch has one
``exit_status`` (command line). A message is a primary sentence, then detail, then a hint.
Errors carry their data in ``.data``. Not here: foreign exceptions; they are mapped where
they are caught (``log/storage/files.py``, ``log/catalog/catalog.py``). Read next: ``docs/errors.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar


class HeadwaterError(Exception):
    """The root of all errors raised on purpose.

    >>> raise UnknownTopic('no topic "order"', hint='Did you mean "orders"?')
    Traceback (most recent call last):
        ...
    headwater.errors.UnknownTopic: no topic "order"
      Hint: Did you mean "orders"?
    """

    code: ClassVar[str] = "error"  # of the others the name in snake case, unless the class says another
    exit_status: ClassVar[int] = 1

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" not in cls.__dict__:
            cls.code = re.sub("(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(self, message: str, *, detail: str | None = None, hint: str | None = None, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint
        self.data = data

    def __str__(self) -> str:
        lines = [self.message]
        if self.detail:
            lines.append(f"  {self.detail}")
        if self.hint:
            lines.append(f"  Hint: {self.hint}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The error as plain values: the command line's ``--json`` and the HTTP body.

        >>> UnknownTopic('no topic "x"', topic="x").to_dict()
        {'code': 'unknown_topic', 'message': 'no topic "x"', 'detail': None, 'hint': None, 'data': {'topic': 'x'}}
        """
        return {"code": self.code, "message": self.message, "detail": self.detail, "hint": self.hint, "data": self.data}


class Misuse(HeadwaterError):
    """The call is wrong; change the call."""

    exit_status = 2


class InvalidDeclaration(Misuse):
    """A declaration that is invalid by itself."""


class InvalidPattern(InvalidDeclaration):
    """A MATCH_RECOGNIZE clause that cannot be read, or asks for what no matcher can do."""


class PatternFailed(Misuse):
    """A row pattern cannot be matched over the rows there are: too many steps, a skip that goes nowhere, arithmetic."""


class InvalidView(Misuse):
    """A view's SQL cannot be read, or its answer would not be a function of its inputs."""


class UnknownTopic(Misuse):
    """No topic of that name in this home."""


class UnknownGroup(Misuse):
    """No group of that name on this topic."""


class UnknownApp(Misuse):
    """No app of that name has a position in a topic of this home."""


class DeclarationConflict(Misuse):
    """The topic exists with another declaration."""


class SchemaConflict(DeclarationConflict):
    """The new schema cannot follow the stored one."""


class RowRefused(Misuse):
    """A row does not fit the topic's schema. Nothing of its batch was written."""


class MessageRefused(Misuse):
    """An inlet does not take a message: its signature, its size or its form is wrong."""


class OffsetOutOfRange(Misuse):
    """An offset before the start or after the end of a partition."""


class ViewFailed(Misuse):
    """A view cannot be computed over the rows there are. The tick was not committed."""


class UnknownView(Misuse):
    """No view of that name in this app."""


class UnknownAggregate(Misuse):
    """No aggregate, command, claim, process or service of that name was declared."""


class Rejected(Misuse):
    """A rule of an aggregate refuses a command. Command methods raise it.

    >>> raise Rejected("no funds", missing=5)
    Traceback (most recent call last):
        ...
    headwater.errors.Rejected: no funds
    """


class CommandFailed(Misuse):
    """A command raised an error that is no rejection. Nothing was written."""


class ReplayFailed(Misuse):
    """An event cannot be applied: its type is not known, or its upcaster or method fails."""


class UnknownRow(Misuse):
    """A view has no row with that key at that tick."""


class UnknownRequest(Misuse):
    """No request of that id was made of this process or service."""


class ProcessFailed(Misuse):
    """A process function raised an error that is no rejection, or yields what is no step. It is tried again."""


class ProcessDiverged(Misuse):
    """A process function, run again over recorded results, yields another step than before. Nothing was sent."""


class ServiceFailed(Misuse):
    """The function of a service raised an error for a request, or its query gave more than one row."""


class UnknownSink(Misuse):
    """No sink of that name in this app."""


class UndoRefused(Misuse):
    """Changes of a topic cannot be taken back: its rows are events, or follow another system."""


class SinkRefused(Misuse):
    """Another system refuses a sink's changes, and would refuse them again."""


class InvalidQuery(Misuse):
    """A query that cannot be run."""


class NotOffered(Misuse):
    """The log does not offer what the call needs."""


class MissingExtra(Misuse):
    """An optional dependency is not installed."""

    @classmethod
    @contextmanager
    def raised_for(cls, what: str, extra: str) -> Iterator[None]:
        """Raise this error for a failed import in the block; ``what`` needs the extra.

        >>> with MissingExtra.raised_for("a teleporter", "beam"):
        ...     import no_such_package
        Traceback (most recent call last):
        headwater.errors.MissingExtra: a teleporter needs the package no-such-package
          Hint: pip install "headwater[beam]"
        """
        try:
            yield
        except ImportError as error:
            package = (error.name or "").partition(".")[0].replace("_", "-")
            raise cls(f"{what} needs the package {package}", hint=f'pip install "headwater[{extra}]"') from error


class SourceRefused(Misuse):
    """A database that is to be captured lacks a setting, a right, a key or the table."""


class StoreRefused(Misuse):
    """An attached store refuses what a query asks of it, or has no such table."""


class ObjectStoreRefused(Misuse):
    """An object store, of state or of backups, refuses a request, or holds the state of another app."""


class TooManyRows(Misuse):
    """A query needs more rows of an attached store than allowed."""


class NotBackedUp(Misuse):
    """There is no such backup, or none that covers the point in time."""


class KeyRefused(Misuse):
    """An encryption key is missing, cannot be read, or is not the one that was used."""


class NotEncrypted(Misuse):
    """A home is required to be on an encrypted volume, and it, a temporary folder or the swap is not."""


class CaptureBlocked(Misuse):
    """A captured table changed in a way that its topic cannot follow."""


class Unauthenticated(Misuse):
    """The server requires a key, and the request has no valid one."""


class Forbidden(Misuse):
    """The request's key lacks the scope, or the request comes from another site."""


class UnknownPath(Misuse):
    """The server has nothing at that address, or not for that method."""


class TooLarge(Misuse):
    """A request's body is larger than the server takes. Nothing of it was kept."""


class AnswerTooLarge(Misuse):
    """A query's answer, or a value that it makes, has more bytes than it may have. Nothing of it was sent."""


class OutOfMemory(Misuse):
    """A query needs more memory, or more temporary disk, than it may have, and was ended."""


class ClosedError(Misuse):
    """The log, consumer or producer was closed."""

    code = "closed"


class Conflict(HeadwaterError):
    """Another process was first; read again and retry."""

    exit_status = 3


class Fenced(Conflict):
    """A newer member, generation or producer has taken over."""


class OutOfOrder(Conflict):
    """A producer's number comes too late to be known as new or repeated."""


class VersionConflict(Conflict):
    """A stream or row has another version than the writer expected: another writer came first."""


class AppendConflict(Conflict):
    """Events that an append must not find came after the position that its writer had read up to."""


class RequestConflict(Conflict):
    """A request id was used before, with other content."""


class BackupRefused(Conflict):
    """A repository has the backups of another home, or another process writes to it."""


class LeaseLost(Conflict):
    """The message's lease ran out and it may be with another worker now."""


class CaptureLost(Conflict):
    """The captured database no longer retains the capture's position in its log, or is another database."""


class Unavailable(HeadwaterError):
    """It may work later."""

    exit_status = 4


class NotYetCovered(Unavailable):
    """The views have not reached a token in time."""


class ViewPaused(Unavailable):
    """A view is paused after a failure and has not reached the requested token."""


class LogUnavailable(Unavailable):
    """The cluster that the log is on does not answer; a running app waits for it."""


class CommitUnsure(Unavailable):
    """A transaction of Kafka, or a command to a server's aggregate, had no answer that says whether it was written."""


class SourceUnavailable(Unavailable):
    """A captured database does not answer."""


class StoreUnavailable(Unavailable):
    """An attached store does not answer, or not in time."""


class ObjectStoreUnavailable(Unavailable):
    """An object store, of state or of backups, does not answer, though it was asked again for a while."""


class RequestExpired(Unavailable):
    """A service did not answer a request before its deadline, and will not answer it any more."""


class Backpressure(Unavailable):
    """The slowest group is too far behind and the topic's policy is to block."""


class TooMany(Unavailable):
    """More requests in a moment, or more open subscriptions, than the server allows."""


class TimedOut(Unavailable):
    """A query took longer than it may, and was ended; or a capture has not caught up in the time it was given."""


class EngineUnavailable(Unavailable):
    """The server's engine, which runs the app, does not run or is just starting."""


class SparkEnded(Unavailable):
    """The Java process that Spark runs in has ended. What was committed is kept."""


class DiskFull(Unavailable):
    """No space left for what was to be written. Nothing of it was kept."""


class TooManyFiles(Unavailable):
    """This process, or the system, has as many files open as it may. Nothing is damaged."""


class ReadOnlyHome(Unavailable):
    """The home directory cannot be written."""


class CatalogBusy(Unavailable):
    """Another process held the catalog for too long."""


class Corruption(HeadwaterError):
    """Stop: the data on disk is not what was written."""

    exit_status = 5


class CorruptSegment(Corruption):
    """A segment's bytes do not match their checksum."""


class CorruptCatalog(Corruption):
    """The catalog is not a readable SQLite database."""


class BackupDamaged(Corruption):
    """Bytes of a backup are missing, or are not those that were written."""


class NewerFormat(Corruption):
    """The home was written by a newer Headwater."""
