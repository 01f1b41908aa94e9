"""Declaring stored searches: queries that wait for documents.

What it is: ``AppSearches``, a part of what an app declares; ``App`` comes from it.
Invariants: a declaration makes a table and two views, or nothing; what makes no sense is refused at once.
Not here: queries, and what users do with searches (``searches/stored_searches.py``).
Read next: ``searches/stored_searches.py``; ``docs/searches.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.app_processes import AppProcesses
from headwater.errors import InvalidDeclaration, UnknownView
from headwater.hints import suggestion
from headwater.log.schema.ddl import parse_view_ddl

if TYPE_CHECKING:
    from headwater.log.contract import EventTopic
    from headwater.log.table import Table
    from headwater.searches.stored_searches import Searches
    from headwater.views.view import View
    from headwater.views.view_declaration import ViewDeclaration

TAKEN = ("search", "score")  # the view's own columns


class AppSearches(AppProcesses):
    """The stored searches of an app."""

    name: str
    stored_searches: dict[str, Searches]  # by name, as they were declared
    on_error: str

    if TYPE_CHECKING:  # of the other half of the app

        def _declare(self, declared: ViewDeclaration) -> View: ...
        @property
        def _runtime(self) -> Any: ...

    def searches(
        self,
        name: str,
        *,
        over: str | EventTopic | Table | View,
        text: str | Sequence[str] = (),
        tokenizer: str = "default",
        key: str | Sequence[str] = (),
        at: str | None = None,
        partitions: int = 1,
    ) -> Searches:
        """Declare searches that wait for documents: rows of a topic, a table or a view. See ``docs/searches.md``.

        The searches are rows of the table ``<name>_searches``. What matches is the view ``<name>``: ``search``,
        ``document`` (its key) and ``score``. The view ``<name>_status`` has a row for each search, and what is wrong
        with it. ``text``: the columns whose words are looked for, cut by tantivy's ``tokenizer``: "default", "en_stem",
        "whitespace" or "raw".
        ``key``: the columns that name a document, where it is a view or a table without a key. ``at``: the column that
        says when it came; a topic's record says it by itself.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("news", home=tempfile.mkdtemp())
        >>> articles = app.table("articles", "id BIGINT, title STRING, price DOUBLE", key="id")
        >>> watch = app.searches("watch", over=articles, text=["title"])
        >>> _ = watch.put("cheap rivers", "rivers price:<20", look_back=True)
        >>> _ = articles.upsert([{"id": 7, "title": "Rivers of Europe", "price": 12.5}])
        >>> _ = app.tick()
        >>> app.get_view("watch").get(search="cheap rivers")
        [{'search': 'cheap rivers', 'document': 7, 'score': 0.45454545454545453}]
        """
        from headwater.log.table import declare_table
        from headwater.searches.index_file import index_path
        from headwater.searches.search_columns import SearchColumns
        from headwater.searches.search_rows import SCHEMA
        from headwater.searches.stored_searches import Searches
        from headwater.views.stages.search_views import SearchFunction, asked
        from headwater.views.view_declaration import ViewDeclaration, caller

        location, documents = caller(), over if isinstance(over, str) else over.name
        title = f'searches "{name}" ({location})'
        texts = (text,) if isinstance(text, str) else tuple(text)
        keys = (key,) if isinstance(key, str) else tuple(key)
        table = f"{name}_searches"
        named = self._named(title, documents, keys, at)
        if documents in self.log.topic_names():
            try:
                SearchColumns(asked(self._document_schema(documents)), texts, tokenizer=tokenizer)
            except InvalidDeclaration as error:
                raise InvalidDeclaration(f"{title}: {error.message}", hint=error.hint, **error.data) from None
        for each in (name, f"{name}_status", table):
            self._views.check_free(each)
        stored = declare_table(self.log, table, SCHEMA, key="id", partitions=partitions)
        for status in (False, True):
            function = SearchFunction(documents, table, texts, tokenizer, *named, status=status)
            view = f"{name}_status" if status else name
            self._declare(ViewDeclaration(view, None, location, function, (documents, table), on_error=self.on_error))
        made = Searches(
            name,
            stored,
            documents,
            lambda: asked(self._document_schema(documents)),
            text=texts,
            tokenizer=tokenizer,
            location=location,
            kept=index_path(Path(self.log.home).absolute() / "views" / self.name, name),
        )
        self.stored_searches[name] = made
        return made

    def get_searches(self, name: str) -> Searches:
        """The searches that were declared under this name.

        >>> import headwater as hw, tempfile
        >>> hw.App("news", home=tempfile.mkdtemp()).get_searches("watch")
        Traceback (most recent call last):
            ...
        headwater.errors.UnknownView: no searches "watch" were declared
          Hint: Declare them: app.searches("watch", over="…", text=["…"]).
        """
        if name not in self.stored_searches:
            declare = f'Declare them: app.searches("{name}", over="…", text=["…"]).'
            hint = suggestion(name, self.stored_searches, otherwise=declare) if self.stored_searches else declare
            raise UnknownView(f'no searches "{name}" were declared', hint=hint, view=name)
        return self.stored_searches[name]

    def _document_schema(self, name: str) -> pa.Schema:
        """The columns of documents; of a view, as Spark tells them."""
        if name in self.log.topic_names():
            columns = self.log.get_topic(name).schema
            return pa.schema([field for field in columns if not field.name.startswith("_")])
        # What was committed tells it without Spark.
        known = self._runtime.manifests.current().views.get(name)
        if known is not None:
            return parse_view_ddl(known["columns"])
        schema: pa.Schema = self._runtime.prepared.views[name].schema
        return schema

    def _named(
        self, title: str, over: str, keys: tuple[str, ...], at: str | None
    ) -> tuple[tuple[tuple[str, str], ...], bool, bool, str | None]:
        """The columns that name a document and their names in the view, whether they are unique, whether documents
        never change, and the column that says when one came.
        """
        if over in self.log.topic_names():
            topic = self.log.get_topic(over)
            own, multiset = tuple(topic.settings.key or ()), "_weight" in topic.schema.names
            if not multiset and not keys:
                if own:
                    return self._called(title, own), True, False, at or "_appended_at"
                place = (("_partition", "partition"), ("_offset", "offset"))
                return place, True, True, at or "_appended_at"
            if not multiset:
                return self._called(title, keys), keys == own, not own, at or "_appended_at"
        elif over in self._views:
            plan = self._views.plan(over)
            if not keys and plan is not None and plan.key:
                return self._called(title, plan.key), True, False, at
        else:
            raise InvalidDeclaration(
                f'{title}: there is no topic, table or view "{over}"',
                hint=suggestion(over, [*self.log.topic_names(), *(view.name for view in self._views)]),
            )
        if not keys:
            raise InvalidDeclaration(
                f'{title}: "{over}" has no key, so a document has no name', hint='Say which columns name one: key="id".'
            )
        return self._called(title, keys), False, False, at

    def _called(self, title: str, keys: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        if len(keys) == 1:
            return ((keys[0], "document"),)
        if clash := set(keys) & set(TAKEN):
            raise InvalidDeclaration(
                f'{title}: the documents are named by a column "{min(clash)}", which the view has already',
                hint="Search a view that calls it otherwise.",
            )
        return tuple((key, key) for key in keys)
