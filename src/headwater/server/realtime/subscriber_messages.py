"""Subscriber messages: a snapshot or one tick's changes of a view, encoded once for all subscribers.

What it is: ``MessageEncoder`` makes a ``ViewMessage`` from committed data; a ``ResumeToken`` is a subscriber's
position.
Invariants: a message takes a subscriber from one whole tick to another: its parts are applied together, with the last
one (``more`` is false). Small messages are in memory, large ones in an unnamed file, so neither a large view nor a slow
subscriber costs memory. No Spark.
Not here: subscribers (``broker.py``); transport (``status_events.py``, ``server/routes/subscribe_routes.py``).
Read next: ``broker.py``.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater.errors import InvalidDeclaration, OffsetOutOfRange
from headwater.log.schema.ddl import parse_view_ddl
from headwater.log.schema.personal_columns import Mask
from headwater.server.http.masked_answers import MaskedAnswers
from headwater.server.http.renderings import rows_text
from headwater.views.privacy.personal_data import PrivacyRights
from headwater.views.privacy.row_rules import RowsShown
from headwater.views.serving.change_feed import VERSION, ChangeFeed
from headwater.views.serving.committed_changes import CommittedChanges
from headwater.views.serving.view_reader import ViewReader
from headwater.views.state.manifest import Manifest
from headwater.views.tick.pausing import Pause

PART_ROWS = 2000
MEMORY_BYTES = 64 << 10  # of one message; more goes to a file
TOLD_BYTES_MAX = 64 << 10  # for one reader at once, beyond the first tick
RECENT_MAX = 16  # encoded ticks that are kept
ATTEMPTS = 5  # a file may be removed before it is read


@dataclass(frozen=True)
class ResumeToken:
    """A subscriber's position: the tick, and the version of the view's query.

    >>> str(ResumeToken(57, "a1b2c3d4")), ResumeToken.parse("57.a1b2c3d4").tick, ResumeToken.parse("57").version
    ('57.a1b2c3d4', 57, None)
    """

    tick: int
    version: str | None  # None: not given by the client; taken from the manifest

    def __str__(self) -> str:
        return f"{self.tick}.{self.version}" if self.version else str(self.tick)

    @staticmethod
    def parse(text: str) -> ResumeToken:
        """The inverse of ``str``; a tick alone is allowed."""
        tick, _, version = text.partition(".")
        if not (tick.isascii() and tick.isdigit() and len(tick) < 16 and len(version) <= 16):
            raise InvalidDeclaration(f"{text[:40]!r} is not a resume token", hint="Use the token of the last message.")
        return ResumeToken(int(tick), version or None)


class ViewMessage:
    """The messages of one tick, or of one snapshot. Threads may share it."""

    def __init__(self, kind: str, token: ResumeToken, parts: Iterable[str]) -> None:
        self.kind = kind
        self.token = token
        self._lock = threading.Lock()
        self._file = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115
        self._spans: list[tuple[int, int]] = []
        self.bytes = 0
        for part in parts:
            data = part.encode()
            self._spans.append((self._file.tell(), len(data)))
            self._file.write(data)
            self.bytes += len(data)

    def __len__(self) -> int:
        return len(self._spans)

    def part(self, number: int) -> str:
        """One part, without the head that ``said`` adds."""
        start, length = self._spans[number]
        with self._lock:
            self._file.seek(start)
            return self._file.read(length).decode()

    def said(self, number: int, *, reset: bool) -> str:
        """One part as the client gets it."""
        begin = f'{{"type":"{self.kind}",' + (f'"reset":{str(reset).lower()},' if self.kind == "snapshot" else "")
        return begin + self.part(number)

    def is_last(self, number: int) -> bool:
        """Whether the tick is complete with this part."""
        return number == len(self._spans) - 1


class MessageEncoder:
    """Makes the messages of one view. Its methods block: call them in a thread."""

    def __init__(self, view: str, committed: CommittedChanges, masked: MaskedAnswers, rights: PrivacyRights) -> None:
        self.view = view
        self._masked = masked
        self._rights = rights
        self._committed = committed
        self._manifests = committed.manifests
        self._reader = ViewReader(view, committed, epoch=lambda: 0)
        self._feed = ChangeFeed(view, committed, lambda *_: False)
        self._one_at_a_time = threading.Lock()
        self._latest: ViewMessage | None = None  # the last snapshot, for concurrent subscribers
        self._recent: OrderedDict[ResumeToken, ViewMessage | None] = OrderedDict()

    def now(self) -> ResumeToken | None:
        """The view's position; None before its first tick."""
        return self._token(self._manifests.current(), self._masks())

    def _masks(self) -> dict[str, Mask]:
        """What masks which columns, as it is declared now."""
        about = None if self._rights.everything else self._manifests.current().views.get(self.view)
        if about is None:
            return {}
        return self._masked.masks_of(self._rights, self.view, parse_view_ddl(about["columns"]).names)

    def _shown(self) -> RowsShown | None:
        """The rows that these subscribers see, as it is declared now."""
        return self._masked.rows_of(self._rights, self.view)

    def _token(self, manifest: Manifest | None, masks: Mapping[str, Mask]) -> ResumeToken | None:
        about = None if manifest is None else manifest.views.get(self.view)
        if manifest is None or about is None:
            return None
        version = f"{self._manifests.state_id()}/{about['created_tick']}"
        if masks:  # other masks are another copy: its subscribers get a snapshot
            version += f"/{sorted(masks.items())}"
        if (shown := self._shown()) is not None:  # so are other rows
            version += f"/{shown.values}"
        return ResumeToken(manifest.tick, hashlib.sha256(version.encode()).hexdigest()[:8])

    def resumed(self, have: ResumeToken) -> ResumeToken | None:
        """The token with its query's version, if changes after it are kept; None: a snapshot is needed."""
        return self._resumed(have, self._masks())

    def _resumed(self, have: ResumeToken, masks: Mapping[str, Mask]) -> ResumeToken | None:
        now = self._token(self._manifests.current(), masks)
        # The manifest of the tick itself must be kept too: it has the version of the subscriber's query.
        then = self._token(self._manifests.at(have.tick), masks)
        if now is None or then is None or have.tick > now.tick or then.version != now.version:
            return None
        return then if have.version in (None, then.version) else None

    def snapshot(self) -> ViewMessage | None:
        """All rows at the last tick; None before the view's first."""
        with self._one_at_a_time:
            now = self.now()
            if now is None:
                return None
            if self._latest is not None and self._latest.token == now:
                return self._latest
            for attempt in range(ATTEMPTS):
                try:
                    self._latest = self._made()
                    return self._latest
                except FileNotFoundError:
                    if attempt == ATTEMPTS - 1:
                        raise
            return None

    def _made(self) -> ViewMessage:
        manifest, masks = self._manifests.current(), self._masks()
        token = self._token(manifest, masks)
        assert token is not None
        with self._reader.rows_at(manifest) as (head, batches):
            about: dict[str, Any] = {
                **self._paused(manifest),
                "columns": [{"name": field.name, "type": str(field.type)} for field in head.schema],
                "key": list(head.key),
                **({"masked": sorted(masks)} if masks else {}),
            }
            shown = self._shown()
            seen = (each if shown is None else shown.table(each) for each in _slices(batches, head.schema))
            rows = (self._masked.masked(each, masks) for each in seen)
            return ViewMessage("snapshot", token, self._parts(token, "rows", rows, about))

    def changes(self, after: ResumeToken, *, ticks_max: int) -> list[ViewMessage] | None:
        """The changes after a token, for at most ``ticks_max`` ticks; None: a snapshot is needed.

        Of ticks without changes only the last is sent. The total size is bounded for slow readers.
        """
        masks = self._masks()
        begin = self._resumed(after, masks)
        if begin is None:
            return None
        last = min(self._manifests.tick(), begin.tick + ticks_max)
        found: list[ViewMessage] = []
        try:
            for tick in range(begin.tick + 1, last + 1):
                view_message = self._at(ResumeToken(tick, begin.version), masks)
                if view_message is not None:
                    found.append(view_message)
                    if sum(each.bytes for each in found) > TOLD_BYTES_MAX:
                        return found
        except (OffsetOutOfRange, FileNotFoundError):
            return None
        if last > (found[-1].token.tick if found else begin.tick):
            token = ResumeToken(last, begin.version)
            found.append(ViewMessage("tick", token, [self._message(token, more=False, **self._paused(None))]))
        return found

    def _paused(self, manifest: Manifest | None) -> dict[str, Any]:
        """The pause of a paused view, else nothing."""
        found = (manifest or self._manifests.current()).paused.get(self.view)
        return {} if found is None else {"paused": Pause.from_json(found).describe(self.view)}

    def _at(self, token: ResumeToken, masks: Mapping[str, Mask]) -> ViewMessage | None:
        """The changes of one tick, cached; None when there are none."""
        with self._one_at_a_time:
            if token not in self._recent:
                tables, shown = list(self._feed.read(token.tick, token.tick)), self._shown()
                if shown is not None:
                    tables = [table for each in tables if (table := shown.table(each)).num_rows]
                changed = [self._masked.masked(table.drop_columns([VERSION]), masks) for table in tables]
                self._recent[token] = self._changed(token, changed[0]) if changed else None
                while len(self._recent) > RECENT_MAX:
                    self._recent.popitem(last=False)
            return self._recent[token]

    def _changed(self, token: ResumeToken, table: pa.Table) -> ViewMessage:
        slices = _slices(table.to_batches(), table.schema)
        return ViewMessage("changes", token, self._parts(token, "changes", slices, {}))

    def _parts(self, token: ResumeToken, name: str, slices: Iterable[pa.Table], about: dict[str, Any]) -> Iterator[str]:
        """The parts; ``more`` is true in all but the last."""
        waiting: str | None = None
        for rows in slices:
            if waiting is not None:
                yield self._message(token, more=True, **about, **{name: waiting})
                about = {}
            waiting = rows_text(rows)
        yield self._message(token, more=False, **about, **{name: waiting or "[]"})

    def _message(self, token: ResumeToken, *, more: bool, **parts: Any) -> str:
        """The rest of a JSON object, after its type; ``rows`` and ``changes`` are JSON already."""
        head = {"view": self.view, "tick": token.tick, "token": str(token), "more": more}
        plain = {name: value for name, value in parts.items() if name not in ("rows", "changes")}
        ready = "".join(f',"{name}":{parts[name]}' for name in ("rows", "changes") if name in parts)
        return json.dumps({**head, **plain}, ensure_ascii=False, separators=(",", ":"))[1:-1] + ready + "}"


def _slices(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    for batch in batches:
        table = pa.Table.from_batches([batch], schema)
        for start in range(0, table.num_rows, PART_ROWS):
            yield table.slice(start, PART_ROWS)
