"""Trial: many views in one app, after each tick beside what Spark answers for the user's own text.

What it is: a ``Case`` is a query as a user would write it. ``Bench.run`` asks Spark for the answer over the rows of
each tick, declares all the cases as views of one app, ticks, and compares what the serving store holds.
Invariants: Spark gets the text as it stands, over frames made from the same rows, in a session that no view uses; so
nothing of the compiler is in the answer that counts. A view that cannot be declared is *refused*, one that cannot be
computed *failed*, one with other rows, types or names *different*; each such view leaves the app and the others go on.
Not here: which queries (``calls.py``, ``casts.py``, …); what becomes of the outcomes (``findings.py``).
Read next: ``comparison.py``, ``findings.py``.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import headwater as hw
from headwater.errors import HeadwaterError, InvalidDeclaration, InvalidView
from tests.spark.trouble.comparison import difference, differing_columns
from tests.spark.trouble.rows import Row, Scenario, TableOf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The rows are few: with one task Spark answers in a third of the time.
ONE_TASK = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
}
AT_ONCE = 2  # questions to Spark: half of each is waiting
VIEWS_MAX = 60  # of one app: more would make the first tick longer than what a failure costs to do again


@dataclass(frozen=True)
class Part:
    """One column of a case of many: what it is about, and the case with this column alone."""

    column: str
    subject: str
    case: Case

    def without(self, sql: str) -> str:
        """A query of many columns without this one."""
        text = self.case.sql.split(", ", 1)[1].rsplit(" AS c ", 1)[0]
        return sql.replace(f", {text} AS {self.column}", "", 1)


@dataclass(frozen=True)
class Case:
    """A query, what it is about (a function, a pair of types, …) and where that stands in it."""

    family: str
    subject: str
    place: str
    sql: str
    exact: bool = True
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What became of a case: same, refused, failed, different; or Spark itself raised."""

    case: Case
    verdict: str
    detail: str = ""


@dataclass
class Bench:
    """Where trials are made: Spark, and the frames of a scenario's rows after each tick."""

    spark: SparkSession
    scenario: Scenario
    sessions: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        for bags in self.scenario.bags():
            session = self.spark.newSession()
            for name, value in ONE_TASK.items():
                session.conf.set(name, value)
            for name, rows in bags.items():
                given = frame(session, self.scenario.tables[name], rows)
                # Rows that Spark cannot look at while it plans, as those of a topic: over rows that are part of the
                # plan it computes expressions itself, and leaves out casts that raise.
                given.localCheckpoint().createOrReplaceTempView(f"`{name}`")
            self.sessions.append(session)

    def run(self, cases: Iterable[Case]) -> Iterator[Outcome]:
        """The outcome of each case; of a case with parts that is not the same, the outcomes of its parts."""
        waiting = list(cases)
        while waiting:
            batch, waiting = waiting[:VIEWS_MAX], waiting[VIEWS_MAX:]
            for outcome in self._batch(batch):
                if outcome.verdict != "same" and outcome.case.parts:
                    waiting = [*divided(outcome), *waiting]
                else:
                    yield outcome

    def answers(self, case: Case) -> list[pa.Table]:
        """Spark's own answers, after each tick."""
        return [session.sql(case.sql).toArrow() for session in self.sessions]

    def _batch(self, cases: Sequence[Case]) -> list[Outcome]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = list(pool.map(self._answered, cases))
        raised = [each for each in found if isinstance(each, Outcome)]
        answered = [each for each in found if not isinstance(each, Outcome)]
        return [*raised, *self._tried({f"trial_{number}": each for number, each in enumerate(answered)})]

    def _answered(self, case: Case) -> tuple[Case, list[pa.Table]] | Outcome:
        try:
            return case, self.answers(case)
        except OSError:
            raise  # Spark is gone: nothing more can be found out
        except Exception as error:
            return Outcome(case, "spark raises", told(error))

    def _tried(self, wanted: dict[str, tuple[Case, list[pa.Table]]]) -> list[Outcome]:
        """The views of one app; when it breaks and nobody says by which view, two apps with half of them."""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home, hw.App("trouble", home=home) as app:
            trial = _Trial(app, self.scenario, dict(wanted))
            try:
                return trial.run()
            except HeadwaterError as error:
                broken: Exception = error
            except Exception as error:  # a defect: whatever it raises, it is that view's
                broken = error
        if len(wanted) == 1:
            case, _ = next(iter(wanted.values()))
            return [*trial.outcomes, Outcome(case, verdict(broken), told(broken))]
        left = [(name, about) for name, about in wanted.items() if name in trial.views]
        half = (len(left) + 1) // 2
        return [
            *trial.outcomes,
            *self._tried(dict(left[:half])),
            *(self._tried(dict(left[half:])) if left[half:] else []),
        ]


class _Trial:
    """One app with its views."""

    def __init__(self, app: hw.App, scenario: Scenario, views: dict[str, tuple[Case, list[pa.Table]]]) -> None:
        self.app = app
        self.scenario = scenario
        self.views = views
        self.outcomes: list[Outcome] = []

    def run(self) -> list[Outcome]:
        made: dict[str, Any] = {}
        for name, table in self.scenario.tables.items():
            made[name] = declared(self.app, name, table)
        for name, (case, _) in list(self.views.items()):
            try:
                self.app.view(name, case.sql)
            except Exception as error:  # whatever is no refusal is a defect
                self._out(name, verdict(error), told(error))
        for number, tick in enumerate(self.scenario.ticks):
            for table, rows in tick.deleted.items():
                made[table].delete(rows)
            for table, rows in tick.inserted.items():
                put(made[table], self.scenario.tables[table], rows)
            if self.views:
                self._tick()
            for name in list(self.views):
                self._compare(name, number)
        for name in list(self.views):
            self._out(name, "same", "")
        return self.outcomes

    def _tick(self) -> None:
        """Tick; a view that fails is dropped, and the others go on."""
        while True:
            try:
                self.app.tick()
                return
            except HeadwaterError as error:
                name = error.data.get("view")
                if name not in self.views:
                    raise
                self._out(name, verdict(error), told(error))
                self.app.drop_view(name)
                if not self.views:
                    return

    def _compare(self, name: str, number: int) -> None:
        case, answers = self.views[name]
        want = answers[number]
        try:
            got = self.app._runtime.serving.query(f'SELECT * FROM "{name}"')
        except HeadwaterError as error:
            self._out(name, "failed", told(error))
            return
        found = difference(got, want, exact=case.exact)
        if found is None:
            return
        wrong = set(differing_columns(got, want, exact=case.exact)) if case.parts else set()
        detail = f"tick {number + 1}: {found}"
        parts = tuple(part for part in case.parts if part.column in wrong)
        self._out(name, "different", detail, parts)

    def _out(self, name: str, found: str, detail: str, parts: tuple[Part, ...] = ()) -> None:
        case, _ = self.views.pop(name)
        if found == "same" and case.parts:
            self.outcomes += [Outcome(part.case, "same") for part in case.parts]
            return
        if parts:  # those that are the same need no trial of their own
            same = [part for part in case.parts if part not in parts]
            self.outcomes += [Outcome(part.case, "same") for part in same]
            case = replace(case, parts=parts)
        self.outcomes.append(Outcome(case, found, detail))


def divided(outcome: Outcome) -> list[Case]:
    """What to try when many columns together are not the same: the one that is named by itself, and the others."""
    case = outcome.case
    named = re.search(r'column "(c\d+)"', outcome.detail)
    blamed = [part for part in case.parts if named is not None and part.column == named[1]]
    others = [part for part in case.parts if part not in blamed]
    if outcome.verdict == "different" or not blamed or len(others) < 2:
        return [part.case for part in case.parts]
    return [blamed[0].case, replace(case, sql=blamed[0].without(case.sql), parts=tuple(others))]


def frame(session: SparkSession, table: TableOf, rows: Sequence[Row]) -> Any:
    """Rows as a frame of the schema that Spark itself reads from the table's DDL."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(table.schema)
    fields = to_arrow_schema(schema, timezone="UTC")
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in fields]
    return session.createDataFrame(pa.table(columns, schema=fields), schema)


def declared(app: hw.App, name: str, table: TableOf) -> Any:
    """A table with a key, a bag, or a topic of events."""
    if table.events:
        return app.topic(name, table.schema)
    return app.table(name, table.schema, key=table.key or None)


def put(made: Any, table: TableOf, rows: Sequence[Row]) -> None:
    """Add rows, as the kind of the table has it."""
    if table.events:
        made.append(rows)
    elif table.key:
        made.upsert(rows)
    else:
        made.insert(rows)


def verdict(error: Exception) -> str:
    """Whether a view is refused, or there is no answer where there should be one."""
    return "refused" if isinstance(error, InvalidView | InvalidDeclaration) else "failed"


def told(error: Exception) -> str:
    """An error in one line."""
    if isinstance(error, HeadwaterError):
        text = f"{error.message} {error.detail or ''}"
        text = re.sub(r'^view "\w+" \([^)]*\):? ', "", text)
    else:
        text = f"{type(error).__name__}: {error}"
    return re.sub(r"\s+", " ", text)[:400].strip()
