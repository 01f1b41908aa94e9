"""Declared views: the views of one app, as its user declared them.

What it is: ``DeclaredViews`` checks each declaration, compiles its SQL without Spark, keeps both, and finds them again.
Invariants: a declaration that makes no sense is refused at once, with the user's file and line, and nothing of it is
kept. A view reads only what was declared before it. Nothing here starts Spark.
Not here: what users call (``app.py``), compiling (``views/compiler``), maintaining views (``views/runtime.py``).
Read next: ``view.py``, ``view_declaration.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from headwater.errors import DeclarationConflict, InvalidDeclaration, InvalidView, UnknownView
from headwater.hints import suggestion
from headwater.log.contract import EventLog
from headwater.log.schema.personal_columns import declared_privacy
from headwater.log.schema.row_claims import declared_rows_by
from headwater.log.topic_settings import check_name
from headwater.views.view import View
from headwater.views.view_declaration import ViewDeclaration

if TYPE_CHECKING:
    from headwater.views.compiler.plan import Relation, ViewPlan
    from headwater.views.runtime import AppRuntime


class DeclaredViews:
    """The views of one app, in the order of their declaration."""

    def __init__(
        self, log: Callable[[], EventLog], runtime: Callable[[], AppRuntime], is_open: Callable[[], bool]
    ) -> None:
        self._log = log
        self._is_open = is_open
        self._runtime = runtime
        self._declared: dict[str, ViewDeclaration] = {}
        self._plans: dict[str, ViewPlan | None] = {}
        self._waiting: dict[str, str] = {}  # views that were refused, and what each did not find

    @property
    def log(self) -> EventLog:
        """The app's log."""
        return self._log()

    @property
    def is_open(self) -> bool:
        """Whether the log is open; asking for it would open it."""
        return self._is_open()

    @property
    def runtime(self) -> AppRuntime:
        """The app's runtime, made when first needed."""
        return self._runtime()

    def __iter__(self) -> Iterator[View]:
        return iter([View(self, name) for name in self._declared])

    def __len__(self) -> int:
        return len(self._declared)

    def __contains__(self, name: object) -> bool:
        return name in self._declared

    # Finding

    def find(self, name: str) -> View:
        """The view of this name."""
        if name not in self._declared:
            raise UnknownView(f'no view "{name}" was declared', hint=suggestion(name, list(self._declared)), view=name)
        return View(self, name)

    def declaration(self, name: str) -> ViewDeclaration:
        """What was declared under a name."""
        return self._declared[name]

    def declarations(self) -> Collection[ViewDeclaration]:
        """All of them."""
        return self._declared.values()

    def plan(self, name: str) -> ViewPlan | None:
        """What was compiled of it without Spark; None for a view by function, and for one that reads such a view."""
        return self._plans[name]

    # Declaring

    def declare(self, declared: ViewDeclaration) -> View:
        """Add one."""
        self._check_name(declared.name)
        if declared.sql is None:
            self._check_inputs(declared)
        plan = None if declared.sql is None else self._compiled(declared, declared.sql)
        self._check_privacy(declared, plan)
        self._plans[declared.name] = plan
        self._declared[declared.name] = declared
        self._waiting.pop(declared.name, None)
        return View(self, declared.name)

    def check_free(self, name: str) -> None:
        """Refuse a name for something else that a view has."""
        if name in self._declared:
            raise DeclarationConflict(
                f'"{name}" is a view already, declared at {self._declared[name].location}',
                hint="Give the topic another name.",
                topic=name,
            )

    def check_unread(self, name: str) -> None:
        """Refuse to drop a view that another one reads."""
        self.find(name)
        readers = [other for other in self._declared if name in self._reads(other)]
        if readers:
            raise InvalidDeclaration(
                f'view "{name}" cannot be dropped: {", ".join(readers)} reads it',
                hint=f"Drop {readers[0]} first.",
                view=name,
                readers=readers,
            )

    def drop(self, name: str) -> None:
        """Take a declaration back."""
        del self._declared[name], self._plans[name]

    def _reads(self, name: str) -> Sequence[str]:
        from headwater.views.compiler.plan import topic_of

        plan = self._plans[name]
        return [topic_of(read) for read in plan.reads] if plan is not None else self._declared[name].inputs

    def _check_name(self, name: str) -> None:
        check_name("view", name)
        if name in self._declared:
            raise DeclarationConflict(
                f'view "{name}" is declared twice, first at {self._declared[name].location}',
                hint="Give one of the two another name.",
                view=name,
            )
        if name in self.log.topic_names():
            raise DeclarationConflict(
                f'"{name}" is a topic or table of this home already', hint="Give the view another name.", view=name
            )

    def _check_privacy(self, declared: ViewDeclaration, plan: ViewPlan | None) -> None:
        """What is said of columns is of columns that there are."""
        said = dict(declared.privacy)
        declared_privacy({column: personal for column, personal in said.items() if personal is not None})
        known = [] if plan is None else [column.name for column in plan.columns]
        rows_by = declared_rows_by(declared.rows_by)
        for what, names in (("privacy", said), ("rows_by", rows_by)):
            self._check_columns(declared, what, names, known)

    def _check_columns(self, declared: ViewDeclaration, what: str, said: Iterable[str], known: list[str]) -> None:
        unknown = next((column for column in said if known and column not in known), None)
        if unknown is not None:
            raise InvalidDeclaration(
                f'{declared.title}: {what} names "{unknown}", which is not a column',
                hint=suggestion(unknown, known),
                view=declared.name,
                column=unknown,
            )

    def _relations(self) -> dict[str, Relation]:
        from headwater.views.compiler.plan import Relation
        from headwater.views.tick.prepare import relations_of

        relations = relations_of(self.log)
        for name, plan in self._plans.items():
            columns, key = (plan.columns, plan.key) if plan is not None else ((), ())
            relations[name] = Relation(name, columns, key, is_view=True)
        return relations

    def _check_inputs(self, declared: ViewDeclaration) -> None:
        """A view by function may read what there is."""
        from headwater.views.compiler.sql.refusal import circle

        relations = self._relations()
        for given in declared.inputs:
            if given not in relations:
                known = ", ".join(sorted(relations)) or "none yet"
                missing = f'there is no topic, table or view "{given}"', f"There are: {known}."
                sentence, hint = circle(declared.name, given, self._waiting) or missing
                self._waiting[declared.name] = given
                raise InvalidDeclaration(f"{declared.title}: {sentence}", hint=hint, view=declared.name, table=given)

    def _compiled(self, declared: ViewDeclaration, sql: str) -> ViewPlan | None:
        """Compile without Spark: everything but types is checked here."""
        from headwater.views.compiler.whole_query import mentioned
        from headwater.views.event_time.timing import timed_plan
        from headwater.views.spark.spark_parser import reader
        from headwater.views.tick.prepare import event_times_of

        read = reader(lambda: self.runtime.spark)
        # Of some views Spark alone knows the columns: what reads them is checked when the app starts.
        unknown = {name for name, plan in self._plans.items() if plan is None or not plan.columns}
        if unknown and unknown & mentioned(sql, read):
            return None
        try:
            return timed_plan(
                declared.name,
                sql,
                self._relations(),
                declared.timing,
                event_times_of(self.log),
                waiting=self._waiting,
                read=read,
            )
        except (InvalidDeclaration, InvalidView) as error:
            if "table" in error.data:
                self._waiting[declared.name] = error.data["table"]
            error.message = f"{declared.title}: {error.message}"
            error.args = (error.message,)
            error.data.setdefault("view", declared.name)
            error.data.setdefault("location", declared.location)
            raise
