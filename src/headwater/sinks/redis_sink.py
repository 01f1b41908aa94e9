"""Redis: a view as keys, one for each row.

What it is: ``RedisSink``, a sink that stores each row as a hash (or one JSON text) under ``prefix:key``.
Invariants: a tick's rows and the progress are one MULTI … EXEC under WATCH of the progress, so a tick is complete or
absent and an older epoch is refused. A full copy is written under other names and renamed in one EXEC.
Not here: values as text (``text_values.py``).
Read next: ``text_values.py``; ``docs/sinks.md``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import Corruption, MissingExtra, SinkRefused, Unavailable
from headwater.log.schema.normalization import WEIGHT
from headwater.log.schema.row_conversion import to_rows
from headwater.sinks.sink import Sink, SinkContext, StoredProgress, Target, check_fence, is_next, reached
from headwater.sinks.text_values import json_rows, key_texts, plain_text
from headwater.views.serving.deliveries import Delivery, deletes, row_names, upserts

if TYPE_CHECKING:
    from headwater.log.contract import EventLog

OWN = "_headwater"
COUNT = "_count"  # multiplicity of a row of a view without a key
FORMS = ("hash", "json")
PIECE = 1000  # so many keys go into one command
CONNECT_SECONDS_MAX = 10
ANSWER_SECONDS_MAX = 60
LOOKS_MAX = 5  # retries after a concurrent change of the progress

Commands = list[tuple[Any, ...]]


@dataclass(frozen=True)
class RedisSink(Sink):
    """Keys ``prefix:key`` in a Redis; ``prefix`` defaults to the view's name.

    ``form`` is "hash" (a field for each column that is not null) or "json" (one text).

    >>> RedisSink("redis://:secret@cache.example.com/0", form="json")
    Redis(url='redis://:***@cache.example.com/0', prefix=None, form='json')
    """

    url: str = field(repr=False)
    prefix: str | None = None
    form: str = "hash"

    kind = "redis"
    by_key = True

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise SinkRefused(f"form cannot be {self.form!r}", hint=f"Use one of {', '.join(FORMS)}.")

    @property
    def layout(self) -> str:
        return self.form

    def open(self, context: SinkContext, log: EventLog) -> Target:
        del log
        with MissingExtra.raised_for("hw.sinks.Redis", "redis"):
            import redis
        client = redis.Redis.from_url(
            self.url, socket_connect_timeout=CONNECT_SECONDS_MAX, socket_timeout=ANSWER_SECONDS_MAX
        )
        return RedisTarget(context, client, self.prefix or context.view, self.form, str(self))

    def __str__(self) -> str:
        return re.sub(r"(//[^/@:]*:)[^@]*@", r"\1***@", self.url)

    def __repr__(self) -> str:
        return f"Redis(url={str(self)!r}, prefix={self.prefix!r}, form={self.form!r})"


class RedisTarget(Target):
    """The keys of one view."""

    def __init__(self, context: SinkContext, client: Any, prefix: str, form: str, title: str) -> None:
        super().__init__(context)
        self.client = client
        self.prefix = prefix
        self.form = form
        self.title = title
        self.progress_key = f"{OWN}:progress:{prefix}"
        self.keys_key = f"{OWN}:keys:{prefix}"  # the set of all keys that are rows
        self.filling_key = f"{OWN}:filling:{prefix}"  # the same of a full copy that is being written

    # The contract

    def progress(self) -> StoredProgress | None:
        with self._translated():
            return self._progress(self.client)

    def fill(self, rows: Iterable[pa.RecordBatch], tick: int, epoch: int) -> StoredProgress:
        with self._translated():
            check_fence(self._progress(self.client), self.context, epoch, filling=True)
            self._remove_unfinished()
            self._write_beside(rows)

            def swap(progress: StoredProgress | None, _: Any) -> Commands:
                check_fence(progress, self.context, epoch, filling=True)
                new, old = self._members(self.filling_key), self._members(self.keys_key)
                commands: Commands = [("DEL", *piece) for piece in _pieces(sorted(old - new))]
                commands += [("RENAME", self._beside(key), key) for key in new]
                commands.append(("RENAME", self.filling_key, self.keys_key) if new else ("DEL", self.keys_key))
                return commands

            return self._execute(swap, tick, epoch)

    def apply(self, delivery: Delivery) -> StoredProgress:

        def change(progress: StoredProgress | None, pipe: Any) -> Commands | None:
            if not is_next(progress, self.context, delivery):
                return None
            if not delivery.changes.num_rows:
                return []
            return (
                self._changes(delivery.changes) if self.context.key else self._multiset_changes(delivery.changes, pipe)
            )

        with self._translated():
            return self._execute(change, delivery.tick, delivery.epoch)

    def close(self) -> None:
        self.client.close()

    # Transactions and progress

    def _execute(
        self, commands_of: Callable[[StoredProgress | None, Any], Commands | None], tick: int, epoch: int
    ) -> StoredProgress:
        """Run commands and store the progress in one EXEC; None: nothing to do."""
        from redis.exceptions import WatchError

        for _ in range(LOOKS_MAX):
            with self.client.pipeline(transaction=True) as pipe:
                pipe.watch(self.progress_key)
                progress = self._progress(pipe)
                commands = commands_of(progress, pipe)
                if commands is None:
                    return reached(progress, self.context)
                pipe.multi()
                for command in commands:
                    pipe.execute_command(*command)
                about = {"sink": self.context.identity, "tick": tick, "epoch": epoch, "version": self.context.version}
                pipe.set(self.progress_key, json.dumps(about))
                try:
                    pipe.execute()
                except WatchError:
                    continue
                return StoredProgress(tick, epoch, self.context.version)
        raise Unavailable(
            f"other processes write to the keys {self.prefix}:… of {self.title} concurrently",
            hint="Run the app in one process.",
        )

    def _progress(self, client: Any) -> StoredProgress | None:
        stored = client.get(self.progress_key)
        if stored is None:
            return None
        about = json.loads(stored)
        if about["sink"] != self.context.identity:
            raise SinkRefused(
                f"the keys {self.prefix}:… of {self.title} belong to sink {about['sink']}",
                hint='Give the sink others: Redis(url, prefix="…").',
            )
        return StoredProgress(about["tick"], about["epoch"], about["version"])

    @contextmanager
    def _translated(self) -> Iterator[None]:
        import redis.exceptions as refusals

        try:
            yield
        except (refusals.ConnectionError, refusals.TimeoutError, refusals.BusyLoadingError, OSError) as error:
            raise Unavailable(
                f"Redis at {self.title} does not answer: {error}",
                hint="Check that it runs, and the password. It is retried.",
            ) from error
        except refusals.RedisError as error:
            full = str(error).startswith("OOM") or "MISCONF" in str(error)
            kind = Unavailable if full else SinkRefused
            raise kind(
                f'Redis refused the changes of sink "{self.context.sink}": {error}', hint="See its log."
            ) from error

    # Rows

    def _changes(self, changes: pa.Table) -> Commands:
        gone, come = deletes(changes, self.context.key), upserts(changes)
        leaving, coming = self._keys(gone), self._keys(come)
        commands: Commands = []
        for piece in _pieces(leaving):
            commands += [("DEL", *piece), ("SREM", self.keys_key, *piece)]
        for piece in _pieces(coming):
            # Delete the hash first: a column that became null must have no field.
            commands += [("DEL", *piece), ("SADD", self.keys_key, *piece)]
        return commands + self._writes(coming, come, None)

    def _multiset_changes(self, changes: pa.Table, pipe: Any) -> Commands:
        rows = changes.drop_columns([WEIGHT])
        keys = self._keys(rows)
        counts = [
            before + weight
            for before, weight in zip(self._counts(keys, pipe), changes.column(WEIGHT).to_pylist(), strict=True)
        ]
        if min(counts) < 0:
            raise Corruption(
                f'a row that leaves view "{self.context.view}" is not among the keys {self.prefix}:… of {self.title}',
                detail="Nothing of this tick was applied. Another program changed the keys, or Headwater was upgraded.",
                hint="The sink takes a full copy.",
            )
        gone = [key for key, count in zip(keys, counts, strict=True) if not count]
        commands: Commands = []
        for piece in _pieces(gone):
            commands += [("DEL", *piece), ("SREM", self.keys_key, *piece)]
        stay = pa.array([count > 0 for count in counts], pa.bool_())
        kept = [key for key, count in zip(keys, counts, strict=True) if count]
        commands += [("SADD", self.keys_key, *piece) for piece in _pieces(kept)]
        return commands + self._writes(kept, rows.filter(stay), [count for count in counts if count])

    def _counts(self, keys: Sequence[str], pipe: Any) -> list[int]:
        """The multiplicity of each row, stable while the progress is."""
        found: list[int] = []
        for piece in _pieces(keys):
            if self.form == "json":
                texts = pipe.mget(piece)
                found += [0 if text is None else json.loads(text)[COUNT] for text in texts]
            else:
                with self.client.pipeline(transaction=False) as asking:
                    for key in piece:
                        asking.hget(key, COUNT)
                    found += [int(count or 0) for count in asking.execute()]
        return found

    def _keys(self, rows: pa.Table) -> list[str]:
        if self.context.key:
            return [f"{self.prefix}:{text}" for text in key_texts(rows, self.context.key)]
        return [f"{self.prefix}:{name.hex()}" for name in row_names(rows)]

    def _writes(self, keys: Sequence[str], rows: pa.Table, counts: Sequence[int] | None) -> Commands:
        if self.form == "json":
            texts = json_rows(rows)
            if counts is not None:
                texts = [f'{text[:-1]},"{COUNT}":{count}}}' for text, count in zip(texts, counts, strict=True)]
            return [("SET", key, text) for key, text in zip(keys, texts, strict=True)]
        commands: Commands = []
        listed = [row for batch in rows.to_batches() for row in to_rows(batch)]
        for place, (key, row) in enumerate(zip(keys, listed, strict=True)):
            fields = [part for name, value in row.items() if value is not None for part in (name, plain_text(value))]
            if counts is not None:
                fields += [COUNT, str(counts[place])]
            commands.append(("HSET", key, *(fields or ["", ""])))  # a row of nulls needs a field too
        return commands

    # A full copy

    def _beside(self, key: str) -> str:
        return f"{self.filling_key}:{key}"

    def _members(self, key: str) -> set[str]:
        return {member.decode() for member in self.client.sscan_iter(key, count=PIECE)}

    def _remove_unfinished(self) -> None:
        for piece in _pieces(sorted(self._members(self.filling_key))):
            self.client.delete(*map(self._beside, piece))
        self.client.delete(self.filling_key)

    def _write_beside(self, rows: Iterable[pa.RecordBatch]) -> None:
        for batch in rows:
            table = pa.Table.from_batches([batch])
            with self.client.pipeline(transaction=False) as pipe:
                if self.context.key:
                    self._send_beside(pipe, self._keys(table), table, None)
                else:
                    self._send_multiset_beside(pipe, table)
                pipe.execute()

    def _send_multiset_beside(self, pipe: Any, table: pa.Table) -> None:
        """Add a batch of a multiset; a row may have occurred in an earlier batch."""
        places: dict[str, int] = {}
        counts: dict[str, int] = {}
        for place, key in enumerate(self._keys(table)):
            places.setdefault(key, place)
            counts[key] = counts.get(key, 0) + 1
        before = self._counts([self._beside(key) for key in places], self.client)
        summed = [count + earlier for count, earlier in zip(counts.values(), before, strict=True)]
        self._send_beside(pipe, list(places), table.take(pa.array(places.values(), pa.int64())), summed)

    def _send_beside(self, pipe: Any, keys: Sequence[str], rows: pa.Table, counts: Sequence[int] | None) -> None:
        for piece in _pieces(keys):
            pipe.execute_command("SADD", self.filling_key, *piece)
        for command, key, *values in self._writes(keys, rows, counts):
            pipe.execute_command(command, self._beside(key), *values)


def _pieces(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(keys), PIECE):
        yield keys[start : start + PIECE]
