"""Table: a topic seen as the current state of its rows.

What it is: ``Table``. With a key the latest row of each key is the state: a keyed topic *is* a table. Without a key it
is a multiset: equal rows may occur several times.
Invariants: every change of a table is a record of its topic. In a multiset each record has a weight, +1 or -1, and no
prefix of the log removes a row that is not there (``multiset.py``). ``insert`` needs no lock, since it only adds rows.
Not here: finding the current rows (``table_reader.py``).
Read next: ``table_reader.py``, ``topic.py``, ``docs/tables.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from headwater.errors import DeclarationConflict, InvalidDeclaration, Misuse, RowRefused, UnknownTopic
from headwater.hints import suggestion
from headwater.log.commits.value_versions import values_of
from headwater.log.schema.ddl import to_ddl
from headwater.log.schema.event_metadata import Metadata, with_metadata
from headwater.log.schema.normalization import WEIGHT
from headwater.log.schema.personal_columns import Personal
from headwater.log.schema.row_conversion import to_batches, to_rows
from headwater.log.table_reader import TableReader
from headwater.log.token import Token
from headwater.log.topic_description import topic_card
from headwater.log.topic_settings import TableOptions
from headwater.notebook import card_html

if TYPE_CHECKING:
    import pandas as pd

    from headwater.log.contract import EventLog, EventTopic

# These drop old records, and with them current rows of the table.
NOT_FOR_TABLES = ("retention", "retention_bytes", "until_read", "archive")


class Table:
    """A topic seen as the current state of its rows.

    >>> import headwater as hw, tempfile
    >>> from headwater.log.table import declare_table
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> users = declare_table(log, "users", "id BIGINT, country STRING", key="id")
    >>> users.upsert([{"id": 7, "country": "DE"}, {"id": 9, "country": "FR"}])
    Token(frontier={'users': {0: 2}}, dropped_rows=0)
    >>> str(users.delete([{"id": 9}]))
    'users:0=3'
    >>> users.name, users.key, users.is_multiset, users.schema.names
    ('users', ('id',), False, ['id', 'country'])
    >>> users
    Table(users, id BIGINT NOT NULL, country STRING, key=id)
    """

    def __init__(self, topic: EventTopic) -> None:
        if not topic.settings.key and not topic.row().is_multiset:
            raise DeclarationConflict(
                f'"{topic.name}" is a topic without a key, not a table',
                detail="Its rows are events, which cannot be changed or deleted.",
                hint="Take another name, or copy the rows into a table.",
                topic=topic.name,
            )
        self.topic = topic
        self._schemas: tuple[int, pa.Schema, pa.Schema] | None = None

    @property
    def name(self) -> str:
        """The table's name, and its topic's."""
        return self.topic.name

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row; empty for a multiset."""
        return self.topic.settings.key

    @property
    def is_multiset(self) -> bool:
        """Whether it has no key."""
        return self.topic.row().is_multiset

    @property
    def schema(self) -> pa.Schema:
        """The columns that were declared, in the latest version."""
        return self._schema_pair()[0]

    @property
    def privacy(self) -> dict[str, Personal]:
        """The personal columns, each with its declaration; empty where none are declared.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT", key="id", privacy={"id": hw.Personal("user_id")})
        >>> users.privacy["id"].subject
        'user_id'
        """
        return dict(self.topic.settings.privacy)

    def upsert(
        self,
        rows: Any,
        *,
        request_id: str | None = None,
        if_version: int | None = None,
        metadata: Metadata | None = None,
    ) -> Token:
        """Insert rows, or replace those of the same key. Accepts the same rows as ``Topic.append``.

        ``request_id``: a repeated call is recognised. ``if_version``: only if the row still has the version that
        ``version`` gave; ``VersionConflict`` tells the current one. ``metadata``: who did it, see ``Metadata``.

        >>> import headwater as hw, tempfile
        >>> from headwater.log.table import declare_table
        >>> users = declare_table(hw.Log(tempfile.mkdtemp()), "users", "id BIGINT, name STRING", key="id")
        >>> _ = users.upsert([{"id": 1, "name": "Ada"}])
        >>> str(users.upsert([{"id": 1, "name": "Ada Lovelace"}]))
        'users:0=2'
        >>> users.version(1)
        2
        >>> users.upsert([{"id": 1, "name": "A. Lovelace"}], if_version=1)
        Traceback (most recent call last):
            ...
        headwater.errors.VersionConflict: id=1 of "users" has version 2; expected was 1
          Another writer came first. Nothing was written.
          Hint: Read it again, decide again, and append with the version that you have seen.
        """
        batch = with_metadata(self.upserts(rows), metadata)
        return self.topic.append_batch(batch, request_id=request_id, expected=if_version)

    def version(self, *key: Any) -> int:
        """The version of the row with this key, for ``upsert(…, if_version=…)``; 0 when there is none.

        >>> import headwater as hw, tempfile
        >>> users = hw.App("shop", home=tempfile.mkdtemp()).table("users", "id BIGINT, name STRING", key="id")
        >>> _ = users.upsert([{"id": 1, "name": "Ada"}])
        >>> users.version(1), users.version(2)
        (1, 0)
        """
        if self.is_multiset:
            raise Misuse(f'table "{self.name}" has no key, so its rows have no versions', table=self.name)
        return self.topic.version(*key)

    def insert(self, rows: Any, *, request_id: str | None = None, metadata: Metadata | None = None) -> Token:
        """Add rows. With a key, a row whose key is there refuses all of them; without, equal rows may exist already.

        >>> import headwater as hw, tempfile
        >>> from headwater.log.table import declare_table
        >>> basket = declare_table(hw.Log(tempfile.mkdtemp()), "basket", "fruit STRING")
        >>> _ = basket.insert([{"fruit": "apple"}, {"fruit": "apple"}])
        >>> str(basket.delete([{"fruit": "apple"}]))
        'basket:0=3'
        >>> users = declare_table(hw.Log(tempfile.mkdtemp()), "users", "id BIGINT, name STRING", key="id")
        >>> _ = users.insert([{"id": 1, "name": "Ada"}])
        >>> users.insert([{"id": 1, "name": "Grace"}])
        Traceback (most recent call last):
            ...
        headwater.errors.VersionConflict: id=1 of "users" has version 1; expected was 'none'
          Another writer came first. Nothing was written.
          Hint: Read it again, decide again, and append with the version that you have seen.
        """
        batch = with_metadata(self.inserts(rows), metadata)
        return self.topic.append_batch(batch, request_id=request_id, expected="none" if self.key else None)

    def delete(self, rows: Any, *, request_id: str | None = None, metadata: Metadata | None = None) -> Token:
        """Delete rows.

        With a key: rows, or dicts with at least the key; an unknown key is no error. A given event time is the time of
        the deletion, for joins AS OF a moment; by default it is the time of this call. Without a key: whole rows, each
        deletes one equal row. If one of them does not exist, the error names it and none is deleted.

        >>> import headwater as hw, tempfile
        >>> from headwater.log.table import declare_table
        >>> basket = declare_table(hw.Log(tempfile.mkdtemp()), "basket", "fruit STRING, ripe BOOLEAN")
        >>> _ = basket.insert([{"fruit": "apple", "ripe": None}])
        >>> basket.delete([{"fruit": "apple"}, {"fruit": "pear"}])
        Traceback (most recent call last):
            ...
        headwater.errors.RowRefused: row 1 (counted from 0) is not in table "basket": {'fruit': 'pear', 'ripe': None}
          Nothing of this call was done.
          Hint: A row is deleted by an equal one: every column counts, and a missing column is null.
        """
        batch = with_metadata(self.deletes(rows), metadata)
        if not self.is_multiset:
            return self.topic.append_batch(batch, deleted=True, request_id=request_id)
        return self.topic.remove(batch, request_id=request_id)

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

    # Checked batches, for an append or a transaction

    def upserts(self, rows: Any) -> pa.RecordBatch:
        """The rows of an upsert."""
        if self.is_multiset:
            raise Misuse(
                f'table "{self.name}" has no key, so no row can be replaced',
                hint="Use insert and delete, or declare a table with a key.",
                table=self.name,
            )
        self._refuse_captured()
        return self.topic.row_batch(rows)

    def inserts(self, rows: Any) -> pa.RecordBatch:
        """The rows of an insert; without a key, with their weights."""
        if not self.is_multiset:
            batch = self.upserts(rows)
            values = values_of(batch, self.key)
            if len(set(values)) < len(values):
                raise RowRefused(f'two rows of an insert into table "{self.name}" have the same key', table=self.name)
            return batch
        self._refuse_captured()
        return _weighted(to_batches(rows, self.schema), 1)

    def deletes(self, rows: Any) -> pa.RecordBatch:
        """The tombstones of a deletion by key; without a key the rows that are taken away, with their weights.

        Whole rows are accepted; of those with a key, the key and the event time count.
        """
        self._refuse_captured()
        if self.is_multiset:
            return _weighted(to_batches(rows, self.schema), -1)
        given = to_batches(rows, self._schema_pair()[1], not_null=frozenset(self.key))
        event_time = self.topic.settings.event_time
        kept = [*self.key, *([event_time] if event_time and event_time not in self.key else [])]
        return self.topic.appender.tombstones(given.select(kept))

    # Inside

    def _refuse_captured(self) -> None:
        capture = self.topic.settings.captured_by
        if capture is not None:
            raise Misuse(
                f'table "{self.name}" follows another database, by the capture "{capture}"',
                hint="Write to that database; or end the capture with: headwater capture drop",
                table=self.name,
            )

    def _schema_pair(self) -> tuple[pa.Schema, pa.Schema]:
        """The user's columns, and the same with all of them nullable; cached until the schema grows."""
        version = self.topic.schema_version
        if self._schemas is None or self._schemas[0] != version:
            schema = pa.schema([field for field in self.topic.schema if field.name != WEIGHT])
            self._schemas = (version, schema, pa.schema([field.with_nullable(True) for field in schema]))
        return self._schemas[1:]

    def _repr_html_(self) -> str:
        return card_html(f"Table {self.name}", lambda: topic_card(self.topic, "Table"))

    def __repr__(self) -> str:
        key = f", key={', '.join(self.key)}" if self.key else ", a multiset"
        return f"Table({self.name}, {to_ddl(self.schema)}{key})"


def _weighted(rows: pa.RecordBatch, weight: int) -> pa.RecordBatch:
    weights = pa.array([weight] * rows.num_rows, pa.int64())
    stored = pa.schema([pa.field(WEIGHT, pa.int64(), nullable=False), *rows.schema])
    return pa.RecordBatch.from_arrays([weights, *rows.columns], schema=stored)


def declare_table(
    log: EventLog,
    name: str,
    schema: str | pa.Schema,
    key: str | Sequence[str] | None = None,
    **settings: Unpack[TableOptions],
) -> Table:
    """Declare a table. Without a ``key`` it is a multiset. ``open_table`` finds one that exists.

    ``settings`` are those of a topic, except for those that drop old rows.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> declare_table(log, "basket", "fruit STRING")
    Table(basket, fruit STRING, a multiset)
    >>> log.topic("basket", "fruit STRING")
    Traceback (most recent call last):
        ...
    headwater.errors.DeclarationConflict: "basket" is a table without a key and cannot be declared as anything else
      Its rows have weights, so that one of several equal rows can be deleted.
      Hint: Open it as a table: app.table("basket", …) without a key. Or choose another name.
    """
    _refuse_settings(name, settings, multiset=key is None)
    if key is not None:
        return Table(log.topic(name, schema, key=key, **settings))
    return Table(log.multiset(name, schema, **settings))


def open_table(log: EventLog, name: str) -> Table:
    """The table of this name; a topic with a key is one.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> _ = declare_table(log, "basket", "fruit STRING")
    >>> open_table(log, "basket")
    Table(basket, fruit STRING, a multiset)
    """
    try:
        return Table(log.get_topic(name))
    except UnknownTopic:
        tables = [topic.name for topic in log.topics() if topic.settings.key or topic.row().is_multiset]
        raise UnknownTopic(f'no table "{name}" in this home', hint=suggestion(name, tables), topic=name) from None


def _refuse_settings(name: str, settings: Mapping[str, Any], *, multiset: bool) -> None:
    for setting in NOT_FOR_TABLES:
        if settings.get(setting) is not None:
            raise InvalidDeclaration(
                f'table "{name}" cannot have {setting}',
                detail="It drops old records, and with them current rows of the table.",
                hint="Delete rows instead."
                if multiset
                else "Delete rows instead; compact=True drops what was replaced.",
                setting=setting,
            )
    if multiset and settings.get("partitions", 1) != 1:
        raise InvalidDeclaration(
            f'table "{name}" has no key, so it has one partition, not {settings["partitions"]!r}',
            hint="Leave partitions out, or declare a key.",
        )
