"""A runner of plans on DuckDB, tick by tick, by the contract of ``plan.py``.

What it is: the readable specification of what an engine has to do with a plan; the tests' way to prove that plans are
right without Spark. Everything is a table of DuckDB: for each relation and stage a *pile* (weighted rows, all of them
ever) and its *changes* of this tick.
Invariants: a leaf gets exactly what its content says. A lookup is honoured or not by the toss of a coin, as the
contract allows; terms whose changes are empty are not run. Asserted after each stage: no row is there less than
never, and a group has one row. What becomes of a buffer of leading rows is computed by the code of Spark's stages.
Not here: what queries and rows are tried (``queries.py``); how Spark runs the same (``views/tick/engine.py``).
Read next: ``plan.py``, beside this file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random

import pyarrow as pa

from headwater.views.compiler.compile import compile_view
from headwater.views.compiler.plan import (
    WEIGHT,
    AccumulateStage,
    FlowStage,
    KeyedStage,
    LeadingStage,
    Leaf,
    LeafContent,
    PlanColumn,
    Relation,
    Stage,
    Term,
    ViewPlan,
    WholeStage,
)
from headwater.views.stages.leading_buffer import BufferMerge, filled, state_rows
from tests.compiler.dialect import connect, insert, to_duckdb, type_to_duckdb, type_to_spark

Row = tuple[object, ...]


def describe(sql: str, tables: Mapping[str, tuple[PlanColumn, ...]]) -> tuple[PlanColumn, ...]:
    """The columns of a query over empty tables, as ``compile_view`` wants to be told: by asking DuckDB."""
    for name, columns in tables.items():
        ANALYSER.execute(f"CREATE OR REPLACE TEMP TABLE {quoted(name)} ({declared(columns)})")
    result = ANALYSER.sql(to_duckdb(sql))
    return tuple(
        PlanColumn(name, type_to_spark(str(kind))) for name, kind in zip(result.columns, result.types, strict=True)
    )


ANALYSER = connect()


def compile_all(relations: Sequence[Relation], views: Sequence[tuple[str, str]]) -> list[ViewPlan]:
    """The plans of views, given as name and SQL, the later ones over the earlier ones too."""
    known = {relation.name: relation for relation in relations}
    plans = []
    for name, sql in views:
        plan = compile_view(name, sql, known, describe=describe)
        known[name] = Relation(name, plan.columns, key=plan.key)
        plans.append(plan)
    return plans


class Batch:
    """The other side of the comparison: the user's own SQL, over tables that hold what is there now."""

    def __init__(self, relations: Sequence[Relation], views: Sequence[tuple[str, str]]) -> None:
        self._duck = connect()
        self._views = views
        for relation in relations:
            self._duck.execute(f"CREATE TEMP TABLE {quoted(relation.name)} ({declared(relation.columns)})")

    def answers(self, content: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
        """Each view's rows."""
        for name, rows in content.items():
            self._duck.execute(f"DELETE FROM {quoted(name)}")
            if rows:
                insert(self._duck, quoted(name), rows)
        found = {}
        for name, sql in self._views:
            self._duck.execute(f"CREATE OR REPLACE TEMP TABLE {quoted(name)} AS {to_duckdb(sql)}")
            found[name] = self._duck.execute(f"SELECT * FROM {quoted(name)}").fetchall()
        return found


class DuckRunner:
    """Holds the tables of an app and runs its plans.

    >>> from headwater.views.compiler.plan import PlanColumn, Relation
    >>> runner = DuckRunner([Relation("t", (PlanColumn("a", "INT"),))], [])
    >>> runner.tick({"t": [(1, 2), (5, 1)]})  # the row (1,) twice, the row (5,) once
    >>> runner.tick({"t": [(1, -1)]})
    >>> sorted(runner.rows("t"))
    [(1,), (5,)]
    """

    def __init__(
        self, relations: Sequence[Relation], views: Sequence[ViewPlan], *, random: Random | None = None
    ) -> None:
        self._duck = connect()
        self._views = list(views)
        self._random = random or Random(0)
        self._columns: dict[str, tuple[str, ...]] = {}  # what readers of a relation or stage see
        self._all_columns: dict[str, tuple[str, ...]] = {}  # and its state has
        self._shown: set[str] = set()  # stages whose rows are hidden from readers unless _shown
        self._first = True
        self._changed: set[str] = set()  # relations and stages with changes of this tick: most have none
        for relation in relations:
            self._declare(relation.name, relation.columns, hidden=())
        for stage in self._stages():
            self._declare(stage.name, stage.columns, hidden=stage.hidden)
            if isinstance(stage, AccumulateStage | LeadingStage):
                self._shown.add(stage.name)

    # What users of the runner call.

    def tick(self, changes: Mapping[str, Iterable[Row]]) -> None:
        """Advances every view by these changes of the base relations: rows with their weight as the last value."""
        for name in self._changed:
            self._run(f"DELETE FROM {changes_of(name)}")
        self._changed = set()
        for name, rows in changes.items():
            rows = [tuple(row) for row in rows]
            if rows:
                insert(self._duck, changes_of(name), rows)
                self._changed.add(name)
        for stage in self._stages():
            self._run_stage(stage)
        for name in self._changed:
            self._run(f"INSERT INTO {pile_of(name)} BY NAME SELECT * FROM {changes_of(name)}")
        self._first = False

    def rows(self, name: str) -> list[Row]:
        """What a reader of a relation or view sees, each row as often as it is there."""
        return self._duck.execute(self._bag(name, self._columns[name])).fetchall()

    def changes(self, name: str) -> list[Row]:
        """What the last tick changed, for a reader: rows with their weight as the last value."""
        return self._duck.execute(self._readable(changes_of(name), name, self._columns[name])).fetchall()

    # Each kind of stage.

    def _run_stage(self, stage: Stage) -> None:
        if isinstance(stage, FlowStage | AccumulateStage) and not self._first and self._is_still(stage.terms):
            self._commit(stage, None, old=None)
        elif isinstance(stage, FlowStage):
            self._flow(stage.terms, stage.constant)
            self._commit(stage, "SELECT * FROM _flow", old=None)
        elif isinstance(stage, AccumulateStage):
            self._accumulate(stage)
        elif isinstance(stage, KeyedStage):
            self._keyed(stage)
        elif isinstance(stage, LeadingStage):
            self._leading(stage)
        elif isinstance(stage, WholeStage):
            self._whole(stage)
        else:
            raise TypeError(stage)
        if stage.name in self._changed:  # its rows are else those that were looked at before
            self._check(stage)

    def _accumulate(self, stage: AccumulateStage) -> None:
        self._flow(stage.terms, stage.constant)
        if self._empty("_flow") and not (self._first and stage.one_row):
            self._commit(stage, None, old=None)
            return
        alive = "" if stage.one_row else " WHERE _n <> 0"
        groups = [column.name for column in stage.groups]
        combine = stage.combine
        if stage.in_range_partial:
            self._make("_partial", to_duckdb(stage.in_range_partial))
            self._own_state(stage, groups, touched="_partial")
            self._make("_before", "SELECT * FROM _old UNION ALL SELECT * FROM _others")
            in_range = to_duckdb(stage.in_range_combine)
            if self._empty(f"(SELECT 1 FROM ({in_range}) WHERE _out_of_range)"):
                self._commit(
                    stage, f"SELECT * EXCLUDE (_out_of_range), 1 AS {WEIGHT} FROM ({in_range}){alive}", old="_old"
                )
                return
        self._make("_partial", to_duckdb(stage.partial))
        self._own_state(stage, groups, touched="_partial")
        self._make("_before", "SELECT * FROM _old UNION ALL SELECT * FROM _others")
        new = to_duckdb(combine)
        self._commit(stage, f"SELECT *, 1 AS {WEIGHT} FROM ({new}){alive}", old="_old")

    def _keyed(self, stage: KeyedStage) -> None:
        if not self._first and all(given.leaf.relation not in self._changed for given in stage.inputs):
            self._commit(stage, None, old=None)
            return
        keys = [column.name for column in stage.keys]
        touched = []
        for given in stage.inputs:
            expressions = ", ".join(f"{to_key(key)} AS {name}" for key, name in zip(given.keys, keys, strict=True))
            changed = self._readable(changes_of(given.leaf.relation), given.leaf.relation, None)
            touched.append(f"SELECT {expressions} FROM ({changed})")
        self._make("_touched", f"SELECT DISTINCT * FROM ({' UNION ALL '.join(touched)})")
        if stage.in_runs:
            self._widen(stage)
        if self._empty("_touched"):
            self._commit(stage, None, old=None)
            return
        for given in stage.inputs:
            everything = self._bag(given.leaf.relation, None, after=True)
            same = " AND ".join(
                f"({to_key(key)}) IS NOT DISTINCT FROM _touched.{name}"
                for key, name in zip(given.keys, keys, strict=True)
            )
            columns = ", ".join(quoted(column) for column in given.leaf.columns) or "1 AS _nothing"
            self._make(
                given.leaf.name,
                f"SELECT {columns} FROM ({everything}) AS _r "
                f"WHERE EXISTS (SELECT 1 FROM _touched WHERE {same or 'TRUE'})",
            )
        self._own_state(stage, keys, touched="_touched", others=False)
        if stage.leading and self._random.random() < 0.7:
            self._lead(stage)
        self._commit(stage, f"SELECT *, 1 AS {WEIGHT} FROM ({to_duckdb(stage.sql)})", old="_old")

    def _widen(self, stage: KeyedStage) -> None:
        """Makes ``_touched`` the runs of numbers that its numbers are in."""
        (given,), (key,) = stage.inputs, stage.keys
        relation = given.leaf.relation
        rows = (self._bag(relation, None, after=False), self._bag(relation, None, after=True))
        there = " UNION ".join(f"SELECT {to_key(given.keys[0])} AS n FROM ({each})" for each in rows)
        self._make(
            "_runs",
            f"WITH RECURSIVE there AS ({there}), run AS (SELECT {key.name} AS n FROM _touched "
            "UNION SELECT there.n FROM run JOIN there ON abs(there.n - run.n) = 1) "
            f"SELECT n AS {key.name} FROM run WHERE n IS NOT NULL",
        )
        self._make("_touched", "SELECT * FROM _runs")

    def _lead(self, stage: KeyedStage) -> None:
        """Binds the leaf of a stage of leading rows to what it had and what came, for the keys where that will do."""
        (given,) = stage.inputs
        leaf, columns = given.leaf, given.leaf.columns
        held = ", ".join(
            f"{quoted(state)} AS {quoted(name)}" for state, name in zip(stage.leading, columns, strict=True)
        )
        self._make("_kept", f"SELECT {held} FROM _old")
        self._make("_moved", self._readable(changes_of(leaf.relation), leaf.relation, columns))
        names = list_of(columns)
        same = " AND ".join(f"_kept.{quoted(name)} IS NOT DISTINCT FROM _moved.{quoted(name)}" for name in columns)
        by = list_of(given.plain or ())
        bare = f"SELECT DISTINCT {by} FROM _moved WHERE {WEIGHT} < 0 AND EXISTS (SELECT 1 FROM _kept WHERE {same})"
        self._make("_bare", bare)
        hit = " AND ".join(f"_bare.{quoted(key)} IS NOT DISTINCT FROM _r.{quoted(key)}" for key in given.plain or ())
        came = f"SELECT {names} FROM _moved, range(CAST({WEIGHT} AS BIGINT)) WHERE {WEIGHT} > 0"
        self._make(
            "_led",
            f"SELECT {names} FROM {leaf.name} _r WHERE EXISTS (SELECT 1 FROM _bare WHERE {hit}) UNION ALL "
            f"SELECT {names} FROM (SELECT {names} FROM _kept UNION ALL {came}) _r "
            f"WHERE NOT EXISTS (SELECT 1 FROM _bare WHERE {hit})",
        )
        self._make(leaf.name, "SELECT * FROM _led")

    def _leading(self, stage: LeadingStage) -> None:
        if not self._first and self._nothing_changed(stage.everything.relation):
            self._commit(stage, None, old=None)
            return
        # A buffer with little to spare runs short often.
        stage = replace(stage, spare=self._random.choice([1, 2, stage.spare]))
        self._own_state(stage, [], touched=None)
        held = list_of(stage.held)
        self._make("_before", f"SELECT {held}, 1 AS {WEIGHT} FROM _old")
        self._flow([stage.term], None)
        merge = None if self._first else BufferMerge(stage, self._arrow(to_duckdb(stage.merge)))
        if merge is not None and merge.is_unreached:
            self._commit(stage, None, old=None)
            return
        buffer = None if merge is None else merge.buffer()
        if buffer is None:
            self._bind(stage.everything)
            buffer = filled(stage, self._arrow(to_duckdb(stage.fill)))
        names = self._all_columns[stage.name]
        self._duck.register("_buffer", state_rows(stage, buffer, pa.schema([(name, pa.null()) for name in names])))
        self._commit(stage, "SELECT * FROM _buffer", old="_old")
        self._duck.unregister("_buffer")

    def _arrow(self, sql: str) -> pa.Table:
        return self._duck.sql(sql).to_arrow_table()

    def _whole(self, stage: WholeStage) -> None:
        if not self._first and all(leaf.relation not in self._changed for leaf in stage.inputs):
            self._commit(stage, None, old=None)
            return
        for leaf in stage.inputs:
            self._bind(leaf)
        self._own_state(stage, [], touched=None)
        self._commit(stage, f"SELECT *, 1 AS {WEIGHT} FROM ({to_duckdb(stage.sql)})", old="_old")

    # Flows and their leaves.

    def _flow(self, terms: Sequence[Term], constant: str | None) -> None:
        """Binds ``_flow`` to the sum of the terms."""
        parts = []
        for number, term in enumerate(terms):
            # An engine skips a term that is zero. It still tells its columns and their types.
            nothing = self._nothing_changed(changing_relation(term))
            empty = set[str]()
            for leaf in in_order_of_lookups(term.leaves):
                self._bind(leaf, nothing=nothing)
                if nothing or self._empty(quoted(leaf.name)):
                    empty.add(leaf.name)
            self._make(f"_term{number}", to_duckdb(term.sql) + (" LIMIT 0" if term.is_zero(empty) else ""))
            parts.append(f"SELECT * FROM _term{number}")
        if constant is not None:
            parts.append(f"SELECT * FROM ({to_duckdb(constant)}) WHERE {self._first}")
        self._make("_flow", " UNION ALL BY NAME ".join(parts))

    def _is_still(self, terms: Sequence[Term]) -> bool:
        return all(self._nothing_changed(changing_relation(term)) for term in terms)

    def _nothing_changed(self, relation: str) -> bool:
        """For a reader of the relation."""
        if relation not in self._shown:
            return relation not in self._changed
        return not self._duck.execute(f"{self._readable(changes_of(relation), relation, None)} LIMIT 1").fetchall()

    def _bind(self, leaf: Leaf, *, nothing: bool = False) -> None:
        """Makes the table that the SQL calls ``leaf.name``."""
        columns = leaf.columns
        if leaf.content == LeafContent.BAG:
            content = self._bag(leaf.relation, columns, after=True)
        else:
            places = {
                LeafContent.CHANGES: [changes_of],
                LeafContent.BEFORE: [pile_of],
                LeafContent.AFTER: [pile_of, changes_of],
            }[leaf.content]
            tables = [place(leaf.relation) for place in places]
            content = " UNION ALL ".join(self._readable(table, leaf.relation, columns) for table in tables)
        if nothing:
            content = f"SELECT * FROM ({content}) LIMIT 0"
        elif leaf.lookup is not None and self._random.random() < 0.7:
            # An equality, as in SQL: a null matches nothing.
            same = " AND ".join(
                f"_r.{quoted(mine)} = _s.{quoted(theirs)}"
                for mine, theirs in zip(leaf.lookup.columns, leaf.lookup.source_columns, strict=True)
            )
            keys = quoted(leaf.lookup.source)
            content = f"SELECT * FROM ({content}) _r WHERE EXISTS (SELECT 1 FROM {keys} _s WHERE {same})"
        self._make(leaf.name, content)

    # State.

    def _own_state(self, stage: Stage, keys: Sequence[str], *, touched: str | None, others: bool = True) -> None:
        """Binds ``_old`` to the stage's state rows of the touched keys, ``_others`` to none or all of the rest."""
        names = self._all_columns[stage.name]
        everything = expanded(pile_of(stage.name), names)
        if touched is None:
            self._make("_old", everything)
            return
        same = " AND ".join(f"_r.{quoted(key)} IS NOT DISTINCT FROM _t.{quoted(key)}" for key in keys) or "TRUE"
        hit = f"EXISTS (SELECT 1 FROM {touched} _t WHERE {same})"
        self._make("_old", f"SELECT * FROM ({everything}) _r WHERE {hit}")
        more = self._random.random() < 0.5
        if others:
            rest = f"SELECT * FROM ({everything}) _r WHERE NOT {hit}" if more else "SELECT * FROM _old LIMIT 0"
            self._make("_others", rest)

    def _commit(self, stage: Stage, new: str | None, *, old: str | None) -> None:
        """The stage's changes: what is new, less what is old, netted."""
        if new is None:
            return
        # By itself, for DuckDB 2.0 loses the rows of an outer join with an empty table below a UNION ALL.
        self._make("_new", new)
        names = list_of(self._all_columns[stage.name])
        both = f"SELECT {names}, {WEIGHT} FROM _new"
        if old is not None:
            both += f" UNION ALL SELECT {names}, -1 FROM {old}"
        self._run(f"INSERT INTO {changes_of(stage.name)} BY NAME {netted(both, self._all_columns[stage.name])}")
        if self._duck.fetchall() != [(0,)]:  # DuckDB tells how many rows it took
            self._changed.add(stage.name)

    def _check(self, stage: Stage) -> None:
        names = self._all_columns[stage.name]
        after = f"SELECT * FROM {pile_of(stage.name)} UNION ALL SELECT * FROM {changes_of(stage.name)}"
        below = self._duck.execute(f"{netted(after, names)} AND sum({WEIGHT}) < 0").fetchall()
        assert not below, f"stage {stage.name} has rows less often than never: {below}"
        if isinstance(stage, AccumulateStage):
            groups = list_of([column.name for column in stage.groups])
            by = f"GROUP BY {groups}" if groups else ""
            counts = f"SELECT sum({WEIGHT}) FROM ({after}) {by} HAVING sum({WEIGHT}) NOT IN (0, 1)"
            twice = self._duck.execute(counts).fetchall()
            assert not twice, f"stage {stage.name} has several rows for a group"

    # Tables of DuckDB.

    def _stages(self) -> Iterable[Stage]:
        return (stage for view in self._views for stage in view.stages)

    def _declare(self, name: str, visible: tuple[PlanColumn, ...], *, hidden: tuple[PlanColumn, ...]) -> None:
        self._columns[name] = tuple(column.name for column in visible)
        self._all_columns[name] = tuple(column.name for column in (*visible, *hidden))
        for table in (pile_of(name), changes_of(name)):
            self._run(f"CREATE TEMP TABLE {table} ({declared((*visible, *hidden))}, {WEIGHT} BIGINT)")

    def _readable(self, table: str, name: str, columns: Sequence[str] | None) -> str:
        wanted = list_of([*(self._columns[name] if columns is None else columns), WEIGHT])
        return f"SELECT {wanted} FROM {table}" + (" WHERE _shown" if name in self._shown else "")

    def _bag(self, name: str, columns: Sequence[str] | None, *, after: bool = False) -> str:
        tables = [pile_of(name), changes_of(name)] if after else [pile_of(name)]
        content = " UNION ALL ".join(self._readable(table, name, None) for table in tables)
        visible = self._columns[name]
        wanted = list_of(visible if columns is None else columns) or "1 AS _nothing"
        return f"SELECT {wanted} FROM ({expanded(f'({content})', visible)})"

    def _make(self, name: str, sql: str) -> None:
        self._run(f"CREATE OR REPLACE TEMP TABLE {quoted(name)} AS {sql}")

    def _empty(self, table: str) -> bool:
        return not self._duck.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchall()

    def _run(self, sql: str) -> None:
        try:
            self._duck.execute(sql)
        except Exception as error:
            raise AssertionError(f"DuckDB: {error}\nin: {sql}") from error


def changing_relation(term: Term) -> str:
    """The relation whose changes the term is over."""
    return next(leaf.relation for leaf in term.leaves if leaf.name == term.changes)


def in_order_of_lookups(leaves: Sequence[Leaf]) -> list[Leaf]:
    """Each leaf behind the one its lookup takes keys from."""
    done: list[Leaf] = []
    waiting = list(leaves)
    while waiting:
        ready = [
            leaf for leaf in waiting if leaf.lookup is None or leaf.lookup.source in {other.name for other in done}
        ]
        assert ready, f"lookups lead in a circle: {waiting}"
        done += ready
        waiting = [leaf for leaf in waiting if leaf not in ready]
    return done


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def list_of(names: Iterable[str]) -> str:
    return ", ".join(quoted(name) for name in names)


def declared(columns: Sequence[PlanColumn]) -> str:
    assert all(column.type for column in columns), f"a type is missing: {columns}"
    return ", ".join(f"{quoted(column.name)} {type_to_duckdb(str(column.type))}" for column in columns)


def pile_of(name: str) -> str:
    return quoted(f"pile of {name}")


def changes_of(name: str) -> str:
    return quoted(f"changes of {name}")


def to_key(expression: str) -> str:
    return to_duckdb(f"SELECT {expression}").removeprefix("SELECT ")


def netted(rows: str, names: Sequence[str]) -> str:
    """Equal rows as one, with the sum of their weights; without the ones that cancel."""
    by = f"GROUP BY {list_of(names)}" if names else ""
    wanted = ", ".join([*(quoted(name) for name in names), f"sum({WEIGHT}) AS {WEIGHT}"])
    return f"SELECT {wanted} FROM ({rows}) {by} HAVING sum({WEIGHT}) <> 0"


def expanded(table: str, names: Sequence[str]) -> str:
    """Each row as often as it is there."""
    once = netted(f"SELECT * FROM {table}", names)
    wanted = list_of(names) or "1 AS _nothing"
    copies = f"SELECT *, unnest(range(CAST({WEIGHT} AS BIGINT))) FROM ({once})"  # half the cost of a lateral join
    return f"SELECT {wanted} FROM ({copies})"
