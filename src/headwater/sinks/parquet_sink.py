"""Parquet: a view as files in a folder, with its previous ticks.

What it is: ``ParquetSink``, a sink that rewrites the partitions a tick touches, and ``_progress.json``, which lists the
files of each kept tick.
Invariants: data files are written once and synced before ``_progress.json`` lists them; that file is replaced by one
rename under a lock, so a tick is complete or absent and an older epoch is refused. Unlisted files are removed
afterwards.
Not here: consolidation (``views/state/algebra.py``).
Read next: ``delta_sink.py``, which leaves this to Delta; ``docs/sinks.md``.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as kinds

from headwater.errors import Corruption, InvalidDeclaration, OffsetOutOfRange, SinkRefused, Unavailable
from headwater.log.schema.ddl import spark_type
from headwater.log.schema.normalization import WEIGHT
from headwater.log.schema.row_conversion import to_values
from headwater.log.schema.row_identity import comparable
from headwater.log.storage.files import translated
from headwater.sinks.sink import Leftover, Sink, SinkContext, StoredProgress, Target, check_fence, is_next, reached
from headwater.sinks.sink_folder import SinkFolder, read_about
from headwater.sinks.text_values import key_text
from headwater.views.serving.deliveries import Delivery
from headwater.views.state.algebra import consolidate, expand

if TYPE_CHECKING:
    from headwater.log.contract import EventLog

PROGRESS_FILE = "_progress.json"
DATA = "data"
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"

Files = dict[str, list[str]]  # the files of each partition, by the partition's text


@dataclass(frozen=True)
class ParquetSink(Sink):
    """A folder of Parquet files, partitioned by some of the view's columns; the last ``kept`` ticks can be read.

    A tick rewrites the partitions that it touches, and without ``partition_by`` the whole view.

    >>> ParquetSink("revenue", partition_by=["country"]).partition_by
    ('country',)
    """

    path: str | os.PathLike[str]
    partition_by: Sequence[str] = ()
    kept: int = 10

    kind = "parquet"
    copy_replaces = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "partition_by", tuple(self.partition_by))
        if self.kept < 1:
            raise InvalidDeclaration("a Parquet sink keeps at least one tick", hint="kept=1 keeps the last one.")

    @property
    def layout(self) -> str:
        return ",".join(self.partition_by)

    def open(self, context: SinkContext, log: EventLog) -> Target:
        return ParquetTarget(context, log, self)

    def files(self, tick: int | None = None) -> list[Path]:
        """The Parquet files that are the view at a tick, or at the last one; see ``read``."""
        stored = read_about(Path(self.path) / PROGRESS_FILE)
        if stored is None:
            raise Unavailable(f"there is no copy of a view in {os.fspath(self.path)} yet", hint="Run the app.")
        found = [each for each in stored["ticks"] if tick is None or each["tick"] <= tick]
        if not found or (tick is not None and tick > stored["tick"]):
            first, last = stored["ticks"][0]["tick"], stored["tick"]
            raise OffsetOutOfRange(
                f"tick {tick} is not kept in {os.fspath(self.path)}",
                hint=f"Kept are ticks {first} to {last}.",
                tick=tick,
            )
        return [Path(self.path) / name for names in found[-1]["files"].values() for name in names]

    def read(self, tick: int | None = None) -> pa.Table:
        """The view's rows at a tick, or at the last one.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> _ = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        >>> copy = hw.sinks.Parquet(tempfile.mkdtemp())
        >>> _ = app.sink("countries", copy)
        >>> _ = users.upsert([{"id": 1, "country": "DE"}])
        >>> _ = app.tick()
        >>> copy.read().to_pylist(), len(copy.files(tick=1))
        ([{'country': 'DE', 'users': 1}], 1)
        """
        return pa.concat_tables([pq.read_table(path, partitioning=None) for path in self.files(tick)])

    def __str__(self) -> str:
        return f"parquet:{os.fspath(self.path)}"


class ParquetTarget(Target):
    """The folder."""

    def __init__(self, context: SinkContext, log: EventLog, sink: ParquetSink) -> None:
        super().__init__(context)
        self.folder = Path(sink.path)
        self.partition_by = tuple(sink.partition_by)
        self.kept = sink.kept
        self._files = log.local.files
        self._place = SinkFolder(self.folder, PROGRESS_FILE, log.local.files)
        for name in self.partition_by:
            if name not in context.schema.names:
                raise SinkRefused(
                    f'view "{context.view}" has no column "{name}" to partition by',
                    hint=f"It has: {', '.join(context.schema.names)}.",
                )
            if kinds.is_nested(context.schema.field(name).type):
                raise SinkRefused(
                    f'view "{context.view}" cannot be partitioned by "{name}": '
                    f"{spark_type(context.schema.field(name).type)} is no name of a folder",
                    hint="Partition by one of its parts: give it a column of its own in the view's SQL.",
                    column=name,
                )

    # The contract

    def progress(self) -> StoredProgress | None:
        stored = self._place.stored(self.context.identity)
        return None if stored is None else StoredProgress(stored["tick"], stored["epoch"], stored["version"])

    def fill(self, rows: Iterable[pa.RecordBatch], tick: int, epoch: int) -> StoredProgress:
        with self._place.alone():
            check_fence(self.progress(), self.context, epoch, filling=True)
            files: Files = {}
            for batch in rows:
                for partition, piece in self._partitions(pa.Table.from_batches([batch])):
                    files.setdefault(partition, []).append(self._write(partition, piece, tick))
            if not files:
                files[""] = [self._write("", self.context.schema.empty_table(), tick)]
            return self._commit(tick, epoch, files, None)

    def apply(self, delivery: Delivery) -> StoredProgress:
        with self._place.alone():
            stored, progress = self._place.stored(self.context.identity), self.progress()
            if stored is None or not is_next(progress, self.context, delivery):
                return reached(progress, self.context)
            files: Files = dict(stored["ticks"][-1]["files"])
            for partition, changes in self._partitions(delivery.changes):
                rows = self._changed(files.get(partition, []), changes)
                files[partition] = [self._write(partition, rows, delivery.tick)] if rows.num_rows else []
            files = {partition: names for partition, names in files.items() if names}
            if not files:
                files[""] = [self._write("", self.context.schema.empty_table(), delivery.tick)]
            return self._commit(delivery.tick, delivery.epoch, files, stored)

    def forget(self) -> Leftover | None:
        return None  # a full copy was made, which removes what was there before

    # Rows

    def _partitions(self, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """The table by partitions: equal values are in one, as GROUP BY has it, also NaN and dates far away."""
        if not self.partition_by or not table.num_rows:
            if table.num_rows:
                yield "", table
            return
        columns = [comparable(table.column(name)) for name in self.partition_by]
        names = [str(place) for place in range(len(columns))]
        rows = pa.array(np.arange(table.num_rows))
        grouping = pa.Table.from_arrays([*columns, rows], [*names, "row"])
        groups = grouping.group_by(names, use_threads=False).aggregate([("row", "list")])
        texts = [to_values(groups.column(name).combine_chunks()) for name in names]
        for values, places in zip(zip(*texts, strict=True), groups.column("row_list"), strict=True):
            yield _folder_of(dict(zip(self.partition_by, values, strict=True))), table.take(places.values)

    def _changed(self, names: Sequence[str], changes: pa.Table) -> pa.Table:
        schema = changes.schema
        before = [pq.read_table(self.folder / name, partitioning=None) for name in names]
        weighted = [
            table.append_column(WEIGHT, pa.array(np.ones(table.num_rows, np.int64))).cast(schema) for table in before
        ]
        rows = consolidate(pa.concat_tables([*weighted, changes]))
        if rows.num_rows and pc.min(rows.column(WEIGHT)).as_py() < 0:
            raise Corruption(
                f'a row that leaves view "{self.context.view}" is not in the files of {self.folder}',
                detail="Nothing of this tick was applied. Another program changed the files.",
                hint="The sink takes a full copy.",
            )
        return expand(rows)

    def _write(self, partition: str, rows: pa.Table, tick: int) -> str:
        """Write a data file, not listed yet; returns its name in the folder."""
        name = f"{DATA}/{partition + '/' if partition else ''}{tick:012d}-{uuid.uuid4().hex[:12]}.parquet"
        path = self.folder / name
        self._files.make_dir(path.parent, label="sink.make_directory")
        with translated(f"write {path}"):
            pq.write_table(rows.cast(self.context.schema), path, compression="zstd")
        self._sync(path)
        return name

    # Progress

    def _commit(self, tick: int, epoch: int, files: Files, before: Mapping[str, Any] | None) -> StoredProgress:
        ticks = [*(before["ticks"] if before else []), {"tick": tick, "files": files}][-self.kept :]
        about = {
            "sink": self.context.identity,
            "tick": tick,
            "epoch": epoch,
            "version": self.context.version,
            "key": list(self.context.key),
            "partition_by": list(self.partition_by),
            "ticks": ticks,
        }
        self._place.replace(about)
        self._prune({name for each in ticks for names in each["files"].values() for name in names})
        return StoredProgress(tick, epoch, self.context.version)

    def _prune(self, listed: set[str]) -> None:
        for path in (self.folder / DATA).rglob("*.parquet"):
            if path.relative_to(self.folder).as_posix() not in listed:
                self._files.unlink(path, label="sink.prune")

    def _sync(self, path: Path) -> None:
        fd = self._files.create(path, label="sink.open")
        try:
            self._files.sync(fd, label="sink.sync")
        finally:
            os.close(fd)
        self._files.sync_dir(path.parent, label="sink.sync_directory")


def _folder_of(row: Mapping[str, Any]) -> str:
    """A partition's folder, as Hive names them.

    >>> _folder_of({"country": "DE", "day": None, "city": "a/b"})
    'country=DE/day=__HIVE_DEFAULT_PARTITION__/city=a%2Fb'
    """
    return "/".join(
        f"{quote(name, safe='')}={NULL_PARTITION if value is None else quote(key_text([value]), safe='')}"
        for name, value in row.items()
    )
