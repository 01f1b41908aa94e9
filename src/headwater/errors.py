"""Errors: every exception that Headwater raises on purpose.

    HeadwaterError
    ├── Misuse          the call is wrong; change the call
    │   ├── InvalidDeclaration   a topic, key or setting that is invalid by itself
    │   ├── InvalidView          a view's SQL that cannot be read, or is not a function of its inputs
    │   ├── UnknownTopic         no topic of that name
    │   ├── UnknownGroup         no group of that name
    │   ├── UnknownApp           no app of that name reads a topic
    │   ├── DeclarationConflict  the topic exists with another key, partition count, …
    │   ├── SchemaConflict       the new schema cannot follow the old one
    │   ├── RowRefused           a row does not fit the schema
    │   ├── MessageRefused       an inlet does not take a message: its signature, size or form
    │   ├── OffsetOutOfRange     before the start or after the end
    │   ├── ViewFailed           a view cannot be computed over the rows there are
    │   ├── UnknownView          no view of that name
    │   ├── UnknownSink          no sink of that name
    │   ├── SinkRefused          another system refuses a sink's changes
    │   ├── InvalidQuery         a query that cannot be run
    │   ├── MissingExtra         an optional package is not installed
    │   ├── NotOffered           the log lacks a capability that the call needs
    │   ├── SourceRefused        a database that is to be captured lacks a setting, a right, a key or the table
    │   ├── StoreRefused         an attached store refuses what a query asks of it, or has no such table
    │   ├── StateRefused         the object store of an app's state refuses: credentials, bucket, rights, another app
    │   ├── TooManyRows          a query needs more rows of an attached store than allowed
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
    │   ├── RequestConflict      a request id was used before, with other content
    │   ├── LeaseLost            the message's lease ran out
    │   └── CaptureLost          the captured database no longer retains the capture's position
    ├── Unavailable     it may work later
    │   ├── NotYetCovered        the views have not reached a token in time
    │   ├── ViewPaused           a view is paused after a failure and has not reached the token
    │   ├── LogUnavailable       the cluster that the log is on does not answer
    │   ├── CommitUnsure         whether Kafka committed a transaction is not known
    │   ├── SourceUnavailable    a captured database does not answer
    │   ├── StoreUnavailable     an attached store does not answer, or not in time
    │   ├── StateUnavailable     the object store of an app's state does not answer
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
        └── NewerFormat          the home was written by a newer Headwater

Invariants: each class has one stable ``code`` (docs, HTTP body) and its branch has one
``exit_status`` (command line). A message is a primary sentence, then detail, then a hint.
Errors carry their data in ``.data``. Not here: foreign exceptions; they are mapped where
they are caught (``log/storage/files.py``, ``log/catalog/catalog.py``). Read next: ``docs/errors.md``.
"""

from __future__ import annotations

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

    code: ClassVar[str] = "error"
    exit_status: ClassVar[int] = 1

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

    code = "misuse"
    exit_status = 2


class InvalidDeclaration(Misuse):
    """A declaration that is invalid by itself."""

    code = "invalid_declaration"


class InvalidView(Misuse):
    """A view's SQL cannot be read, or its answer would not be a function of its inputs."""

    code = "invalid_view"


class UnknownTopic(Misuse):
    """No topic of that name in this home."""

    code = "unknown_topic"


class UnknownGroup(Misuse):
    """No group of that name on this topic."""

    code = "unknown_group"


class UnknownApp(Misuse):
    """No app of that name has a position in a topic of this home."""

    code = "unknown_app"


class DeclarationConflict(Misuse):
    """The topic exists with another declaration."""

    code = "declaration_conflict"


class SchemaConflict(DeclarationConflict):
    """The new schema cannot follow the stored one."""

    code = "schema_conflict"


class RowRefused(Misuse):
    """A row does not fit the topic's schema. Nothing of its batch was written."""

    code = "row_refused"


class MessageRefused(Misuse):
    """An inlet does not take a message: its signature, its size or its form is wrong."""

    code = "message_refused"


class OffsetOutOfRange(Misuse):
    """An offset before the start or after the end of a partition."""

    code = "offset_out_of_range"


class ViewFailed(Misuse):
    """A view cannot be computed over the rows there are. The tick was not committed."""

    code = "view_failed"


class UnknownView(Misuse):
    """No view of that name in this app."""

    code = "unknown_view"


class UnknownSink(Misuse):
    """No sink of that name in this app."""

    code = "unknown_sink"


class SinkRefused(Misuse):
    """Another system refuses a sink's changes, and would refuse them again."""

    code = "sink_refused"


class InvalidQuery(Misuse):
    """A query that cannot be run."""

    code = "invalid_query"


class NotOffered(Misuse):
    """The log does not offer what the call needs."""

    code = "not_offered"


class MissingExtra(Misuse):
    """An optional dependency is not installed."""

    code = "missing_extra"

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

    code = "source_refused"


class StoreRefused(Misuse):
    """An attached store refuses what a query asks of it, or has no such table."""

    code = "store_refused"


class StateRefused(Misuse):
    """The object store of an app's state refuses a request, or holds the state of another app."""

    code = "state_refused"


class TooManyRows(Misuse):
    """A query needs more rows of an attached store than allowed."""

    code = "too_many_rows"


class CaptureBlocked(Misuse):
    """A captured table changed in a way that its topic cannot follow."""

    code = "capture_blocked"


class Unauthenticated(Misuse):
    """The server requires a key, and the request has no valid one."""

    code = "unauthenticated"


class Forbidden(Misuse):
    """The request's key lacks the scope, or the request comes from another site."""

    code = "forbidden"


class UnknownPath(Misuse):
    """The server has nothing at that address, or not for that method."""

    code = "unknown_path"


class TooLarge(Misuse):
    """A request's body is larger than the server takes. Nothing of it was kept."""

    code = "too_large"


class AnswerTooLarge(Misuse):
    """A query's answer, or a value that it makes, has more bytes than it may have. Nothing of it was sent."""

    code = "answer_too_large"


class OutOfMemory(Misuse):
    """A query needs more memory, or more temporary disk, than it may have, and was ended."""

    code = "out_of_memory"


class ClosedError(Misuse):
    """The log, consumer or producer was closed."""

    code = "closed"


class Conflict(HeadwaterError):
    """Another process was first; read again and retry."""

    code = "conflict"
    exit_status = 3


class Fenced(Conflict):
    """A newer member, generation or producer has taken over."""

    code = "fenced"


class OutOfOrder(Conflict):
    """A producer's number comes too late to be known as new or repeated."""

    code = "out_of_order"


class VersionConflict(Conflict):
    """A stream or row has another version than the writer expected: another writer came first."""

    code = "version_conflict"


class RequestConflict(Conflict):
    """A request id was used before, with other content."""

    code = "request_conflict"


class LeaseLost(Conflict):
    """The message's lease ran out and it may be with another worker now."""

    code = "lease_lost"


class CaptureLost(Conflict):
    """The captured database no longer retains the capture's position in its log, or is another database."""

    code = "capture_lost"


class Unavailable(HeadwaterError):
    """It may work later."""

    code = "unavailable"
    exit_status = 4


class NotYetCovered(Unavailable):
    """The views have not reached a token in time."""

    code = "not_yet_covered"


class ViewPaused(Unavailable):
    """A view is paused after a failure and has not reached the requested token."""

    code = "view_paused"


class LogUnavailable(Unavailable):
    """The cluster that the log is on does not answer; a running app waits for it."""

    code = "log_unavailable"


class CommitUnsure(Unavailable):
    """A transaction of Kafka was to be committed, and no answer says whether it was."""

    code = "commit_unsure"


class SourceUnavailable(Unavailable):
    """A captured database does not answer."""

    code = "source_unavailable"


class StoreUnavailable(Unavailable):
    """An attached store does not answer, or not in time."""

    code = "store_unavailable"


class StateUnavailable(Unavailable):
    """The object store of an app's state does not answer, though it was asked again for a while."""

    code = "state_unavailable"


class Backpressure(Unavailable):
    """The slowest group is too far behind and the topic's policy is to block."""

    code = "backpressure"


class TooMany(Unavailable):
    """More requests in a moment, or more open subscriptions, than the server allows."""

    code = "too_many"


class TimedOut(Unavailable):
    """A query took longer than it may, and was ended; or a capture has not caught up in the time it was given."""

    code = "timed_out"


class EngineUnavailable(Unavailable):
    """The server's engine, which runs the app, does not run or is just starting."""

    code = "engine_unavailable"


class SparkEnded(Unavailable):
    """The Java process that Spark runs in has ended. What was committed is kept."""

    code = "spark_ended"


class DiskFull(Unavailable):
    """No space left for what was to be written. Nothing of it was kept."""

    code = "disk_full"


class TooManyFiles(Unavailable):
    """This process, or the system, has as many files open as it may. Nothing is damaged."""

    code = "too_many_files"


class ReadOnlyHome(Unavailable):
    """The home directory cannot be written."""

    code = "read_only_home"


class CatalogBusy(Unavailable):
    """Another process held the catalog for too long."""

    code = "catalog_busy"


class Corruption(HeadwaterError):
    """Stop: the data on disk is not what was written."""

    code = "corruption"
    exit_status = 5


class CorruptSegment(Corruption):
    """A segment's bytes do not match their checksum."""

    code = "corrupt_segment"


class CorruptCatalog(Corruption):
    """The catalog is not a readable SQLite database."""

    code = "corrupt_catalog"


class NewerFormat(Corruption):
    """The home was written by a newer Headwater."""

    code = "newer_format"
