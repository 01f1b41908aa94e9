"""Tellings: what subscribers are told of a view at one tick, written once for all of them.

What it is: ``ViewMessage``, the messages of one snapshot or of one tick's changes; ``MessageEncoder`` makes them from
what was committed; ``ResumeToken`` is where a subscriber is.
Invariants: a telling takes a subscriber from one whole tick to another one: its parts are applied together, when the
last one (``more`` is false) has come. A small one is in memory, a large one in a file without a name; so neither a
large view nor a slow subscriber costs memory. No Spark.
Not here: who is told (``broker.py``); how (``status_events.py``, ``server/routes/subscribe_routes.py``).
Read next: ``broker.py``.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater.errors import InvalidDeclaration, OffsetOutOfRange
from headwater.server.http.renderings import rows_text
from headwater.views.serving.change_feed import VERSION, ChangeFeed
from headwater.views.serving.committed_changes import CommittedChanges
from headwater.views.serving.view_reader import ViewReader
from headwater.views.state.manifest import Manifest
from headwater.views.tick.pausing import Pause

PART_ROWS = 2000
MEMORY_BYTES = 64 << 10  # of one telling; more goes to a file
TOLD_BYTES_MAX = 64 << 10  # that one reader takes at once, if it is more than one tick
RECENT_MAX = 16  # ticks that are kept as they were told
ATTEMPTS = 5  # a file may leave between the look and the reading


@dataclass(frozen=True)
class ResumeToken:
    """Where a subscriber is: at which tick, of which query. The text is what it resumes with.

    >>> str(ResumeToken(57, "a1b2c3d4")), ResumeToken.parse("57.a1b2c3d4").tick, ResumeToken.parse("57").version
    ('57.a1b2c3d4', 57, None)
    """

    tick: int
    version: str | None  # None: the client did not say; then the manifests must tell

    def __str__(self) -> str:
        return f"{self.tick}.{self.version}" if self.version else str(self.tick)

    @staticmethod
    def parse(text: str) -> ResumeToken:
        """What ``str`` wrote, or a tick alone."""
        tick, _, version = text.partition(".")
        if not (tick.isascii() and tick.isdigit() and len(tick) < 16 and len(version) <= 16):
            raise InvalidDeclaration(f"{text[:40]!r} is no place to go on from", hint="Give back what a message had.")
        return ResumeToken(int(tick), version or None)


class ViewMessage:
    """The messages of one tick, or of one snapshot. Threads may share it."""

    def __init__(self, kind: str, place: ResumeToken, parts: Iterable[str]) -> None:
        self.kind = kind
        self.place = place
        self._lock = threading.Lock()
        # It lives as long as the telling does, and is gone with it.
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
        """One message, without its beginning, which ``said`` adds."""
        start, length = self._spans[number]
        with self._lock:
            self._file.seek(start)
            return self._file.read(length).decode()

    def said(self, number: int, *, reset: bool) -> str:
        """One message as the client gets it."""
        begin = f'{{"type":"{self.kind}",' + (f'"reset":{str(reset).lower()},' if self.kind == "snapshot" else "")
        return begin + self.part(number)

    def is_last(self, number: int) -> bool:
        """Whether the subscriber is at ``place`` when it has this part."""
        return number == len(self._spans) - 1


class MessageEncoder:
    """Makes tellings of one view. Its methods block: call them in a thread."""

    def __init__(self, view: str, committed: CommittedChanges, home_id: str) -> None:
        self.view = view
        self._committed = committed
        self._manifests = committed.manifests
        self._home_id = home_id
        self._upstream = ViewReader(view, committed, home_id=home_id, epoch=lambda: 0)
        self._feed = ChangeFeed(view, committed, lambda *_: False)
        self._one_at_a_time = threading.Lock()
        self._latest: ViewMessage | None = None  # the last snapshot, for those who come together
        self._recent: OrderedDict[ResumeToken, ViewMessage | None] = OrderedDict()

    def now(self) -> ResumeToken | None:
        """Where the view is; None before its first tick."""
        return self._place(self._manifests.current())

    def _place(self, manifest: Manifest | None) -> ResumeToken | None:
        about = None if manifest is None else manifest.views.get(self.view)
        if manifest is None or about is None:
            return None
        return ResumeToken(
            manifest.tick, hashlib.sha256(f"{self._home_id}/{about['created_tick']}".encode()).hexdigest()[:8]
        )

    def resumed(self, have: ResumeToken) -> ResumeToken | None:
        """The place with its query, when its changes can be told from there on; None: only a snapshot helps."""
        now = self.now()
        # Also the manifest of the tick itself must be kept: it alone tells of which query the subscriber's copy is.
        then = self._place(self._manifests.at(have.tick))
        if now is None or then is None or have.tick > now.tick or then.version != now.version:
            return None
        return then if have.version in (None, then.version) else None

    def snapshot(self) -> ViewMessage | None:
        """All rows at the last tick; None before the view's first."""
        with self._one_at_a_time:
            now = self.now()
            if now is None:
                return None
            if self._latest is not None and self._latest.place == now:
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
        manifest = self._manifests.current()
        place = self._place(manifest)
        assert place is not None
        with self._upstream.rows_at(manifest) as (head, batches):
            about: dict[str, Any] = {
                **self._paused(manifest),
                "columns": [{"name": field.name, "type": str(field.type)} for field in head.schema],
                "key": list(head.key),
            }
            return ViewMessage("snapshot", place, self._parts(place, "rows", _slices(batches, head.schema), about))

    def changes(self, after: ResumeToken, *, ticks_max: int) -> list[ViewMessage] | None:
        """What changed after a place, tick by tick, of at most so many ticks; None: only a snapshot helps.

        Of ticks that changed nothing only the last is told. Whoever reads slowly holds little of it at once.
        """
        begin = self.resumed(after)
        if begin is None:
            return None
        last = min(self._manifests.tick(), begin.tick + ticks_max)
        found: list[ViewMessage] = []
        try:
            for tick in range(begin.tick + 1, last + 1):
                telling = self._at(ResumeToken(tick, begin.version))
                if telling is not None:
                    found.append(telling)
                    if sum(each.bytes for each in found) > TOLD_BYTES_MAX:
                        return found
        except (OffsetOutOfRange, FileNotFoundError):
            return None
        if last > (found[-1].place.tick if found else begin.tick):
            place = ResumeToken(last, begin.version)
            found.append(ViewMessage("tick", place, [self._message(place, more=False, **self._paused(None))]))
        return found

    def _paused(self, manifest: Manifest | None) -> dict[str, Any]:
        """What is said of a view that stands still; nothing of one that runs."""
        found = (manifest or self._manifests.current()).paused.get(self.view)
        return {} if found is None else {"paused": Pause.from_json(found).told(self.view)}

    def _at(self, place: ResumeToken) -> ViewMessage | None:
        """What one tick changed; None: nothing. Many ask for the same few ticks at once."""
        with self._one_at_a_time:
            if place not in self._recent:
                tables = list(self._feed.read(place.tick, place.tick))
                self._recent[place] = self._changed(place, tables[0].drop_columns([VERSION])) if tables else None
                while len(self._recent) > RECENT_MAX:
                    self._recent.popitem(last=False)
            return self._recent[place]

    def _changed(self, place: ResumeToken, table: pa.Table) -> ViewMessage:
        slices = _slices(table.to_batches(), table.schema)
        return ViewMessage("changes", place, self._parts(place, "changes", slices, {}))

    def _parts(self, place: ResumeToken, name: str, slices: Iterable[pa.Table], about: dict[str, Any]) -> Iterator[str]:
        """The messages, each but the last saying that there is more."""
        waiting: str | None = None
        for rows in slices:
            if waiting is not None:
                yield self._message(place, more=True, **about, **{name: waiting})
                about = {}
            waiting = rows_text(rows)
        yield self._message(place, more=False, **about, **{name: waiting or "[]"})

    def _message(self, place: ResumeToken, *, more: bool, **parts: Any) -> str:
        """The rest of a JSON object, after its type; ``rows`` and ``changes`` are JSON already."""
        head = {"view": self.view, "tick": place.tick, "token": str(place), "more": more}
        plain = {name: value for name, value in parts.items() if name not in ("rows", "changes")}
        ready = "".join(f',"{name}":{parts[name]}' for name in ("rows", "changes") if name in parts)
        return json.dumps({**head, **plain}, ensure_ascii=False, separators=(",", ":"))[1:-1] + ready + "}"


def _slices(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    for batch in batches:
        table = pa.Table.from_batches([batch], schema)
        for start in range(0, table.num_rows, PART_ROWS):
            yield table.slice(start, PART_ROWS)
