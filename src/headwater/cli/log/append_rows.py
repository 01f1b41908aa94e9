"""Appending an input to a topic, with progress.

What it is: the loop of ``headwater topic append``.
Invariants: a batch is atomic; when one is refused, earlier ones stay, and the error says how many rows were written and
how to continue. With a producer name, batch n has sequence n, so a repeated run skips written batches; the last written
one is sent again, because a crash may have left it in some partitions only, and is deduplicated there.
Not here: formats (``input_files.py``).
Read next: ``input_files.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from headwater.cli.output import console
from headwater.cli.quantities import show_count
from headwater.errors import HeadwaterError
from headwater.log.token import Token

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from headwater.cli.log.input_files import InputFile, Portion
    from headwater.log.contract import EventTopic
    from headwater.log.producer import Producer
    from headwater.log.schema.event_metadata import Metadata

# stdin may be a pipe from something that runs for ever: what has come is written after so long without more.
LINGER_S = 0.2


@dataclass
class Appended:
    """The result. ``skipped_rows`` were written by an earlier run of the same producer."""

    topic: str
    input: str
    format: str
    rows: int = 0
    portions: int = 0
    skipped_rows: int = 0
    dropped_rows: int = 0
    seconds: float = 0.0
    token: str = ""
    next_number: int = 1  # the line or row of the input that the next portion begins with

    def to_dict(self) -> dict[str, Any]:
        """The document of ``--json``."""
        return {name: value for name, value in asdict(self).items() if name != "next_number"}


def append_input(
    topic: EventTopic,
    source: InputFile,
    *,
    batch_rows: int,
    producer: str | None,
    quiet: bool,
    metadata: Metadata | None = None,
) -> Appended:
    """Append everything; an error says how much was written before it."""
    result = Appended(topic.name, source.shown, source.format)
    begun = topic.clock.monotonic()
    writer = topic.producer(producer) if producer is not None else None
    written_before = writer.last_sequence if writer is not None else -1
    token = Token({topic.name: {}})
    try:
        with _progress(source, quiet=quiet) as advance:
            portions = source.portions(topic, rows=batch_rows, linger=None if producer else LINGER_S)
            for sequence, portion in enumerate(portions):
                rows = portion.batch.num_rows
                if sequence < written_before:
                    result.skipped_rows += rows
                else:
                    with source.naming(portion.numbers):
                        appended = _append(topic, writer, portion, sequence, metadata)
                    token |= appended
                    if sequence == written_before:
                        result.skipped_rows += rows
                    else:
                        result.rows += rows - appended.dropped_rows
                        result.portions += 1
                        result.dropped_rows += appended.dropped_rows
                result.next_number = portion.numbers[-1] + 1
                advance(rows, portion.bytes_read)
    except HeadwaterError as error:
        raise _with_progress(error, result, source, producer) from None
    except KeyboardInterrupt:
        summary = f"interrupted; {result.rows:,} rows were written, the current batch possibly"
        console(stderr=True).print(summary)
        raise
    result.seconds = topic.clock.monotonic() - begun
    result.token = str(token)
    return result


def _append(
    topic: EventTopic, writer: Producer | None, portion: Portion, sequence: int, metadata: Metadata | None
) -> Token:
    if writer is None:
        return topic.append(portion.batch, metadata=metadata)
    return writer.append(portion.batch, sequence=sequence, metadata=metadata)


def _with_progress(error: HeadwaterError, result: Appended, source: InputFile, producer: str | None) -> HeadwaterError:
    """The same error, with the count of written rows and how to continue."""
    if result.rows or result.skipped_rows:
        progress_made = f"Before it, {result.rows:,} rows were written"
        progress_made += f" and {result.skipped_rows:,} recognised as written earlier" if result.skipped_rows else ""
        progress_made += "; nothing of this batch was."
    else:
        progress_made = "Nothing was written."
    if producer is not None:
        on = f"Correct it and run the same command again: producer {producer} skips what is written."
    elif result.rows:
        rest = f"the rest, from {source.unit} {result.next_number} on"
        on = f"Correct it and append {rest}; with --producer NAME a second run skips by itself."
    else:
        on = "Correct it and run the same command again."
    error.detail = f"{error.detail} {progress_made}" if error.detail else progress_made
    error.hint = f"{error.hint} {on}" if error.hint else on
    error.data.update(rows_written=result.rows, rows_skipped=result.skipped_rows)
    return error


@contextmanager
def _progress(source: InputFile, *, quiet: bool) -> Iterator[Any]:
    """A progress bar on stderr, if it is a terminal: bytes, rows, rows a second."""
    if quiet or not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    total = source.bytes_total
    sized: list[ProgressColumn] = [BarColumn(), TaskProgressColumn(), DownloadColumn(), TimeRemainingColumn()]
    columns = [TextColumn("{task.description}"), *(sized if total else []), TextColumn("{task.fields[progress_made]}")]
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task(source.shown, total=total, progress_made="")
        begun, seen = progress.get_time(), 0

        def advance(rows: int, at: int) -> None:
            nonlocal seen
            seen += rows
            rate = seen / max(progress.get_time() - begun, 1e-3)
            progress.update(task, completed=at, progress_made=f"{seen:,} rows  {show_count(rate)} rows/s")

        yield advance
