"""Patterns in Python: MATCH_RECOGNIZE for those who do not write it.

What it is: ``pattern("a b+ c")`` and ``Pattern``, what it gives; ``sql`` is the query that a view is declared with.
Invariants: every method gives a new pattern. Nothing is checked here but that a part is there: the text that comes out
is checked as any other is.
Not here: the clause itself (``match_clause.py``).
Read next: ``match_clause.py``; ``docs/patterns.md``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headwater.durations import Duration, to_us
from headwater.errors import InvalidDeclaration

NAVIGATION = re.compile(r"\b(prev|next|first|last|classifier|match_number|match_status)\s*\(", re.IGNORECASE)


@dataclass(frozen=True)
class Pattern:
    """A pattern over the ordered rows of a topic, a table or a view. ``app.view`` takes it in place of SQL.

    >>> rising = pattern("a b+ c").over("trades", by="symbol", order="at")
    >>> rising = rising.define(b="price > prev(price)", c="price < prev(price)").within("10 minutes")
    >>> print(rising.measures(begin="first(a.at)", top="last(b.price)").sql)
    SELECT * FROM trades MATCH_RECOGNIZE (
      PARTITION BY symbol
      ORDER BY at
      MEASURES FIRST(a.at) AS `begin`, LAST(b.price) AS `top`
      ONE ROW PER MATCH
      AFTER MATCH SKIP PAST LAST ROW
      PATTERN (a b+ c)
      WITHIN INTERVAL '600' SECOND
      DEFINE b AS price > PREV(price), c AS price < PREV(price)
    )
    """

    text: str
    source: str = ""
    keys: tuple[str, ...] = ()
    ordered: tuple[str, ...] = ()
    defined: tuple[tuple[str, str], ...] = ()
    measured: tuple[tuple[str, str], ...] = ()
    subsets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    within_us: int | None = None
    rows: str = "ONE ROW PER MATCH"
    skips: str = "PAST LAST ROW"

    def over(self, source: object, *, by: str | Sequence[str] = (), order: str | Sequence[str] = ()) -> Pattern:
        """Where to look: a topic, a table or a view, the columns whose rows belong together, and their order."""
        name = source if isinstance(source, str) else str(getattr(source, "name", source))
        return replace(self, source=name, keys=_listed(by), ordered=_listed(order))

    def for_each(self, rules: object, *, id: str, parameters: Sequence[str] = (), where: str | None = None) -> Pattern:
        """Look for it once for each row of a table of rules, whose columns ``parameters`` conditions may use.

        Rules are put and removed while the app runs: the matches of a new one are found in all rows that are there,
        those of a removed one leave. ``where`` restricts which rows a rule sees, as ``"at >= added_at"``.

        >>> large = pattern("small{3,} big").over("payments", by="card", order="at")
        >>> large = large.for_each("limits", id="limit_id", parameters=["most"], where="at >= added_at")
        >>> large.define(small="amount < 5", big="amount > most").keys
        ('limit_id', 'card')
        """
        name = rules if isinstance(rules, str) else str(getattr(rules, "name", rules))
        columns = ", ".join(f"{name}.{column}" for column in (id, *parameters))
        condition = f" WHERE {where}" if where else ""
        source = f"(SELECT {columns}, {self.source}.* FROM {self.source} CROSS JOIN {name}{condition})"
        return replace(self, source=source, keys=(id, *self.keys))

    def define(self, **conditions: str) -> Pattern:
        """What each variable means: a condition over a row, in SQL. A variable without one takes any row."""
        return replace(self, defined=(*self.defined, *conditions.items()))

    def measures(self, **expressions: str) -> Pattern:
        """The columns of a match."""
        return replace(self, measured=(*self.measured, *expressions.items()))

    def subset(self, **variables: Sequence[str]) -> Pattern:
        """A name for several variables."""
        return replace(self, subsets=(*self.subsets, *((name, tuple(of)) for name, of in variables.items())))

    def within(self, duration: Duration) -> Pattern:
        """How long a match may take, from its first row to its last."""
        return replace(self, within_us=to_us(duration, what="within"))

    def all_rows(self, *, empty: bool = True, unmatched: bool = False) -> Pattern:
        """A row for each row of a match, in place of one for the match.

        >>> pattern("a+").all_rows(unmatched=True).rows
        'ALL ROWS PER MATCH WITH UNMATCHED ROWS'
        """
        which = "WITH UNMATCHED ROWS" if unmatched else "SHOW EMPTY MATCHES" if empty else "OMIT EMPTY MATCHES"
        return replace(self, rows=f"ALL ROWS PER MATCH {which}")

    def timed_out(self) -> Pattern:
        """Rows too for what began to match and did not get further in time; for a view with ``emit="final"``."""
        return replace(self, rows=f"{self.rows} WITH TIMED OUT MATCHES")

    def skip(self, where: str) -> Pattern:
        """Where to go on behind a match: "past last row", "to next row", "to first b", "to last b"."""
        return replace(self, skips=where.upper() if where.lower() in ("past last row", "to next row") else where)

    @property
    def sql(self) -> str:
        """The query."""
        if not self.source:
            raise InvalidDeclaration(
                f'the pattern "{self.text}" does not say where to look',
                hint='Say it: pattern("a b").over("trades", by="symbol", order="at").',
            )
        lines = [
            f"PARTITION BY {', '.join(self.keys)}" if self.keys else "",
            f"ORDER BY {', '.join(self.ordered)}" if self.ordered else "",
            "MEASURES " + ", ".join(f"{_sql(text)} AS `{name}`" for name, text in self.measured)
            if self.measured
            else "",
            self.rows,
            f"AFTER MATCH SKIP {self.skips}",
            f"PATTERN ({self.text})",
            f"WITHIN INTERVAL '{_seconds(self.within_us)}' SECOND" if self.within_us is not None else "",
            "SUBSET " + ", ".join(f"{name} = ({', '.join(of)})" for name, of in self.subsets) if self.subsets else "",
            "DEFINE " + ", ".join(f"{name} AS {_sql(text)}" for name, text in self.defined) if self.defined else "",
        ]
        body = "\n".join(f"  {line}" for line in lines if line)
        return f"SELECT * FROM {self.source} MATCH_RECOGNIZE (\n{body}\n)"


def pattern(text: str) -> Pattern:
    """A pattern of variables: "a b+ c", with ``| * + ? {2,5}``, groups, and all that PATTERN has in SQL.

    >>> pattern("card small{3,} large").text
    'card small{3,} large'
    """
    return Pattern(text)


def _listed(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _seconds(us: int | None) -> str:
    whole, part = divmod(us or 0, 1_000_000)
    return f"{whole}.{part:06d}".rstrip("0") if part else str(whole)


def _sql(text: str) -> str:
    """An expression with the words of row pattern recognition as SQL writes them."""
    return NAVIGATION.sub(lambda found: found.group().upper(), text)
