"""A plan: what the compiler hands to the tick.

What it is: frozen descriptions of a view as *stages*. A stage reads relations (base tables, topics, other stages),
is given what changed in them, and yields what changes in its own rows. All SQL here is text in Spark's dialect.
Invariants: stages stand in dependency order and the last one carries the view's name; every table that a stage's SQL
mentions is one of its leaves; columns that begin with an underscore are hidden from users.
Not here: how a stage is run (``views/tick/engine.py`` on Spark, ``tests/compiler/duck.py`` on DuckDB); how a plan is
made (``compile.py``).
Read next: ``compile.py``.

The algebra. A relation's content is a bag of rows. A *weighted* table holds rows with ``_weight BIGINT``: the content
is the sum of the weights of equal rows, whatever the order and the number of rows. *Changes* are a weighted table too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from headwater.patterns import PatternProgram

WEIGHT = "_weight"


class StageKind(StrEnum):
    """What a stage's tick costs; see the table in ``docs/views.md``."""

    LINEAR = "linear"  # the changes
    BILINEAR = "bilinear"  # the changes and their matches
    ACCUMULATING = "accumulating"  # the groups touched
    LEADING = "leading"  # the changes and a bounded number of leading rows
    KEYED = "keyed"  # the rows of the touched keys
    WHOLE = "whole"  # everything


class LeafContent(StrEnum):
    """What a leaf must be bound to."""

    CHANGES = "changes"  # weighted: what this tick changed in the relation
    BEFORE = "before"  # weighted: the relation as the previous tick left it
    AFTER = "after"  # weighted: the relation with this tick's changes (before, and changes, one below the other)
    BAG = "bag"  # not weighted: the rows after this tick, each as often as it is there


@dataclass(frozen=True)
class PlanColumn:
    """A column and its type as Spark writes it in DDL; None when it is not known yet."""

    name: str
    type: str | None = None


@dataclass(frozen=True)
class Relation:
    """What the compiler is told about a table, a topic or another view."""

    name: str
    columns: tuple[PlanColumn, ...]
    key: tuple[str, ...] = ()  # unique, when not empty
    append_only: bool = False  # rows never leave: no negative weights, ever
    not_null: tuple[str, ...] = ()  # columns that never hold a null: saves NOT IN a stage
    event_time: str | None = None  # of a table: the column that says since when a row counts
    is_view: bool = False


@dataclass(frozen=True)
class Lookup:
    """A leaf needs no more than the rows whose ``columns`` equal ``source_columns`` of some row of leaf ``source``.

    Equal as in SQL: a null matches nothing. The leaf may be bound to more rows than these, up to all of them;
    the SQL stays right, for it repeats the condition.
    """

    columns: tuple[str, ...]
    source: str  # the name of another leaf of the same term, which has no lookup or one that does not lead back here
    source_columns: tuple[str, ...]


@dataclass(frozen=True)
class Leaf:
    """One mention of a relation in a stage's SQL."""

    name: str  # the table name in the SQL text, unique in the stage: "_l0", "_l1", …
    relation: str  # a base relation, another view, or an earlier stage of this view
    content: LeafContent
    columns: tuple[str, ...]  # all that the SQL uses of it (without _weight)
    lookup: Lookup | None = None


NOTHING = Leaf("", "", LeafContent.CHANGES, ())
NUMBER = "_number"  # of a leading row: its row_number, rank or dense_rank


def topic_of(relation: str) -> str:
    """The topic or view whose records a relation has: of its versions, or of its rows with their metadata.

    >>> topic_of("users$versions"), topic_of("users")
    ('users', 'users')
    """
    return relation.partition("$")[0]


# What is multiplied: leaves, and unions, each of these by the factors of its branches. No factors: a constant.
Factors: TypeAlias = "tuple[str | tuple[Factors, ...], ...]"


def _is_zero(factors: Factors, empty: Collection[str]) -> bool:
    """Whether a product is zero: a leaf of it has no rows, or no branch of a union of it has any.

    >>> orders_with_all_users: Factors = ("orders", (("users",), ("old_users",)))
    >>> _is_zero(orders_with_all_users, {"users"}), _is_zero(orders_with_all_users, {"users", "old_users"})
    (False, True)
    """
    return any(
        factor in empty if isinstance(factor, str) else all(_is_zero(branch, empty) for branch in factor)
        for factor in factors
    )


@dataclass(frozen=True)
class Term:
    """One summand of a flow's changes. Yields the flow's columns and ``_weight``.

    It need not be run when it ``is_zero``.
    """

    sql: str
    leaves: tuple[Leaf, ...]
    changes: str  # the name of the one leaf whose content is CHANGES
    factors: Factors

    def is_zero(self, empty: Collection[str]) -> bool:
        """Whether it yields nothing since these of its leaves are bound to no rows."""
        return _is_zero(self.factors, empty)

    @property
    def linear_in(self) -> frozenset[str]:
        """The leaves that the whole term is multiplied by: over a part of such a leaf it yields a part of its rows."""
        return frozenset(factor for factor in self.factors if isinstance(factor, str))

    @cached_property
    def sources_first(self) -> tuple[Leaf, ...]:
        """The leaves in an order in which each comes after the leaf that its lookup asks; the changes are first."""
        ordered = [leaf for leaf in self.leaves if leaf.name == self.changes]
        rest = [leaf for leaf in self.leaves if leaf.name != self.changes]
        while rest:
            done = {leaf.name for leaf in ordered}
            ready = [leaf for leaf in rest if leaf.lookup is not None and leaf.lookup.source in done] or [rest[0]]
            ordered += ready
            rest = [leaf for leaf in rest if leaf not in ready]
        return tuple(ordered)


@dataclass(frozen=True)
class Stage:
    """What every stage has. ``columns`` are visible to its readers; ``hidden`` are for the stage itself."""

    name: str  # "revenue" for the last stage of view revenue, "revenue$1", … for the others
    kind: StageKind
    columns: tuple[PlanColumn, ...]
    hidden: tuple[PlanColumn, ...]
    what: str  # for people: "orders ⋈ users", "group by country: sum(amount)"

    @property
    def reads(self) -> frozenset[str]:
        """The relations it reads."""
        return frozenset(leaf.relation for leaf in self.leaves)

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Every leaf of the stage."""
        raise NotImplementedError


@dataclass(frozen=True)
class FlowStage(Stage):
    """Filters, projections, explosions, inner joins, UNION ALL: linear and bilinear.

    Changes = the sum of the terms. For leaves l1..ln there are n terms; in term i the leaves before i are AFTER, leaf
    i is CHANGES, the leaves behind it are BEFORE; the weight of a joined row is the product of the weights.
    """

    terms: tuple[Term, ...] = ()
    constant: str | None = None  # SQL without leaves (VALUES, SELECT 1): rows with _weight, added once, at the start
    as_bag: bool = False  # its reader takes each row by itself: equal ones that only came need not be added up

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return tuple(leaf for term in self.terms for leaf in term.leaves)


@dataclass(frozen=True)
class AccumulateStage(Stage):
    """GROUP BY (or DISTINCT) whose aggregates can be added to and taken from.

    State rows: ``columns``, then hidden ``_g0…`` (the group), ``_n`` (rows in the group), ``_a0…`` (accumulators) and
    ``_shown`` (BOOLEAN: HAVING holds). One row for a group with ``_n`` > 0. Readers see the rows that are shown.

    1. the terms yield ``_g0…``, ``_x0…`` and ``_weight``; their union is bound to ``_flow`` (a table of no rows when
       nothing changed);
    2. ``partial`` reads ``_flow``: one row per touched group with ``_g0…``, ``_n``, ``_a0…``, all of them differences;
    3. ``combine`` reads ``_partial`` and ``_before`` (the stage's own state rows; at least those of the touched
       groups, without ``_weight``): the new state row of each touched group; ``_n`` is 0 when none of its rows is left.
    The stage's changes: the rows of ``combine`` with weight +1 (unless ``_n`` is 0 and the stage is not ``one_row``),
    the old state rows of the touched groups with -1.
    """

    terms: tuple[Term, ...] = ()
    constant: str | None = None
    groups: tuple[PlanColumn, ...] = ()  # _g0, _g1, …
    # Those of the groups that are calls of window, each with its size (SQL; empty where the call has no text for it):
    # never null, and the start tells the end.
    windows: tuple[tuple[str, str], ...] = ()
    partial: str = ""
    combine: str = ""
    # Cheaper forms of the two, when not empty. ``in_range_combine`` yields one column more, ``_out_of_range``: where it
    # is true for some row, the answer does not hold and the other two must be run (sums of doubles:
    # ``algebra/exact_sums.py``).
    in_range_partial: str = ""
    in_range_combine: str = ""
    one_row: bool = False  # no GROUP BY: exactly one row always, and so the first tick must run it without changes

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return tuple(leaf for term in self.terms for leaf in term.leaves)


@dataclass(frozen=True)
class KeyedInput:
    """An input of a keyed stage: a relation and the expressions over its columns that are the key."""

    leaf: Leaf  # content BAG; to be bound to the rows of touched keys only
    keys: tuple[str, ...]  # SQL over the relation's bare column names, as many as the stage has keys
    plain: tuple[str, ...] | None  # the same as column names, when each key is just a column; else None


@dataclass(frozen=True)
class KeyedStage(Stage):
    """Anything computed key by key: the touched keys are computed anew.

    State rows: ``columns``, then hidden ``_k0…``, the key. ``sql`` yields exactly these, as a bag.
    1. touched = the distinct keys of the changes of all inputs (nulls are keys like others);
    2. ``sql`` over the inputs, each restricted to the rows after the tick whose keys are touched (compared with <=>);
    The stage's changes: the rows of ``sql`` with +1, the old state rows of the touched keys with -1, netted.

    With ``leading`` columns the stage keeps the first rows of each key (``views/compiler/operators/top_k.py``): for a
    touched key of which no row of the state left the input, the old state rows and the rows that came may be bound in
    step 2 instead.

    With ``in_runs`` the key is one whole number, and one column of one input. Touched are then all numbers of the runs
    that the keys of the changes are in: numbers one after the other, of each of which the input has rows, before the
    tick or after it. A row whose key is null has a part in nothing
    (``views/compiler/operators/session_buckets.py``).
    """

    inputs: tuple[KeyedInput, ...] = ()
    keys: tuple[PlanColumn, ...] = ()  # _k0, _k1, …
    sql: str = ""
    leading: tuple[str, ...] = ()  # for each column of the one leaf the state column that holds it
    in_runs: bool = False

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return tuple(given.leaf for given in self.inputs)


@dataclass(frozen=True)
class LeadingStage(Stage):
    """The first rows in an order, of one relation: ORDER BY … LIMIT and what is written as such.

    State rows, the *buffer*: ``columns``, then hidden ``_c0…`` (the row of the flow), ``_shown`` (BOOLEAN). They are
    the first rows of the flow, some more than are shown. A row has a ``number`` (row_number, rank or dense_rank);
    shown are those from ``first`` to ``last``. While the buffer has a row behind ``last`` it may lack rows of the flow,
    all of them behind its own last one; while it has none, it is the whole flow.

    1. ``term`` yields the changes of the flow: ``_c0…`` and ``_weight``; they are bound to ``_flow``;
    2. ``merge`` reads ``_flow`` and ``_before`` (the buffer: ``_c0…`` and ``_weight``), and yields the rows of both,
       with ``_held`` (it is of the buffer), ``_place`` (its rank in the order, equal for equal rows), ``_peer`` (the
       same without what breaks ties) and ``_rows`` (how many rows both have). It may leave out rows whose ``_place``
       is neither up to ``last + spare`` nor up to that of the last row of the buffer.
    3. The new buffer: those rows up to the last one of the buffer, or all when it was the whole flow, added up. When
       no row behind ``last`` is left, and it may not be the whole flow, it is filled anew:
    4. ``fill`` reads ``everything``: the first rows of the flow, those up to ``last`` and ``spare`` more, as a bag of
       ``_c0…`` with ``_place`` and ``_peer``.
    The stage's changes: the new buffer less the old one. On the first tick the buffer is filled.
    """

    term: Term = Term("", (), "", ())
    everything: Leaf = NOTHING  # content BAG
    merge: str = ""
    fill: str = ""
    shown: tuple[str, ...] = ()  # for each of ``columns`` the ``_c…`` it shows, or ``NUMBER``
    number: str = "row_number"
    first: int = 1
    last: int = 1
    spare: int = 0

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return (*self.term.leaves, self.everything)

    @property
    def held(self) -> tuple[str, ...]:
        """The columns of the flow: ``_c0…``."""
        return tuple(column.name for column in self.hidden if column.name != "_shown")


@dataclass(frozen=True)
class SortColumn:
    """A column to sort by."""

    name: str
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class MatchStage(Stage):
    """MATCH_RECOGNIZE: the matches of a pattern in the ordered rows of each partition.

    The source has hidden columns: ``keys`` (PARTITION BY), what to order by, and ``bucket``, a whole number that never
    falls along the order: rows are looked up by partition and bucket.

    With ``lets_go`` rows of the source and of the state leave again (``views/stages/match_expiry.py``): what is left is
    all that a tick may need.

    State rows are of two sorts. The rows of the matches: ``columns``, the partition ``_k0…``, the bucket of the row
    where the match began and ``_index``, the number of that row in its bucket, ``_shown``. And, not shown, an entry for
    each bucket of a partition that has rows, and one for its end: ``_rows``, how many rows the bucket has; ``_from``
    and ``_skip``, the bucket and the number in it of the *resume row*: the first row at which an attempt to match began
    that looked at the first row of this bucket, or else that row; and ``_matches``, how many matches began before it.

    When rows of a bucket change, what began before its resume row stays as it is. A tick computes anew what begins
    there or later, from the rows there and later, in each partition with a changed row:
    1. ``rows`` reads them as ``_rows``: what the matcher needs of each row, in order, with ``_place``: its number in
       the partition; of many rows their reader takes ``unsorted`` and sorts;
    2. the matcher (``program``) finds the matches; what it picked for each row of a match is bound to ``_matched``;
    3. ``measures`` reads ``_matched`` and yields ``columns`` with the hidden ones.
    The stage's changes: these rows with +1, the old ones from the resume row on with -1, netted.
    """

    source: Leaf = NOTHING  # content BAG
    keys: tuple[str, ...] = ()
    bucket: str = ""
    rows: str = ""
    row_columns: tuple[PlanColumn, ...] = ()  # what ``rows`` yields
    slots: tuple[PlanColumn, ...] = ()  # what the matcher yields, but for the hidden columns of the state
    measures: str = ""
    program: PatternProgram | None = None
    partition_names: tuple[str, ...] = ()  # of ``columns``: the partition's
    time: str = ""  # of ``row_columns``: the time that rows are ordered by, where they are
    input: str = ""  # for recomputation: the query that the source is
    # For a reader that sorts many rows: columns, and which of the source's each is; empty where Spark must sort.
    unsorted: tuple[tuple[str, str], ...] = ()
    sort_by: tuple[SortColumn, ...] = ()  # what that reader sorts the rows of a partition by
    bucket_us: int = 0  # how much time a bucket has, where rows are ordered by a time
    lets_go: bool = False

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return (self.source,)


@dataclass(frozen=True)
class WholeStage(Stage):
    """What is none of these: computed anew from everything, whenever something changed.

    The stage's changes: the rows of ``sql`` with +1, all old state rows with -1, netted. Runs on the first tick too.
    """

    inputs: tuple[Leaf, ...] = ()
    sql: str = ""
    reason: str = ""  # for people: why it has no cheaper kind

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return self.inputs


@dataclass(frozen=True)
class Sessions:
    """Rows leave when their session has: rows of one ``keys`` of which each comes at most ``gap_us`` after another."""

    keys: tuple[str, ...]
    gap_us: int


@dataclass(frozen=True)
class Superseded:
    """Versions leave when the next one of their ``keys`` counts already. The last one stays, also a tombstone."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class TimedStage(Stage):
    """The rows of a topic that come in time for one view, or (``late``) those that do not.

    A row is in time when its event time is not before the view's cutoff. With ``lets_go`` rows leave again when the
    view cannot need them any more: what is left is all that the view's other stages look at. By default a row leaves by
    its own time; else as ``leaving`` says. Versions of a table are never late.
    """

    source: Leaf = NOTHING  # content CHANGES: the topic, with all its columns
    time: str = ""
    late: bool = False
    lets_go: bool = False
    leaving: Sessions | Superseded | None = None

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return (self.source,)


@dataclass(frozen=True)
class FinalStage(Stage):
    """The rows of a timed view: those of its query that may change, and those that are final and stay as they are.

    With ``final`` only the latter: a row appears when the watermark reaches the moment at which it closes.
    """

    source: Leaf = NOTHING  # content CHANGES, or BEFORE with ``final``: the stage that is the query
    final: bool = False

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return (self.source,)


@dataclass(frozen=True)
class ViewPlan:
    """A compiled view."""

    name: str
    sql: str  # as the user wrote it
    stages: tuple[Stage, ...]
    columns: tuple[PlanColumn, ...]
    reads: tuple[str, ...]  # the base relations and views, in order of mention
    fingerprint: str  # equal for equal meaning: formatting, comments and case of keywords do not matter
    key: tuple[str, ...] = ()  # visible columns known to be unique together (the columns of a GROUP BY)
    notes: tuple[str, ...] = ()  # for people: "ORDER BY has no effect on a view and was left out"
    opaque: str = ""  # why it is computed as one piece, from the user's own text
    query: str = ""  # the user's text with its names settled
    own_rule: bool = False  # a rule of ours applies (ties, AS OF): recomputation runs ``query``, not the user's text
    reach_us: int | None = None  # of a timed view whose state is let go: how far the influence of a row reaches
    lets_go_groups: bool = False  # of a timed view: groups that closed long enough ago leave its state
    inner: str = ""  # of a timed view: its query with the column that says when a row closes
    written_out: str = ""  # the user's text with its metadata columns and Bloom filters written out, if it has any

    @property
    def batch(self) -> str:
        """What recomputation runs: the user's own text, except where a rule of ours applies."""
        return self.query if self.own_rule else self.written_out or self.sql

    @property
    def kind(self) -> StageKind:
        """The dearest kind among the stages."""
        order = list(StageKind)
        return max((stage.kind for stage in self.stages), key=order.index)
