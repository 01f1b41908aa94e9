"""Matches: a view whose SQL has MATCH_RECOGNIZE, as stages.

What it is: ``compile_with_matches``, which is ``compile_view`` for such a text: for each clause the stages of its
input, a stage of the matches, and then the stages of the query around them, for which the matches are a relation.
Invariants: the input carries only the columns that the clause mentions, all of them with ALL ROWS PER MATCH. Rows that
ORDER BY does not tell apart are ordered by their other columns, so that the answer does not depend on when they came.
Types are Spark's: without ``describe`` the plan has the names of columns, and cannot be run.
Not here: the clause and the matching (``headwater/patterns``), the text (``frontend/match_text.py``), running
(``views/stages/match_run.py``).
Read next: ``views/stages/match_run.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
from sqlglot import exp

from headwater.errors import InvalidDeclaration, InvalidPattern, InvalidView
from headwater.log.schema.ddl import parse_view_ddl, spark_type
from headwater.patterns import MatchClause, PatternProgram, compile_pattern
from headwater.patterns.clause.pattern_scanner import refuse
from headwater.views.compiler.algebra.finality import CLOSES
from headwater.views.compiler.algebra.plan_nodes import Describe
from headwater.views.compiler.compile import compile_view
from headwater.views.compiler.frontend.match_text import MatchMention, MatchText, split_matches
from headwater.views.compiler.frontend.metadata_columns import WrittenOut, write_out_metadata
from headwater.views.compiler.frontend.parse import Parsed, trees
from headwater.views.compiler.operators.first_rows import is_orderable
from headwater.views.compiler.plan import (
    FlowStage,
    Leaf,
    LeafContent,
    MatchStage,
    PlanColumn,
    Relation,
    SortColumn,
    StageKind,
    ViewPlan,
    WholeStage,
)
from headwater.views.compiler.sql.expressions import bare

ROWS = ".rows"
KEY, ORDER, BUCKET, COMPUTED, PLACE = "p__", "o__", "b__", "r__", "_place"
FIRST, OTHERS = -(2**63) + 1, 0  # the bucket of rows before all others; of rows whose order has no numbers
INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
TIMES = ("TIMESTAMP", "TIMESTAMP_NTZ")
NUMBERED = (*INTEGERS, *TIMES, "DATE", "BOOLEAN")  # that are sorted as whole numbers
SORTABLE = (*NUMBERED, "STRING", "FLOAT", "DOUBLE")  # that Arrow sorts as Spark does
TOTALS = ("sum", "avg")
ORDERED_BY = "Use columns that have an order: take a value out of the map first."
ROWS_A_BUCKET = 1024  # of rows that are ordered by a whole number
BUCKET_US = 600_000_000  # of a clause without WITHIN
HIDDEN = (
    PlanColumn(BUCKET, "BIGINT"),
    PlanColumn("_index", "BIGINT"),
    PlanColumn("_entry", "BOOLEAN"),
    PlanColumn("_rows", "BIGINT"),
    PlanColumn("_from", "BIGINT"),
    PlanColumn("_skip", "BIGINT"),
    PlanColumn("_matches", "BIGINT"),
    PlanColumn("_shown", "BOOLEAN"),
)


def compile_with_matches(
    name: str,
    sql: str,
    relations: Mapping[str, Relation],
    *,
    describe: Describe | None = None,
    rewrite: Callable[[Parsed], None] | None = None,
    **options: Any,
) -> ViewPlan:
    """The plan of a view, with or without MATCH_RECOGNIZE; the options are those of ``compile_view``.

    With ``rewrite`` the matches have one column more, ``closes__``: when a match is final.
    """
    found = split_matches(name, sql)
    if found is None:
        return compile_view(name, sql, relations, describe=describe, rewrite=rewrite, **options)
    known = dict(relations)
    inputs: list[ViewPlan] = []
    stages: list[MatchStage] = []
    for mention in found.mentions:
        plan, stage = _MatchCompiler(found, mention, known, describe, closes=rewrite is not None).compiled(options)
        inputs.append(plan)
        stages.append(stage)
        known[mention.relation] = Relation(mention.relation, stage.columns, is_view=True)
    own = {mention.relation for mention in found.mentions}
    if rewrite is not None:
        rewrite = _without_stars(rewrite, {each.relation: known[each.relation] for each in found.mentions})
    try:
        outer = compile_view(name, found.sql, known, describe=describe, rewrite=rewrite, **options)
    except InvalidView as error:
        _refuse_as_given(found, error)
    between = [each for plan, stage in zip(inputs, stages, strict=True) for each in (*plan.stages, stage)]
    reads = [read for plan in (*inputs, outer) for read in plan.reads if read not in own]
    said = [outer.fingerprint, *(mention.canonical for mention in found.mentions)]
    fingerprints = [*said, *(plan.fingerprint for plan in inputs)]
    return replace(
        outer,
        sql=sql,
        stages=(*between, *outer.stages),
        reads=tuple(dict.fromkeys(reads)),
        fingerprint=hashlib.sha256("\n".join(fingerprints).encode()).hexdigest()[:32],
        written_out=found.sql,
        notes=tuple(dict.fromkeys(note for plan in (*inputs, outer) for note in plan.notes)),
    )


def match_stage(
    text: MatchText, mention: MatchMention, relations: Mapping[str, Relation], describe: Describe
) -> tuple[ViewPlan, MatchStage]:
    """One clause of a text by itself: the plan of its input, and the stage of its matches."""
    return _MatchCompiler(text, mention, relations, describe, closes=False).compiled({})


def check_is_final(plan: ViewPlan) -> None:
    """Refuse a pattern that only time can decide in a view that shows its rows at once."""
    for stage in plan.stages:
        clause = stage.program.clause if isinstance(stage, MatchStage) and stage.program is not None else None
        if clause is not None and (clause.absent or clause.timed_out):
            what = f"[^{clause.absent}]" if clause.absent else "WITH TIMED OUT MATCHES"
            raise InvalidDeclaration(
                f'{what} needs emit="final": that a row did not come is known when the watermark has passed',
                hint='Declare the view with emit="final", over a topic with event_time="…".',
            )


def _refuse_as_given(found: MatchText, error: InvalidView) -> NoReturn:
    """The error about the text as its author knows it."""
    WrittenOut(found.given, {}, found.replaced).refuse_as_given(error)


def _without_stars(rewrite: Callable[[Parsed], None], relations: Mapping[str, Relation]) -> Callable[[Parsed], None]:
    """The rewriting of a text in which a star is not ``closes__`` too."""
    names = {
        relation.lower(): [column.name for column in known.columns if column.name != CLOSES]
        for relation, known in relations.items()
    }

    def rewritten(parsed: Parsed) -> None:
        for tree in (parsed.query, parsed.tree):
            for select in tree.find_all(exp.Select):
                clause = select.args.get("from_")
                source = clause.this if clause is not None else None
                if not isinstance(source, exp.Table) or select.args.get("joins"):
                    continue
                shown = names.get(source.name.lower())
                if shown is not None and any(part.is_star for part in select.expressions):
                    parts = [
                        each for part in select.expressions for each in (map(bare, shown) if part.is_star else [part])
                    ]
                    select.set("expressions", parts)
        rewrite(parsed)

    return rewritten


class _MatchCompiler:
    """One clause."""

    def __init__(
        self,
        text: MatchText,
        mention: MatchMention,
        relations: Mapping[str, Relation],
        describe: Describe | None,
        *,
        closes: bool,
    ) -> None:
        self.text = text
        self.mention = mention
        self.clause: MatchClause = mention.clause
        self.relations = relations
        self.describe = describe
        self.closes = closes
        self.program: PatternProgram = compile_pattern(mention.clause)
        self.computed: dict[str, str] = {}  # row columns, and what the input calls them

    def compiled(self, options: Mapping[str, Any]) -> tuple[ViewPlan, MatchStage]:
        """The plan of the input, and the stage."""
        given = self._input_columns()
        if self.describe is None:
            self._refuse_misfits(given)
        wanted = self._carried(given)
        self.computed = self._computed(given)
        name = self.mention.relation + ROWS
        waiting = {key: value for key, value in options.items() if key == "waiting"}
        try:
            plan = self._input_plan(name, self._input_query(given, wanted), **waiting)
            if self.computed and any(isinstance(stage, WholeStage) for stage in plan.stages):
                self.computed = {}  # the stage of the matches computes them
                plan = self._input_plan(name, self._input_query(given, wanted), **waiting)
        except InvalidView as error:
            raise InvalidView(error.message.split(" (line ")[0], hint=error.hint, detail=self._shown()) from None
        carried = [column.name for column in wanted]
        if isinstance(plan.stages[-1], FlowStage):
            plan = replace(plan, stages=(*plan.stages[:-1], replace(plan.stages[-1], as_bag=True)))
        return plan, self._stage(plan, carried) if self.describe is not None else self._names_only(plan, carried)

    def _shown(self) -> str:
        return f"in the input of MATCH_RECOGNIZE, or its PARTITION BY and ORDER BY: {self.mention.input}"

    def _refuse_misfits(self, given: tuple[PlanColumn, ...]) -> None:
        """What plain columns cannot be used for, told when the view is declared; of the rest Spark knows the types."""
        source = next((each for each in self.relations.values() if each.name == self.mention.input.strip("` ")), None)
        types = {each.name.lower(): each.type for each in (*(source.columns if source else ()), *given) if each.type}
        clause = self.clause
        for item in clause.order_by:
            kind = types.get(item.sql.strip("`").lower())
            if kind and not is_orderable(kind):
                refuse(clause.text, item.piece.span, f"rows cannot be ordered by a {kind}", ORDERED_BY)
            if kind and clause.within_us is not None and item is clause.order_by[0] and kind not in (*TIMES, "DATE"):
                said = f"WITHIN needs rows in the order of a time, and the first ORDER BY item is a {kind}"
                refuse(clause.text, item.piece.span, said, "Order by a TIMESTAMP first, such as timestamp_seconds(at).")
        for sql in clause.partition_by:
            kind = types.get(sql.strip("`").lower())
            if kind and not is_orderable(kind):
                raise InvalidPattern(f"rows cannot be parted by {sql}, a {kind}", hint=ORDERED_BY)
        plain = {each.name: each.sql.strip("`") for each in self.program.row_columns}
        for aggregate in self.program.aggregates:
            name = plain.get(aggregate.column or "", "")
            kind = types.get(name.lower())
            if aggregate.shortcut and kind and not _takes(aggregate.function, kind):
                hint = f"Cast it, or write try_{aggregate.function}(…)." if aggregate.function in TOTALS else ORDERED_BY
                raise InvalidPattern(f"{aggregate.function} cannot be taken of {name}, a {kind}", hint=hint)

    # The input

    def _source(self) -> str:
        given = self.mention.input
        return f"{given} AS input__" if given.startswith("(") else given

    def _definitions(self) -> str:
        """The WITH queries that the input may mention: those that are no result of a later clause."""
        later = [each.relation for each in self.text.mentions if each.relation not in self.relations]
        usable = [query for _, query in self.text.definitions if not any(name in query for name in later)]
        return f"WITH {', '.join(usable)} " if usable else ""

    def _input_plan(self, name: str, query: str, **options: Any) -> ViewPlan:
        """The plan of a query, which may name metadata columns of topics."""
        written = write_out_metadata(query, self.relations)
        plan = compile_view(name, written.sql, written.relations, describe=self.describe, **options)
        return replace(plan, written_out=written.sql if written.replaced else "")

    def _input_columns(self) -> tuple[PlanColumn, ...]:
        query = f"{self._definitions()}SELECT * FROM {self._source()}"
        return self._input_plan(self.mention.relation, query).columns

    def _carried(self, given: tuple[PlanColumn, ...]) -> list[PlanColumn]:
        """The columns of the input that the clause needs."""
        if self.clause.rows_per_match == "all":
            return list(given)
        texts = [column.sql for column in self.program.row_columns] + list(self.clause.partition_by)
        mentioned = {
            part.name.lower() for sql in texts for tree in trees(f"SELECT {sql}") for part in tree.find_all(exp.Column)
        }
        return [column for column in given if column.name.lower() in mentioned]

    def _computed(self, given: tuple[PlanColumn, ...]) -> dict[str, str]:
        """The row columns that look at no other row: the input has them, and they are computed once for each row."""
        plain = {column.name.lower() for column in given}
        own = [each for each in self.program.row_columns if "__w" not in each.sql]
        some = [each.name for each in own if each.sql.strip("`").lower() not in plain]
        found = {name: f"{COMPUTED}{place}" for place, name in enumerate(some)}
        return {} if self.describe is None or plain & set(found.values()) else found

    def _input_query(self, given: tuple[PlanColumn, ...], wanted: list[PlanColumn]) -> str:
        source = self._source()
        keys = [f"({sql}) AS {KEY}{place}" for place, sql in enumerate(self.clause.partition_by)]
        order = [f"({item.sql}) AS {ORDER}{place}" for place, item in enumerate(self.clause.order_by)]
        columns = [f"`{column.name}`" for column in wanted]
        parts = [*columns, *keys, *order, f"{self._bucket(given)} AS {BUCKET}"]
        texts = {each.name: each.sql for each in self.program.row_columns}
        parts += [f"({texts[name]}) AS {called}" for name, called in self.computed.items()]
        return f"{self._definitions()}SELECT {', '.join(parts)} FROM {source}"

    def _bucket(self, given: tuple[PlanColumn, ...]) -> str:
        """The bucket of a row by the first thing that rows are ordered by, where that is a number or a time."""
        if not self.clause.order_by or self.describe is None:
            return f"CAST({OTHERS} AS BIGINT)"
        item = self.clause.order_by[0]
        (found,) = self.describe(f"SELECT ({item.sql}) AS o FROM _given", {"_given": given})
        kind = (found.type or "").upper()
        if kind in TIMES:
            number = f"unix_micros(CAST(({item.sql}) AS TIMESTAMP)) DIV {self.clause.within_us or BUCKET_US}L"
        elif kind == "DATE":
            number = f"unix_date({item.sql}) DIV 30L"
        elif kind in INTEGERS:
            number = f"CAST(({item.sql}) AS BIGINT) DIV {ROWS_A_BUCKET}L"
        else:
            return f"CAST({OTHERS} AS BIGINT)"
        number = f"-({number})" if item.descending else number
        null = FIRST if item.nulls_first else -FIRST
        return f"coalesce({number}, {null}L)"

    # The stage

    def _stage(self, plan: ViewPlan, carried: list[str]) -> MatchStage:
        clause, program = self.clause, self.program
        keys = [f"{KEY}{place}" for place in range(len(clause.partition_by))]
        types = {column.name.lower(): column.type for column in plan.columns}
        order = [
            f"{ORDER}{place}{' DESC' if item.descending else ' ASC'} NULLS {'FIRST' if item.nulls_first else 'LAST'}"
            for place, item in enumerate(clause.order_by)
        ]
        # What rows are parted or ordered by ties nothing: Spark would carry and compare it a second time.
        told = {sql.strip("`").lower() for sql in (*clause.partition_by, *(item.sql for item in clause.order_by))}
        ties = [f"`{name}`" for name in carried if name.lower() not in told and is_orderable(types.get(name.lower()))]
        by = f"PARTITION BY {', '.join(keys)} " if keys else ""
        window = f"{by}ORDER BY {', '.join([*order, *ties]) or '1'}"
        shown = carried if clause.rows_per_match == "all" else []
        parts = [
            *keys,
            BUCKET,
            *([f"{ORDER}0"] if self._timed(types) else []),
            *(f"`{name}`" for name in shown),
            *(f"{self.computed.get(each.name, each.sql)} AS {each.name}" for each in program.row_columns),
            f"row_number() OVER __w AS {PLACE}",
        ]
        rows = f"SELECT {', '.join(parts)} FROM _rows WINDOW __w AS ({window})"
        row_columns = self._described(rows, {"_rows": plan.columns})
        for sql in program.conditions_sql:
            self._described(f"SELECT {sql} AS c FROM _given", {"_given": row_columns})
        stage = self._measured(plan, rows, row_columns, keys, shown)
        return self._with_unsorted(stage, [name.strip("`") for name in ties], shown, types)

    def _with_unsorted(
        self, stage: MatchStage, ties: list[str], shown: list[str], types: Mapping[str, str | None]
    ) -> MatchStage:
        """The stage for a reader that sorts many rows itself: where Spark's order and ours are the same."""
        clause = self.clause
        order = [
            SortColumn(f"{ORDER}{place}", item.descending, item.nulls_first)
            for place, item in enumerate(clause.order_by)
        ]
        plain = all((types.get(column.name) or "").upper() in NUMBERED for column in order)
        plain = plain and all((types.get(name.lower()) or "").upper() in SORTABLE for name in ties)
        known = dict(self.computed)
        names = {column.lower(): column for column in stage.source.columns}
        for each in self.program.row_columns:
            known.setdefault(each.name, names.get(each.sql.strip("`").lower(), ""))
        if not stage.keys or not order or not plain or not all(known.values()):
            return stage
        same = [*stage.keys, BUCKET, *(column.name for column in order), *shown]
        picked = {name: name for name in same} | known | {f"t__{place}": name for place, name in enumerate(ties)}
        return replace(
            stage,
            unsorted=tuple(picked.items()),
            sort_by=(*order, *(SortColumn(f"t__{place}") for place in range(len(ties)))),
        )

    def _names_only(self, plan: ViewPlan, carried: list[str]) -> MatchStage:
        """What is known without Spark."""
        names = self._partition_names()
        rest = [name for name in carried if name not in names] if self.clause.rows_per_match == "all" else []
        shown = [*names, *(measure.alias for measure in self.program.measures), *rest]
        columns = tuple(PlanColumn(name) for name in [*shown, *([CLOSES] if self.closes else [])])
        leaf = Leaf("_l0", plan.name, LeafContent.BAG, tuple(column.name for column in plan.columns))
        return MatchStage(
            self.mention.relation,
            StageKind.KEYED,
            columns,
            HIDDEN,
            self._what(),
            leaf,
            program=self.program,
            bucket_us=self.clause.within_us or BUCKET_US,
        )

    def _timed(self, types: Mapping[str, str | None]) -> bool:
        ordered = bool(self.clause.order_by) and not self.clause.order_by[0].descending
        return ordered and (types.get(f"{ORDER}0") or "").upper() in TIMES

    def _measured(
        self, plan: ViewPlan, rows: str, row_columns: tuple[PlanColumn, ...], keys: list[str], shown: list[str]
    ) -> MatchStage:
        program = self.program
        by_name = {column.name: column for column in row_columns}
        hidden = tuple(PlanColumn(f"_k{place}", by_name[key].type) for place, key in enumerate(keys))
        slots = _slots(program, row_columns)
        carried = [by_name[name] for name in shown]
        timed = f"{ORDER}0" in by_name
        closing = (PlanColumn(CLOSES, "TIMESTAMP"),) if self.closes else ()
        names = self._partition_names()
        given = {name.lower() for name in names}
        parts = [f"_k{place} AS `{name}`" for place, name in enumerate(names)]
        # An entry is no row of a match: nothing is computed of it.
        parts += [f"CASE WHEN NOT _entry THEN {measure.sql} END AS `{measure.alias}`" for measure in program.measures]
        parts += [f"`{name}`" for name in shown if name.lower() not in given]
        parts += [CLOSES] if self.closes else []
        own = [column.name for column in (*hidden, *HIDDEN)]
        sql = f"SELECT {', '.join([*parts, *own])} FROM _matched"
        matched = (*slots, *self._aggregates(row_columns), *carried, *closing, *hidden, *HIDDEN)
        state = self._described(sql, {"_matched": matched})
        columns = state[: len(parts)]
        return MatchStage(
            self.mention.relation,
            StageKind.KEYED,
            columns,
            (*hidden, *HIDDEN),
            self._what(),
            Leaf("_l0", plan.name, LeafContent.BAG, tuple(column.name for column in plan.columns)),
            tuple(keys),
            BUCKET,
            rows,
            row_columns,
            (*slots, *carried, *closing),
            sql,
            program,
            tuple(names),
            f"{ORDER}0" if timed else "",
            plan.batch,
            bucket_us=(self.clause.within_us or BUCKET_US) if timed else 0,
        )

    def _aggregates(self, row_columns: tuple[PlanColumn, ...]) -> list[PlanColumn]:
        """The aggregates that Spark computes of the rows of a match."""
        found, members = [], (*row_columns, PlanColumn("_classifier", "STRING"))
        for each in self.program.aggregates:
            if not each.shortcut:
                (column,) = self._described(f"SELECT {each.sql} AS a FROM _given", {"_given": members})
                found.append(PlanColumn(each.name, column.type))
        return found

    def _partition_names(self) -> list[str]:
        names = []
        for sql in self.clause.partition_by:
            tree = trees(f"SELECT {sql}")[0].expressions[0]
            if not isinstance(tree, exp.Column):
                raise InvalidView(
                    f"PARTITION BY {sql} is not a column",
                    hint="Compute it in the input: FROM (SELECT *, … AS k FROM t) MATCH_RECOGNIZE (PARTITION BY k …).",
                )
            names.append(tree.name)
        return names

    def _described(self, sql: str, tables: Mapping[str, tuple[PlanColumn, ...]]) -> tuple[PlanColumn, ...]:
        assert self.describe is not None
        return self.describe(sql, tables)

    def _what(self) -> str:
        by = ", ".join(self._partition_names())
        start, stop = self.clause.pattern_span
        pattern = " ".join(self.clause.text[start:stop].split())
        return f"matches of {pattern} in {self.mention.input}" + (f" by {by}" if by else "")


def _takes(function: str, kind: str) -> bool:
    if function in TOTALS:
        return kind.partition("(")[0] in (*INTEGERS, "FLOAT", "DOUBLE", "DECIMAL")
    return function == "count" or is_orderable(kind)


def _slots(program: PatternProgram, row_columns: tuple[PlanColumn, ...]) -> tuple[PlanColumn, ...]:
    """What the matcher picks, with its types: those of a search in no rows."""
    schema = parse_view_ddl(", ".join(f"`{column.name}` {column.type}" for column in row_columns))
    nothing = schema.empty_table()
    picked = program.match(nothing, np.zeros(1, np.int64)).slot_table(nothing)
    return tuple(PlanColumn(field.name, spark_type(field.type)) for field in picked.schema if field.name != "_row")
