"""The MATCH_RECOGNIZE clause: found in a SQL text and read whole.

What it is: ``find_clauses``; ``MatchClause`` and its parts, as declared by the user; the reader of the clause's
sections.
Invariants: a clause in a string, a comment or backticks is none; expressions stay the user's text; every part knows
its place, so that an error underlines it; a clause that is returned has passed ``clause_checks.py``.
Not here: the tree of PATTERN (``pattern_tree.py``), what expressions mean (``pattern_program.py``).
Read next: ``clause_checks.py``, ``pattern_program.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.durations import parse_us
from headwater.patterns.clause import clause_checks
from headwater.patterns.clause.pattern_scanner import Piece, Span, SqlToken, refuse, scan, split_at
from headwater.patterns.clause.pattern_tree import PatternNode, Variable, nodes_of, parse_pattern

# The sections in their order, by the words that begin them; None stands for any name.
SECTIONS: tuple[tuple[str, tuple[str | None, ...]], ...] = (
    ("PARTITION BY", ("PARTITION", "BY")),
    ("ORDER BY", ("ORDER", "BY")),
    ("MEASURES", ("MEASURES",)),
    ("ONE ROW PER MATCH", ("ONE", "ROW", "PER", "MATCH")),
    ("ALL ROWS PER MATCH", ("ALL", "ROWS", "PER", "MATCH")),
    ("AFTER MATCH SKIP", ("AFTER", "MATCH", "SKIP")),
    ("PATTERN", ("PATTERN", "(")),
    ("WITHIN", ("WITHIN", "INTERVAL")),
    ("SUBSET", ("SUBSET", None, "=")),
    ("DEFINE", ("DEFINE", None, "AS")),
)
# ONE ROW and ALL ROWS share a place.
RANK = {name: (3 if name == "ALL ROWS PER MATCH" else at) for at, (name, _) in enumerate(SECTIONS)}


@dataclass(frozen=True)
class OrderItem:
    """One item of ORDER BY."""

    piece: Piece
    sql: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class MeasureItem:
    """One item of MEASURES: an expression and its alias."""

    piece: Piece
    alias: str

    @property
    def sql(self) -> str:
        return self.piece.sql


@dataclass(frozen=True)
class SkipRule:
    """Where the search goes on after a match: ``past last``, ``next``, ``first`` or ``last`` (of a variable)."""

    kind: str
    variable: str | None
    span: Span


@dataclass(frozen=True)
class SubsetItem:
    """A name for several variables."""

    name: str
    span: Span
    members: tuple[Variable, ...]


@dataclass(frozen=True)
class DefineItem:
    """A variable and its condition."""

    name: str
    span: Span
    piece: Piece


@dataclass(frozen=True)
class MatchClause:
    """One ``MATCH_RECOGNIZE ( … )``, as the user wrote it.

    >>> clause = find_clauses("FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY at PATTERN (A b+) DEFINE b AS x > 1)")[0]
    >>> clause.partition_by, clause.variables, clause.rows_per_match, clause.skip.kind
    (('k',), ('A', 'b'), 'one', 'past last')
    """

    text: str
    span: Span
    partition_pieces: tuple[Piece, ...]
    order_by: tuple[OrderItem, ...]
    measures: tuple[MeasureItem, ...]
    rows_per_match: str  # "one" or "all"
    rows_span: Span
    empty_matches: bool  # shown
    unmatched_rows: bool
    timed_out: bool
    skip: SkipRule
    pattern: PatternNode
    pattern_span: Span
    absent_variable: Variable | None
    within_us: int | None
    within_span: Span
    subsets: tuple[SubsetItem, ...]
    define: tuple[DefineItem, ...]

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The texts of the PARTITION BY expressions."""
        return tuple(piece.sql for piece in self.partition_pieces)

    @property
    def absent(self) -> str | None:
        """The variable of ``[^B]``, or None."""
        return None if self.absent_variable is None else self.absent_variable.name

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of the pattern as first written, the absent one last. Case does not distinguish names."""
        names: dict[str, str] = {}
        for node in nodes_of(self.pattern):
            if isinstance(node, Variable):
                names.setdefault(node.name.casefold(), node.name)
        if self.absent is not None:
            names.setdefault(self.absent.casefold(), self.absent)
        return tuple(names.values())


def find_clauses(sql: str) -> list[MatchClause]:
    """Every MATCH_RECOGNIZE clause of a text, in order; a malformed one is refused, its place underlined.

    >>> find_clauses("SELECT 'MATCH_RECOGNIZE (' -- MATCH_RECOGNIZE ( too")
    []
    >>> find_clauses("t MATCH_RECOGNIZE (PATTERN (A{}))")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidPattern: a quantifier is empty, at line 1, column 30
      t MATCH_RECOGNIZE (PATTERN (A{}))
                                   ^^
      Hint: Write {3}, {2,}, {,4} or {2,4}.
    """
    tokens = scan(sql)
    clauses, place = [], 0
    while place < len(tokens) - 1:
        if tokens[place].word == "MATCH_RECOGNIZE" and tokens[place + 1].text == "(":
            close = closing_bracket(sql, tokens, place + 1)
            clauses.append(ClauseReader(sql, tokens[place : close + 1]).clause())
            place = close
        place += 1
    return clauses


def closing_bracket(sql: str, tokens: Sequence[SqlToken], opening: int) -> int:
    """The place of the bracket that closes the one at ``opening``."""
    depth = 0
    for place in range(opening, len(tokens)):
        depth += (tokens[place].text == "(") - (tokens[place].text == ")")
        if depth == 0:
            return place
    token = tokens[opening]
    refuse(sql, (token.start, token.stop), "a bracket is not closed", "Add the closing bracket.")


class ClauseReader:
    """The sections of one clause, and how each is read."""

    def __init__(self, sql: str, tokens: Sequence[SqlToken]) -> None:
        self.sql = sql
        self.keyword = (tokens[0].start, tokens[0].stop)
        self.span = (tokens[0].start, tokens[-1].stop)
        self.sections = self.cut(tokens[2:-1])

    def cut(self, tokens: Sequence[SqlToken]) -> dict[str, list[SqlToken]]:
        """The tokens of each section, its opening words included."""
        found: dict[str, list[SqlToken]] = {}
        current: list[SqlToken] | None = None
        depth, rank = 0, -1
        for place, token in enumerate(tokens):
            name = self.section_at(tokens, place) if depth == 0 and token.kind == "name" else None
            if name is not None:
                self.refuse_out_of_order(name, found, rank, token)
                # Flink writes WITHIN before SUBSET and DEFINE; behind them it is as clear.
                rank = rank if name == "WITHIN" else RANK[name]
                current = found[name] = []
            if current is None:
                refuse(
                    self.sql,
                    (token.start, token.stop),
                    f"MATCH_RECOGNIZE cannot begin with {token.text}",
                    "Begin with PARTITION BY, ORDER BY, MEASURES or PATTERN.",
                )
            current.append(token)
            depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        return found

    def section_at(self, tokens: Sequence[SqlToken], place: int) -> str | None:
        for name, words in SECTIONS:
            here = tokens[place : place + len(words)]
            if len(here) == len(words) and all(
                word is None or token.word == word for word, token in zip(words, here, strict=True)
            ):
                return name
        return None

    def refuse_out_of_order(self, name: str, found: dict[str, list[SqlToken]], rank: int, token: SqlToken) -> None:
        span = (token.start, token.stop)
        if name in found or (RANK[name] == 3 and rank == 3):
            refuse(self.sql, span, f"{name} comes twice", "Leave one of them away.")
        if RANK[name] < rank and not (name == "WITHIN" and "PATTERN" in found):
            order = ", ".join(each for each, _ in SECTIONS)
            refuse(self.sql, span, f"{name} comes too late", f"The order is {order}.")

    def clause(self) -> MatchClause:
        if "PATTERN" not in self.sections:
            refuse(self.sql, self.keyword, "MATCH_RECOGNIZE has no PATTERN", "Add PATTERN (A B+ …).")
        pattern_tokens = self.sections["PATTERN"]
        close = closing_bracket(self.sql, pattern_tokens, 1)
        if close + 1 < len(pattern_tokens):
            token = pattern_tokens[close + 1]
            hint = "After PATTERN come WITHIN INTERVAL …, SUBSET name = (…) and DEFINE name AS …"
            refuse(self.sql, (token.start, token.stop), f"{token.text} does not belong behind PATTERN", hint)
        pattern_span = (pattern_tokens[1].start, pattern_tokens[close].stop)
        if close == 2:  # PATTERN () is the empty pattern
            inner = pattern_tokens[1:3]
        else:
            inner = pattern_tokens[2:close]
        tree, absent = parse_pattern(self.sql, inner, span=pattern_span)
        mode, rows_span, empty, unmatched, timed_out = self.rows_per_match()
        within_us, within_span = self.within()
        clause = MatchClause(
            self.sql,
            self.span,
            tuple(self.listed("PARTITION BY", 2)),
            tuple(self.order_item(piece) for piece in self.listed("ORDER BY", 2)),
            tuple(self.measure(piece) for piece in self.listed("MEASURES", 1)),
            mode,
            rows_span,
            empty,
            unmatched,
            timed_out,
            self.skip(),
            tree,
            pattern_span,
            absent,
            within_us,
            within_span,
            tuple(self.subset(piece) for piece in self.listed("SUBSET", 1)),
            tuple(self.definition(piece) for piece in self.listed("DEFINE", 1)),
        )
        clause_checks.check(clause)
        return clause

    def listed(self, section: str, words: int) -> list[Piece]:
        """The parts of a section between commas."""
        tokens = self.sections.get(section, [])
        if not tokens:
            return []
        parts = split_at(tokens[words:], ",")
        for part in parts:
            if not part:
                refuse(
                    self.sql,
                    (tokens[0].start, tokens[words - 1].stop),
                    f"{section} has an empty item",
                    "Take the comma away, or add what is missing.",
                )
        return [Piece.of(self.sql, part) for part in parts]

    def order_item(self, piece: Piece) -> OrderItem:
        tokens = list(piece.tokens)
        words = [token.word for token in tokens]
        nulls: bool | None = None
        if len(words) > 2 and words[-2] == "NULLS" and words[-1] in ("FIRST", "LAST"):
            nulls = words[-1] == "FIRST"
            tokens, words = tokens[:-2], words[:-2]
        descending = len(words) > 1 and words[-1] == "DESC"
        if len(words) > 1 and words[-1] in ("ASC", "DESC"):
            tokens = tokens[:-1]
        # Spark: nulls come first when ascending, last when descending.
        first = (not descending) if nulls is None else nulls
        return OrderItem(piece, Piece.of(self.sql, tokens).sql, descending, first)

    def measure(self, piece: Piece) -> MeasureItem:
        tokens = piece.tokens
        if len(tokens) < 3 or tokens[-2].word != "AS" or tokens[-1].kind not in ("name", "quoted"):
            refuse(self.sql, piece.span, "a measure has no name", "Write MEASURES expression AS name.")
        return MeasureItem(Piece.of(self.sql, tokens[:-2]), tokens[-1].name)

    def rows_per_match(self) -> tuple[str, Span, bool, bool, bool]:
        tokens = self.sections.get("ALL ROWS PER MATCH") or self.sections.get("ONE ROW PER MATCH") or []
        if not tokens:
            return "one", self.keyword, True, False, False
        mode = "all" if tokens[0].word == "ALL" else "one"
        span = (tokens[0].start, tokens[-1].stop)
        rest = " ".join(token.word for token in tokens[4:])
        timed_out = rest.endswith("WITH TIMED OUT MATCHES")
        rest = rest.removesuffix("WITH TIMED OUT MATCHES").strip()
        options = ("", "SHOW EMPTY MATCHES", "OMIT EMPTY MATCHES", "WITH UNMATCHED ROWS") if mode == "all" else ("",)
        if rest not in options:
            hint = "Write ONE ROW PER MATCH, or ALL ROWS PER MATCH with SHOW EMPTY MATCHES, OMIT EMPTY MATCHES or "
            refuse(
                self.sql,
                (tokens[4].start, tokens[-1].stop),
                f"{tokens[0].word} {tokens[1].word} PER MATCH does not take {rest}",
                hint + "WITH UNMATCHED ROWS; WITH TIMED OUT MATCHES may follow.",
            )
        return mode, span, rest != "OMIT EMPTY MATCHES", rest == "WITH UNMATCHED ROWS", timed_out

    def skip(self) -> SkipRule:
        tokens = self.sections.get("AFTER MATCH SKIP", [])
        if not tokens:
            return SkipRule("past last", None, self.keyword)
        span, rest = (tokens[0].start, tokens[-1].stop), tokens[3:]
        words = [token.word for token in rest]
        if words == ["PAST", "LAST", "ROW"]:
            return SkipRule("past last", None, span)
        if words == ["TO", "NEXT", "ROW"]:
            return SkipRule("next", None, span)
        named = rest[-1] if rest and rest[-1].kind in ("name", "quoted") else None
        if named is not None and words[:-1] in (["TO"], ["TO", "FIRST"], ["TO", "LAST"]):
            kind = "first" if words[1:2] == ["FIRST"] and len(words) == 3 else "last"
            return SkipRule(kind, named.name, (named.start, named.stop))
        hint = "Write AFTER MATCH SKIP PAST LAST ROW, TO NEXT ROW, TO FIRST A, TO LAST A or TO A."
        refuse(self.sql, span, "AFTER MATCH SKIP does not say where the search goes on", hint)

    def within(self) -> tuple[int | None, Span]:
        tokens = self.sections.get("WITHIN", [])
        if not tokens:
            return None, self.keyword
        span = (tokens[0].start, tokens[-1].stop)
        written = " ".join(t.text[1:-1] if t.kind == "string" else t.text for t in tokens[2:])
        duration = parse_us(written)
        if not duration:
            refuse(
                self.sql,
                span,
                f"WITHIN cannot be INTERVAL {written}" if written else "WITHIN has no interval",
                "Write WITHIN INTERVAL 10 MINUTES or WITHIN INTERVAL '1' HOUR; months and years have no fixed length.",
            )
        return duration, span

    def subset(self, piece: Piece) -> SubsetItem:
        tokens, words = piece.tokens, [token.word for token in piece.tokens]
        shaped = len(words) >= 5 and words[1:3] == ["=", "("] and words[-1] == ")"
        members = tokens[3:-1:2] if shaped else ()
        if not shaped or any(token.kind not in ("name", "quoted") for token in (tokens[0], *members)):
            refuse(self.sql, piece.span, "a subset is not a name and a list", "Write SUBSET U = (A, B).")
        if any(token.text != "," for token in tokens[4:-1:2]):
            refuse(self.sql, piece.span, "a subset's variables are not separated by commas", "Write SUBSET U = (A, B).")
        variables = tuple(Variable((token.start, token.stop), token.name) for token in members)
        return SubsetItem(tokens[0].name, (tokens[0].start, tokens[0].stop), variables)

    def definition(self, piece: Piece) -> DefineItem:
        tokens = piece.tokens
        if len(tokens) < 3 or tokens[1].word != "AS" or tokens[0].kind not in ("name", "quoted"):
            refuse(self.sql, piece.span, "a definition is not a variable and a condition", "Write DEFINE A AS x > 1.")
        return DefineItem(tokens[0].name, (tokens[0].start, tokens[0].stop), Piece.of(self.sql, tokens[2:]))
