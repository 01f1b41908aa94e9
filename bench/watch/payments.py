"""Payments by card, the patterns that are looked for in them, and every match, found by hand.

What it is: ``Payments``, seeded; ``PATTERNS``, each a clause that both systems are given word for word, and a plain
search for its matches; ``difference``, which says what is wrong with somebody's matches.
Invariants: payments come in the order of their times, as many milliseconds apart as make a card pay about every 70 s,
500 times in all. No two are ten minutes apart to the millisecond, which is within ten minutes for us and not for
Flink. In each pattern the match that begins first ends first: of two that overlap SQL wants the one that begins first,
and Flink gives the one that ends first. The searches by hand know nothing of the matcher.
Not here: the systems (``pattern_ticks.py``, ``peers/``).
Read next: ``pattern_ticks.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

DDL = "payment_id BIGINT, card BIGINT, amount DOUBLE, paid_at TIMESTAMP"
START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
WITHIN_MS = 600_000
PAYMENTS_A_CARD = 500
PAUSE_MS = 70_000  # between two payments of a card, on average
SMALL, BIG, MOST = 5.0, 500.0, 1_000.0
TIMES = 200.0  # a big one beside the small one before it, where the two are compared

Matches = np.ndarray  # of each match the first and the last payment's number, in the order of the first


@dataclass(frozen=True)
class Payments:
    """So many payments.

    >>> Payments(2).table.column_names
    ['payment_id', 'card', 'amount', 'paid_at']
    """

    count: int
    cards: int = 1
    seed: int = 20

    @property
    def step_ms(self) -> int:
        """The time from one payment to the next; ten minutes are no multiple of it.

        >>> Payments(1, cards=10_000).step_ms, Payments(1, cards=7_000).step_ms
        (7, 11)
        """
        step = max(1, PAUSE_MS // self.cards)
        while WITHIN_MS % step == 0:
            step += 1
        return step

    @cached_property
    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The card, the amount, and the time in ms: of five one is small, and of fifty one is big."""
        random = np.random.default_rng(self.seed)
        card = random.integers(0, self.cards, self.count)
        kind = random.random(self.count)
        share = random.integers(0, 1_000, self.count) / 1_000  # below 1
        small = kind < 0.2
        big = kind >= 0.98
        low = np.where(small, 0.25, np.where(big, BIG, SMALL))
        high = np.where(small, SMALL, np.where(big, MOST, BIG))
        at_ms = START_MS + np.arange(self.count) * self.step_ms
        return card, low + np.floor((high - low) * share * 4) / 4, at_ms

    @cached_property
    def table(self) -> pa.Table:
        """The payments in the order of their times."""
        card, amount, at_ms = self.columns
        paid_at = pa.array(at_ms * 1_000).cast(pa.timestamp("us", tz="UTC"))
        return pa.table({"payment_id": np.arange(self.count), "card": card, "amount": amount, "paid_at": paid_at})

    def matches(self, pattern: Pattern, count: int) -> Matches:
        """The matches in the first ``count`` payments, found by hand."""
        card, amount, at_ms = (values[:count] for values in self.columns)
        order = np.argsort(card, kind="stable")
        ends = np.searchsorted(card[order], np.arange(self.cards + 1))
        numbers, amounts, times = order.tolist(), amount[order].tolist(), at_ms[order].tolist()
        found = []
        for low, high in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            found += [(numbers[one], numbers[last]) for one, last in pattern.search(amounts, times, low, high)]
        return in_order(found)


Places = list[tuple[int, int]]


def tried(amounts: list[float], times: list[int], low: int, high: int) -> Places:
    """Two small ones or more, one other or more, a big one."""
    found, at = [], low
    while at < high:
        end = at
        while end < high and amounts[end] < SMALL:
            end += 1
        last = _big_after(amounts, end, high) if end - at >= 2 else None
        if last is not None and times[last] - times[at] <= WITHIN_MS:
            found.append((at, last))
            at = last
        at += 1
    return found


def beside(amounts: list[float], times: list[int], low: int, high: int) -> Places:
    """A small one, one other or more, and one that is big beside the small one."""
    found, at = [], low
    while at < high:
        last = _big_after(amounts, at + 1, high) if amounts[at] < SMALL else None
        if last is not None and amounts[last] >= TIMES * amounts[at] and times[last] - times[at] <= WITHIN_MS:
            found.append((at, last))
            at = last
        at += 1
    return found


def _big_after(amounts: list[float], at: int, high: int) -> int | None:
    """The big one behind one other or more, which begin here."""
    end = at
    while end < high and SMALL <= amounts[end] < BIG:
        end += 1
    return end if end > at and end < high and amounts[end] >= BIG else None


def later(amounts: list[float], times: list[int], low: int, high: int) -> Places:
    """A small one and the first big one after it, whatever is between."""
    found, at = [], low
    while at < high:
        if amounts[at] < SMALL:
            for last in range(at + 1, high):
                if times[last] - times[at] > WITHIN_MS:
                    break
                if amounts[last] >= BIG:
                    found.append((at, last))
                    at = last
                    break
        at += 1
    return found


@dataclass(frozen=True)
class Pattern:
    """A pattern within ten minutes, and the search for it by hand."""

    name: str
    pattern: str
    define: str
    search: Callable[[list[float], list[int], int, int], Places]

    @property
    def title(self) -> str:
        """For the report.

        >>> PATTERNS[0].title
        'tried: small{2,} other+ big'
        """
        return f"{self.name}: {self.pattern}"

    @property
    def clause(self) -> str:
        """What stands after the name of the table, for us and for Flink.

        >>> "PATTERN (small{2,} other+ big)" in PATTERNS[0].clause
        True
        """
        return f"""MATCH_RECOGNIZE (
            PARTITION BY card ORDER BY paid_at
            MEASURES FIRST(small.payment_id) AS first_id, LAST(big.payment_id) AS last_id
            ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
            PATTERN ({self.pattern}) WITHIN INTERVAL '10' MINUTE
            DEFINE {self.define})"""


OTHER = f"other AS other.amount >= {SMALL} AND other.amount < {BIG}"
PATTERNS = (
    Pattern(
        "tried", "small{2,} other+ big", f"small AS small.amount < {SMALL}, {OTHER}, big AS big.amount >= {BIG}", tried
    ),
    Pattern("later", "small x*? big", f"small AS small.amount < {SMALL}, big AS big.amount >= {BIG}", later),
    Pattern(
        "beside",
        "small other+ big",
        f"small AS small.amount < {SMALL}, {OTHER}, "
        f"big AS big.amount >= {BIG} AND big.amount >= {TIMES} * small.amount",
        beside,
    ),
)


def in_order(pairs: list[tuple[int, int]]) -> Matches:
    """Matches by their first payment.

    >>> in_order([(7, 9), (2, 3)]).tolist()
    [[2, 3], [7, 9]]
    """
    return np.array(sorted(pairs), np.int64).reshape(-1, 2)


def matches_of(rows: pa.Table) -> Matches:
    """A table of ``first_id`` and ``last_id`` as matches."""
    pairs = np.column_stack([rows["first_id"].to_numpy(), rows["last_id"].to_numpy()])
    return np.asarray(pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))], np.int64)


def difference(found: Matches, expected: Matches) -> str | None:
    """What is wrong with some matches, in one sentence; None when nothing is.

    >>> difference(in_order([(1, 3)]), in_order([(1, 2), (5, 9)]))
    'wrong matches: 1 found, 2 expected, 3 of them only on one side, 1 to 2 first'
    """
    if np.array_equal(found, expected):
        return None
    sides = {tuple(pair) for pair in found.tolist()} ^ {tuple(pair) for pair in expected.tolist()}
    if not sides:
        return f"wrong matches: {len(found):,} found, {len(expected):,} expected, some of them twice"
    first, last = min(sides)
    return (
        f"wrong matches: {len(found):,} found, {len(expected):,} expected, {len(sides):,} of them only on one side, "
        f"{first} to {last} first"
    )


def write_csv(payments: Payments, count: int, folder: Path, files: int) -> None:
    """The first ``count`` payments as files of CSV, dealt out one by one: each file is in the order of time."""
    folder.mkdir(parents=True)
    card, amount, at_ms = (values[:count] for values in payments.columns)
    rows = pa.table({"payment_id": np.arange(count), "card": card, "amount": amount, "ms": at_ms})
    options = pyarrow.csv.WriteOptions(include_header=False)
    for number in range(files):
        piece = rows.take(pa.array(np.arange(number, count, files)))
        pyarrow.csv.write_csv(piece, folder / f"payments-{number}.csv", options)
