"""Tail: the last rows of a topic, rows from an offset or time, and new rows.

What it is: ``Tail`` under ``headwater topic tail``: aligned columns for people, JSON lines for programs.
Invariants: JSON lines can be appended again as they are (``--meta`` aside); a tombstone says ``_deleted`` and cannot be
taken for a row of nulls; Ctrl-C and a closed pipe end it quietly, the latter also while nothing is appended. Columns
only grow wider, so that lines stay aligned without knowing the future.
Not here: reading (``log/topic_reader.py``).
Read next: ``topic_commands.py``.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headwater.cli.quantities import parse_place
from headwater.log.schema.json_lines import json_line

if TYPE_CHECKING:
    from headwater.log.contract import EventTopic

LAST_ROWS = 10
META = ("_partition", "_offset", "_appended_at")
SAID = ("_correlation_id", "_causation_id", "_actor")  # shown where they are not null
CELL_WIDTH_MAX = 40  # on a terminal; a longer value is cut
FIRST_LOOK_ROWS = 100  # widths are measured over so many rows before the first is shown

Row = dict[str, Any]


class Tail:
    """Prints a topic's rows."""

    def __init__(
        self,
        topic: EventTopic,
        *,
        partitions: Sequence[int] | None,
        columns: Sequence[str] | None,
        meta: bool,
        as_json: bool,
    ) -> None:
        from headwater.log.topic_reader import check_columns, check_partitions

        self.topic = topic
        self.partitions = check_partitions(topic, partitions)
        self.columns = check_columns(topic, columns)
        self.meta = meta
        self.as_json = as_json
        self._lines = Lines(cut=sys.stdout.isatty())

    def run(self, *, start: str | None, count: int | None, follow: bool) -> None:
        """Print the last ``count`` rows, or those from ``start``; then new ones with ``follow``."""
        try:
            if follow:
                _leave_with_the_reader()
            for rows in self._groups(start, count, follow):
                self._show(rows)
        except KeyboardInterrupt:
            # The usual way to end.
            sys.stdout.flush()

    def _groups(self, start: str | None, count: int | None, follow: bool) -> Iterator[list[Row]]:
        if start is None:
            ends = {number: end for number, end in self.topic.end_offsets().items() if number in self.partitions}
            yield self._last(ends, LAST_ROWS if count is None else count)
            if follow:
                yield from self._from(ends, None, follow=True)
        else:
            yield from self._from(parse_place(start), count, follow=follow)

    def _last(self, ends: dict[int, int], count: int) -> list[Row]:
        """The ``count`` rows that were appended last, over all partitions."""
        starts = self.topic.start_offsets()
        window = count
        while True:
            begin = {number: max(starts[number], end - window) for number, end in ends.items()}
            rows = [row for batch in self._read(begin, stop=ends) for row in batch]
            # Compaction leaves gaps: read further back until there are enough rows.
            if len(rows) >= count or all(begin[number] == starts[number] for number in begin):
                break
            window *= 8
        rows.sort(key=lambda row: (row["_appended_at"], row["_partition"], row["_offset"]))
        return rows[-count:] if count else []

    def _from(self, place: Any, count: int | None, *, follow: bool) -> Iterator[list[Row]]:
        left = count
        for rows in self._read(place, follow=follow):
            rows = rows if left is None else rows[:left]
            yield rows
            if left is not None:
                left -= len(rows)
                if left <= 0:
                    return

    def _read(self, place: Any, **arguments: Any) -> Iterator[list[Row]]:
        topic = self.topic
        positions = dict(place) if isinstance(place, dict) else self._offsets(place)
        place = positions
        while True:
            version = topic.schema_version
            wanted = self.columns if self.columns is not None else topic.schema.names
            hidden = [*META, *SAID, *(["_deleted"] if topic.settings.key else [])]
            columns = [*wanted, *(name for name in hidden if name not in wanted)]
            for batch in topic.read(place, partitions=self.partitions, columns=columns, **arguments):
                if topic.schema_version != version:
                    # A column was added: read this batch again with it.
                    place = {**positions, batch.partition: batch.first_offset}
                    break
                positions[batch.partition] = batch.next_offset
                yield batch.to_pylist()
            else:
                return

    def _offsets(self, place: Any) -> dict[int, int]:
        from headwater.log.topic_reader import offsets_for

        return offsets_for(self.topic, place, self.partitions)

    def _show(self, rows: list[Row]) -> None:
        for row in rows:
            deleted = row.pop("_deleted", False)
            named = self.columns or ()
            meta = {name: row.pop(name) for name in META if name not in named}
            said = {name: row.pop(name) for name in SAID if name not in named}
            said = {name: value for name, value in said.items() if value is not None}
            shown = {**meta, **row} if self.meta else row
            if self.columns is not None:
                order = [*(META if self.meta else ()), *self.columns]
                shown = {name: shown.get(name, meta.get(name)) for name in order if name in shown or name in meta}
            if self.meta:
                shown = {**shown, **said}
            if deleted:
                shown["_deleted"] = True
            if self.as_json:
                sys.stdout.write(json_line(shown) + "\n")
            else:
                self._lines.add(shown)
        if not self.as_json:
            sys.stdout.writelines(self._lines.flush())
        sys.stdout.flush()


class Lines:
    """Rows as aligned lines, with a heading whenever the columns change.

    >>> lines = Lines(cut=False)
    >>> lines.add({"id": 1, "name": "Ada"})
    >>> lines.add({"id": 200, "name": None})
    >>> print("".join(lines.flush()), end="")
     id  name
      1  Ada
    200  ·
    """

    def __init__(self, *, cut: bool) -> None:
        self._cut = cut
        self._widths: dict[str, int] = {}
        self._heading: tuple[str, ...] = ()
        self._waiting: list[Row] = []

    def add(self, row: Row) -> None:
        """Add a row, which the next ``flush`` writes."""
        self._waiting.append(row)

    def flush(self) -> Iterator[str]:
        """The lines of the rows that were added."""
        rows, self._waiting = self._waiting, []
        texts = [{name: self._text(value) for name, value in row.items()} for row in rows]
        for text in texts[:FIRST_LOOK_ROWS]:
            self._measure(text)
        for row, text in zip(rows, texts, strict=True):
            self._measure(text)
            names = tuple(name for name in text if name != "_deleted")
            if names != self._heading:
                self._heading = names
                yield self._line(row, {name: name for name in names}, head=True)
            yield self._line(row, text)

    def _measure(self, text: dict[str, str]) -> None:
        for name, value in text.items():
            self._widths[name] = max(self._widths.get(name, len(name)), len(value))

    def _line(self, row: Row, text: dict[str, str], *, head: bool = False) -> str:
        cells = []
        for name in self._heading:
            number = isinstance(row.get(name), int | float) and not isinstance(row.get(name), bool)
            width = self._widths.get(name, len(name))
            cells.append(text[name].rjust(width) if number else text[name].ljust(width))
        line = "  ".join(cells).rstrip()
        if not head and row.get("_deleted"):
            line += "  (deleted)"
        if self._cut:
            line = line[: max(20, shutil.get_terminal_size().columns)]
            line = f"\x1b[2m{line}\x1b[0m" if head else line
        return line + "\n"

    def _text(self, value: Any) -> str:
        if value is None:
            return "·"
        # Strings without quotes, everything else as JSON.
        text = value if isinstance(value, str) else json_line({"v": value})[5:-1].strip('"')
        text = text.replace("\n", "\\n").replace("\x1b", "\\x1b")
        return text[: CELL_WIDTH_MAX - 1] + "…" if self._cut and len(text) > CELL_WIDTH_MAX else text


def _leave_with_the_reader() -> None:
    """End when the reader of our pipe closes it, even without output."""
    try:
        fd = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    if os.isatty(fd):
        return

    def watch() -> None:
        poller = select.poll()
        poller.register(fd, 0)  # errors are reported unasked
        while True:
            if any(event & select.POLLERR for _, event in poller.poll()):
                os.kill(os.getpid(), signal.SIGINT)
                return

    threading.Thread(target=watch, name="headwater-pipe", daemon=True).start()
