"""Search: a view as an embedded full-text index.

What it is: ``SearchSink``, a sink that keeps a tantivy index of some text columns in a folder, and
``SearchSink.search``. Rows are stored whole, so a hit is the row.
Invariants: a tick's documents and the progress document are one commit of the index, under a lock, so an older epoch is
refused. A full copy is a new index, which one small file makes current.
Not here: the query language, which is tantivy's.
Read next: ``docs/sinks.md``.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import Corruption, InvalidQuery, MissingExtra, SinkRefused, Unavailable
from headwater.log.schema.normalization import WEIGHT
from headwater.log.schema.row_conversion import to_rows
from headwater.sinks.sink import (
    ROW_NAME,
    Leftover,
    Sink,
    SinkContext,
    StoredProgress,
    Target,
    check_fence,
    is_next,
    reached,
)
from headwater.sinks.sink_folder import SinkFolder, read_about
from headwater.sinks.text_values import json_rows, key_texts, plain_text
from headwater.views.serving.deliveries import Delivery, counted, deletes, row_names, upserts

if TYPE_CHECKING:
    from headwater.log.contract import EventLog

CURRENT = "_current.json"
ROW, COUNT = "_hw_json", "_hw_count"
PROGRESS = "progress"  # the id of the progress document
HEAP_BYTES = 50_000_000


@dataclass(frozen=True)
class SearchSink(Sink):
    """A full-text index in a folder: of the ``text`` columns, with ``terms`` columns that are looked up as they are.

    >>> SearchSink("articles.index", text=["title", "body"], terms=["language"]).text
    ('title', 'body')
    """

    path: str | os.PathLike[str]
    text: Sequence[str]
    terms: Sequence[str] = ()
    tokenizer: str = "default"  # or "en_stem": as tantivy calls them

    kind = "search"
    copy_replaces = True
    by_key = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", tuple(self.text))
        object.__setattr__(self, "terms", tuple(self.terms))

    @property
    def layout(self) -> str:
        return json.dumps([self.text, self.terms, self.tokenizer])

    def open(self, context: SinkContext, log: EventLog) -> Target:
        _required()
        return SearchTarget(context, log, self)

    def search(self, query: str, *, limit: int = 10) -> list[dict[str, Any]]:
        """The best rows for a query, the best first, each with its ``_score``. From any process.

        Words are looked for in all text columns; ``title:word``, ``"two words"``, ``-word`` and ``AND`` work too.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("wiki", home=tempfile.mkdtemp())
        >>> pages = app.table("pages", "id BIGINT, title STRING", key="id")
        >>> _ = app.view("titles", "SELECT id, title FROM pages")
        >>> index = hw.sinks.Search(tempfile.mkdtemp(), text=["title"])
        >>> _ = app.sink("titles", index)
        >>> _ = pages.upsert([{"id": 1, "title": "Rivers of Europe"}, {"id": 2, "title": "Lakes"}])
        >>> _ = app.tick()
        >>> [row["id"] for row in index.search("rivers")]
        [1]
        """
        _required()
        about = read_about(Path(self.path) / CURRENT)
        if about is None:
            raise Unavailable(f"there is no index in {os.fspath(self.path)} yet", hint="Run the app.")
        index = opened(Path(self.path), about)
        try:
            parsed = index.parse_query(query, about["text"])
        except ValueError as error:
            raise InvalidQuery(f"invalid search query: {error}", hint='Quote special characters: "a:b".') from error
        searcher = index.searcher()
        # One more, because "*" also finds the progress document, which has no count.
        found = [(score, searcher.doc(place)) for score, place in searcher.search(parsed, limit + 1).hits]
        rows = [(score, one) for score, one in found if one.get_first(COUNT) is not None]
        return [{**json.loads(one.get_first(ROW)), "_score": round(score, 4)} for score, one in rows[:limit]]

    def __str__(self) -> str:
        return f"search:{os.fspath(self.path)}"


def _required() -> None:
    with MissingExtra.raised_for("hw.sinks.Search", "search"):
        import tantivy  # noqa: F401


def opened(folder: Path, about: Any) -> Any:
    """The index that it names."""
    import tantivy

    index = tantivy.Index.open(str(folder / about["index"]))
    index.reload()
    return index


class SearchTarget(Target):
    """The index."""

    def __init__(self, context: SinkContext, log: EventLog, sink: SearchSink) -> None:
        super().__init__(context)
        self.folder = Path(sink.path)
        self.sink = sink
        self._files = log.local.files
        self._place = SinkFolder(self.folder, CURRENT, log.local.files)
        for name in (*sink.text, *sink.terms):
            if name not in context.schema.names:
                raise SinkRefused(
                    f'view "{context.view}" has no column "{name}" to search in',
                    hint=f"It has: {', '.join(context.schema.names)}.",
                    column=name,
                )

    # The contract

    def progress(self) -> StoredProgress | None:
        about = self._place.stored(self.context.identity)
        return None if about is None else self._progress(opened(self.folder, about))

    def fill(self, rows: Iterable[pa.RecordBatch], tick: int, epoch: int) -> StoredProgress:
        import tantivy

        with self._place.alone():
            check_fence(self.progress(), self.context, epoch, filling=True)
            name = f"index-{uuid.uuid4().hex[:12]}"
            self._files.make_dir(self.folder / name, label="sink.make_directory")
            index = tantivy.Index(self._schema(), str(self.folder / name))
            with _writing(index) as writer:
                if self.context.key:
                    for batch in rows:
                        table = pa.Table.from_batches([batch])
                        self._add(writer, key_texts(table, self.context.key), table, None)
                else:
                    table, names, counts = counted(rows, self.context.schema)
                    self._add(writer, [each.hex() for each in names], table, counts)
                progress = self._remember(writer, tick, epoch)
            self._make_current(name)
            return progress

    def apply(self, delivery: Delivery) -> StoredProgress:
        with self._place.alone():
            about = self._place.stored(self.context.identity)
            index = None if about is None else opened(self.folder, about)
            progress = None if index is None else self._progress(index)
            if index is None or not is_next(progress, self.context, delivery):
                return reached(progress, self.context)
            with _writing(index) as writer:
                if self.context.key:
                    self._change(writer, delivery.changes)
                else:
                    self._change_bag(writer, index, delivery.changes)
                return self._remember(writer, delivery.tick, delivery.epoch)

    def forget(self) -> Leftover | None:
        return None  # a full copy was made, which removes what was there before

    # Documents

    def _schema(self) -> Any:
        import tantivy

        builder = tantivy.SchemaBuilder()
        builder.add_text_field(ROW_NAME, stored=False, tokenizer_name="raw", index_option="basic")
        builder.add_bytes_field(ROW, stored=True)
        builder.add_integer_field(COUNT, stored=True)
        for name in (*self.sink.text, *self.sink.terms):
            if not tantivy.SchemaBuilder.is_valid_field_name(name):
                raise SinkRefused(
                    f'a column cannot be searched by the name "{name}"',
                    hint="Give it a name of letters, digits and underscores in the view's SQL: AS …",
                )
            tokenizer = self.sink.tokenizer if name in self.sink.text else "raw"
            builder.add_text_field(name, stored=False, tokenizer_name=tokenizer)
        return builder.build()

    def _change(self, writer: Any, changes: pa.Table) -> None:
        gone, come = deletes(changes, self.context.key), upserts(changes)
        names = key_texts(come, self.context.key)
        for name in (*key_texts(gone, self.context.key), *names):
            writer.delete_documents_by_term(ROW_NAME, f"row:{name}")
        self._add(writer, names, come, None)

    def _change_bag(self, writer: Any, index: Any, changes: pa.Table) -> None:
        searcher = index.searcher()
        rows = changes.drop_columns([WEIGHT])
        names = [name.hex() for name in row_names(rows)]
        counts = []
        for name, weight in zip(names, changes.column(WEIGHT).to_pylist(), strict=True):
            found = self._document(index, searcher, f"row:{name}")
            counts.append(weight + (0 if found is None else found.get_first(COUNT)))
            writer.delete_documents_by_term(ROW_NAME, f"row:{name}")
        if counts and min(counts) < 0:
            raise Corruption(
                f'a row that leaves view "{self.context.view}" is not in the index {self.folder}',
                detail="Nothing of this tick was applied. The index was changed elsewhere, or Headwater was upgraded.",
                hint="The sink takes a full copy.",
            )
        stay = pa.array([count > 0 for count in counts], pa.bool_())
        kept = [name for name, count in zip(names, counts, strict=True) if count]
        self._add(writer, kept, rows.filter(stay), [count for count in counts if count])

    def _add(self, writer: Any, names: Sequence[str], rows: pa.Table, counts: Sequence[int] | None) -> None:
        import tantivy

        texts = json_rows(rows)
        listed = [row for batch in rows.to_batches() for row in to_rows(batch)]
        for place, (name, text, row) in enumerate(zip(names, texts, listed, strict=True)):
            document = tantivy.Document()
            document.add_text(ROW_NAME, f"row:{name}")
            document.add_bytes(ROW, text.encode())
            document.add_integer(COUNT, 1 if counts is None else counts[place])
            for column in (*self.sink.text, *self.sink.terms):
                value = row[column]
                for one in value if isinstance(value, list) else [value]:
                    if one is not None:
                        word = plain_text(one)
                        document.add_text(column, word.hex() if isinstance(word, bytes) else str(word))
            writer.add_document(document)

    # Progress

    def _document(self, index: Any, searcher: Any, name: str) -> Any:
        import tantivy

        hits = searcher.search(tantivy.Query.term_query(index.schema, ROW_NAME, name), 1).hits
        return searcher.doc(hits[0][1]) if hits else None

    def _progress(self, index: Any) -> StoredProgress | None:
        found = self._document(index, index.searcher(), PROGRESS)
        if found is None:
            return None
        about = json.loads(found.get_first(ROW))
        return StoredProgress(about["tick"], about["epoch"], about["version"])

    def _remember(self, writer: Any, tick: int, epoch: int) -> StoredProgress:
        import tantivy

        about = {"tick": tick, "epoch": epoch, "version": self.context.version}
        writer.delete_documents_by_term(ROW_NAME, PROGRESS)
        document = tantivy.Document()
        document.add_text(ROW_NAME, PROGRESS)
        document.add_bytes(ROW, json.dumps(about).encode())
        writer.add_document(document)
        return StoredProgress(tick, epoch, self.context.version)

    def _make_current(self, name: str) -> None:
        about = {"index": name, "sink": self.context.identity, "text": list(self.sink.text)}
        self._place.replace(about)
        for left in self.folder.glob("index-*"):
            if left.name != name:
                shutil.rmtree(left, ignore_errors=True)  # readers keep it open


@contextmanager
def _writing(index: Any) -> Iterator[Any]:
    """A writer whose documents are committed at the end of the block, all or none."""
    writer = index.writer(HEAP_BYTES, 1)
    try:
        # A process killed during a commit leaves files whose names the next commit uses again.
        writer.garbage_collect_files()
        yield writer
        writer.commit()
    except BaseException:
        writer.rollback()
        raise
    finally:
        writer.wait_merging_threads()
