"""A table: rows that are put, changed and taken away.

What it is: ``Table``, a topic seen as the state that its events leave. With a key the latest row of each key is the
state, and a topic with a key *is* a table. Without a key it is a bag: equal rows may be there several times.
Invariants: everything that changes a table is a record of its topic. In a bag each record has a weight, +1 or -1, and
no prefix of the log takes away a row that is not there: whoever takes rows away holds the table's lock while it looks
and appends, in all processes. Adding needs no lock, for it can only make more rows be there.
Not here: counting rows (``bag.py``), finding the rows that there are (``table_reader.py``).
Read next: ``table_reader.py``, ``bag.py``, ``docs/tables.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from headwater.errors import DeclarationConflict, InvalidDeclaration, Misuse, ReadOnlyHome, RowRefused, UnknownTopic
from headwater.log.bag import PARTITION, Bag, Missing
from headwater.log.schema.columns import shorten
from headwater.log.schema.ddl import to_ddl
from headwater.log.schema.normalization import WEIGHT
from headwater.log.schema.row_conversion import to_batches, to_rows
from headwater.log.storage.locks import FileLock
from headwater.log.table_reader import TableReader
from headwater.log.token import Token
from headwater.log.topic import Topic
from headwater.log.topic_declaration import open_or_declare, suggestion
from headwater.log.topic_description import topic_card
from headwater.log.topic_settings import TableOptions
from headwater.notebook import card_html

if TYPE_CHECKING:
    import pandas as pd

    from headwater.log.home import Log

LOCK_FILE = "bag.lock"
# These drop old records, and with them rows that are still in the table.
NOT_FOR_TABLES = ("retention_ms", "retention_bytes", "archive")


class Table:
    """A topic seen as the rows that it leaves.

    >>> import headwater as hw, tempfile
    >>> from headwater.log.table import declare_table
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> users = declare_table(log, "users", "id BIGINT, country STRING", key="id")
    >>> users.upsert([{"id": 7, "country": "DE"}, {"id": 9, "country": "FR"}])
    Token(frontier={'users': {0: 2}}, dropped_rows=0)
    >>> str(users.delete([{"id": 9}]))
    'users:0=3'
    >>> users
    Table(users, id BIGINT NOT NULL, country STRING, key=id)
    """

    def __init__(self, topic: Topic) -> None:
        if not topic.settings.key and not topic.row().is_bag:
            raise DeclarationConflict(
                f'"{topic.name}" is a topic without a key, not a table',
                detail="Its rows are events: none of them can be changed or taken away.",
                hint="Take another name, or copy the rows into a table.",
                topic=topic.name,
            )
        self.topic = topic
        self._bag = Bag(topic) if topic.row().is_bag else None
        self._schemas: tuple[int, pa.Schema, pa.Schema] | None = None

    @property
    def name(self) -> str:
        """The table's name, and its topic's."""
        return self.topic.name

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row; empty for a bag."""
        return self.topic.settings.key

    @property
    def is_bag(self) -> bool:
        """Whether it has no key."""
        return self._bag is not None

    @property
    def schema(self) -> pa.Schema:
        """The columns that were declared, in the latest version."""
        return self._schema_pair()[0]

    def upsert(self, rows: Any) -> Token:
        """Put rows; one whose key is there already takes the old one's place. Rows are what ``Topic.append`` takes.

        >>> import headwater as hw, tempfile
        >>> from headwater.log.table import declare_table
        >>> users = declare_table(hw.Log(tempfile.mkdtemp()), "users", "id BIGINT, name STRING", key="id")
        >>> _ = users.upsert([{"id": 1, "name": "Ada"}])
        >>> str(users.upsert([{"id": 1, "name": "Ada Lovelace"}]))
        'users:0=2'
        """
        if self.is_bag:
            raise Misuse(
                f'table "{self.name}" has no key, so no row can take another one\'s place',
                hint="Use insert to add rows and delete to take equal ones away, or declare a table with a key.",
                table=self.name,
            )
        self._refuse_captured()
        return self.topic.append(rows)

    def insert(self, rows: Any) -> Token:
        """Add rows to a table without a key; equal ones may be there already.

        >>> import headwater as hw, tempfile
        >>> from headwater.log.table import declare_table
        >>> basket = declare_table(hw.Log(tempfile.mkdtemp()), "basket", "fruit STRING")
        >>> _ = basket.insert([{"fruit": "apple"}, {"fruit": "apple"}])
        >>> str(basket.delete([{"fruit": "apple"}]))
        'basket:0=3'
        """
        if not self.is_bag:
            raise Misuse(
                f'table "{self.name}" has the key {", ".join(self.key)}, so rows are put, not inserted',
                detail="An insert would have to refuse keys that are there, which only a look at the state can tell.",
                hint="Use upsert: a new key is added, a known one replaced.",
                table=self.name,
            )
        self._refuse_captured()
        return self._append(to_batches(rows, self.schema), 1)

    def delete(self, rows: Any) -> Token:
        """Take rows away.

        With a key: rows, or dicts with at least the key; a key that is not there is no error. An event time that is
        given says since when the row is gone, for joins AS OF a moment; without, that is the time of this call.
        Without a key: whole rows, each takes one equal row away. When one of them is not there, the error says which,
        and none is taken.

        >>> import headwater as hw, tempfile
        >>> from headwater.log.table import declare_table
        >>> basket = declare_table(hw.Log(tempfile.mkdtemp()), "basket", "fruit STRING, ripe BOOLEAN")
        >>> _ = basket.insert([{"fruit": "apple", "ripe": None}])
        >>> basket.delete([{"fruit": "apple"}, {"fruit": "pear"}])
        Traceback (most recent call last):
            ...
        headwater.errors.RowRefused: row 1 (counted from 0) is not in table "basket": {'fruit': 'pear', 'ripe': None}
          Nothing of this call was done.
          Hint: A row is taken away by an equal one: every column counts, and a column that is not given is null.
        """
        self._refuse_captured()
        if self._bag is None:
            # Whole rows are welcome, only their keys count, and the event time: since when the row is gone.
            given = to_batches(rows, self._schema_pair()[1], not_null=frozenset(self.key))
            event_time = self.topic.settings.event_time
            told = [*self.key, *([event_time] if event_time and event_time not in self.key else [])]
            return self.topic.delete(given.select(told))
        lock = FileLock(self.topic.directory / LOCK_FILE)
        try:
            # The lock is made anew for each call, so that threads and forked children are kept apart as processes are.
            with lock:
                # A process that was killed may have taken rows that no reader sees yet; our append would show them.
                self.topic.partition(PARTITION).take_up()
                self._bag.catch_up()
                given = to_batches(rows, self.schema)  # after it, for catching up may have met a newer schema
                missing = self._bag.missing(given)
                if missing is not None:
                    raise self._not_there(given, missing)
                return self._append(given, -1)
        finally:
            lock.close()

    # Reading

    def to_arrow(self) -> pa.Table:
        """All rows that are in the table now, as an Arrow table, from the log: no Spark, and no tick is waited for.

        Every record of the table is read, also those that were replaced, in memory for about twice the rows that are
        there: seconds for a million records. For a table that is large or read often, declare a view of it,
        ``SELECT * FROM users``, whose rows the serving store has ready.

        >>> import headwater as hw, tempfile
        >>> users = hw.App("shop", home=tempfile.mkdtemp()).table("users", "id BIGINT, country STRING", key="id")
        >>> _ = users.upsert([{"id": 1, "country": "DE"}, {"id": 2, "country": "FR"}])
        >>> _ = users.upsert([{"id": 1, "country": "AT"}])
        >>> users.to_arrow().to_pydict()
        {'id': [2, 1], 'country': ['FR', 'AT']}
        """
        return TableReader(self.topic).all()

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas DataFrame (needs the extra ``pandas``); see ``to_arrow``.

        >>> import headwater as hw, tempfile
        >>> users = hw.App("shop", home=tempfile.mkdtemp()).table("users", "id BIGINT, country STRING", key="id")
        >>> _ = users.upsert([{"id": 1, "country": "DE"}])
        >>> users.to_pandas()
           id country
        0   1      DE
        """
        return self.to_arrow().to_pandas()

    def rows(self) -> Iterator[dict[str, Any]]:
        """All rows as dicts, as ``Topic.rows`` and ``View.rows`` give them; see ``to_arrow``.

        >>> import headwater as hw, tempfile
        >>> basket = hw.App("shop", home=tempfile.mkdtemp()).table("basket", "fruit STRING")
        >>> _ = basket.insert([{"fruit": "apple"}, {"fruit": "pear"}, {"fruit": "apple"}])
        >>> _ = basket.delete([{"fruit": "pear"}])
        >>> list(basket.rows())
        [{'fruit': 'apple'}, {'fruit': 'apple'}]
        """
        for batch in self.to_arrow().to_batches():
            yield from to_rows(batch)

    def get(self, *key: Any, **columns: Any) -> list[dict[str, Any]]:
        """The rows with this key, or with these values, as ``View.get`` gives them; from the log.

        By key one partition is read, by other columns everything; see ``to_arrow``. ``View.get`` of a view looks the
        row up instead.

        >>> import headwater as hw, tempfile
        >>> users = hw.App("shop", home=tempfile.mkdtemp()).table("users", "id BIGINT, country STRING", key="id")
        >>> _ = users.upsert([{"id": 1, "country": "DE"}, {"id": 2, "country": "FR"}])
        >>> users.get(2), users.get(country="DE"), users.get(3)
        ([{'id': 2, 'country': 'FR'}], [{'id': 1, 'country': 'DE'}], [])
        """
        if key and len(key) != len(self.key):
            asked = f"has the key {', '.join(self.key)}" if self.key else "has no key"
            raise Misuse(
                f'table "{self.name}" {asked}, and {len(key)} value{"s were" if len(key) > 1 else " was"} given',
                hint="Ask by columns: get(column=value).",
                table=self.name,
            )
        wanted = {**dict(zip(self.key, key, strict=False)), **columns}
        if not wanted:
            raise Misuse("get needs a key or columns", hint="For all rows: rows() or to_arrow().", table=self.name)
        return [row for batch in TableReader(self.topic).matching(wanted).to_batches() for row in to_rows(batch)]

    # Inside

    def _refuse_captured(self) -> None:
        capture = self.topic.settings.captured_by
        if capture is not None:
            raise Misuse(
                f'table "{self.name}" follows another database, by the capture "{capture}"',
                hint="Write to that database; or end the capture with: headwater capture drop",
                table=self.name,
            )

    def _append(self, rows: pa.RecordBatch, weight: int) -> Token:
        weights = pa.array([weight] * rows.num_rows, pa.int64())
        stored = pa.schema([pa.field(WEIGHT, pa.int64(), nullable=False), *rows.schema])
        return self.topic.append_batch(pa.RecordBatch.from_arrays([weights, *rows.columns], schema=stored))

    def _not_there(self, given: pa.RecordBatch, missing: Missing) -> RowRefused:
        row = to_rows(given.slice(missing.place, 1))[0]
        often = "is not" if not missing.there else f"is there {missing.there} times, and taken {missing.wanted} times,"
        return RowRefused(
            f'row {missing.place} (counted from 0) {often} in table "{self.name}": {shorten(row)}',
            detail="Nothing of this call was done.",
            hint="A row is taken away by an equal one: every column counts, and a column that is not given is null.",
            table=self.name,
            row=missing.place,
            there=missing.there,
            wanted=missing.wanted,
        )

    def _schema_pair(self) -> tuple[pa.Schema, pa.Schema]:
        """The user's columns, and the same with all of them nullable; the same objects until the schema grows."""
        version = self.topic.schema_version
        if self._schemas is None or self._schemas[0] != version:
            schema = pa.schema([field for field in self.topic.schema if field.name != WEIGHT])
            self._schemas = (version, schema, pa.schema([field.with_nullable(True) for field in schema]))
        return self._schemas[1:]

    def _repr_html_(self) -> str:
        return card_html(f"Table {self.name}", lambda: topic_card(self.topic, "Table"))

    def __repr__(self) -> str:
        key = f", key={', '.join(self.key)}" if self.key else ", a bag"
        return f"Table({self.name}, {to_ddl(self.schema)}{key})"


def declare_table(
    log: Log,
    name: str,
    schema: str | pa.Schema,
    key: str | Sequence[str] | None = None,
    **settings: Unpack[TableOptions],
) -> Table:
    """Declare a table. Without a ``key`` it is a bag. ``open_table`` finds one that exists.

    ``settings`` are those of a topic, but for those that drop old rows.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> declare_table(log, "basket", "fruit STRING")
    Table(basket, fruit STRING, a bag)
    >>> log.topic("basket", "fruit STRING")
    Traceback (most recent call last):
        ...
    headwater.errors.DeclarationConflict: "basket" is a table without a key, and cannot be declared otherwise
      Its rows have weights, so that one equal row can be taken away; no key tells them apart.
      Hint: Open it as what it is: app.table("basket", …) without a key. Or take another name.
    """
    _refuse_settings(name, settings, bag=key is None)
    if key is not None:
        return Table(log.topic(name, schema, key=key, **settings))
    log.check_open()
    if log.read_only:
        raise ReadOnlyHome(f"the home {log.home} cannot be written", hint="Find tables: app.get_table(name).")
    return Table(log.opened(open_or_declare(log.registry, name, schema, settings, log.clock.now_us(), bag=True)))


def open_table(log: Log, name: str) -> Table:
    """The table of this name; a topic with a key is one.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> _ = declare_table(log, "basket", "fruit STRING")
    >>> open_table(log, "basket")
    Table(basket, fruit STRING, a bag)
    """
    try:
        return Table(log.get_topic(name))
    except UnknownTopic:
        tables = [topic.name for topic in log.topics() if topic.settings.key or topic.row().is_bag]
        raise UnknownTopic(f'no table "{name}" in this home', hint=suggestion(name, tables), topic=name) from None


def _refuse_settings(name: str, settings: Mapping[str, Any], *, bag: bool) -> None:
    for setting in NOT_FOR_TABLES:
        if settings.get(setting) is not None:
            raise InvalidDeclaration(
                f'table "{name}" cannot have {setting}',
                detail="It drops old records, and rows that are still in the table with them.",
                hint="Delete rows instead." if bag else "Delete rows instead; compact=True drops what was replaced.",
                setting=setting,
            )
    if bag and settings.get("partitions", 1) != 1:
        raise InvalidDeclaration(
            f'table "{name}" has no key, so it has one partition, not {settings["partitions"]!r}',
            hint="Leave partitions out, or declare a key.",
        )
