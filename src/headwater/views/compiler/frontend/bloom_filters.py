"""Bloom filters: ``bloom_agg`` and ``bloom_contains``, which Spark's SQL has not, written out in functions that it has.

What it is: ``write_out_blooms``, which replaces the calls in a text. A filter is a BINARY of one or more *slices*,
bitmaps of 32 768 bits as ``bitmap_construct_agg`` makes them; a value sets one bit in each of up to seven of them.
Invariants: what was given to ``bloom_agg`` is always contained; anything else is, by chance, in about one of a hundred
cases for as many values as were expected. Equal values have equal texts: a value is known by ``CAST(… AS STRING)``, so
that 7 is found whether it is an INT or a BIGINT. A filter tells by its length how it was made.
Not here: keeping filters (their bitmaps accumulate: ``views/compiler/algebra/sketches.py``). Spark's own filter is of
no use here: two of them cannot be united, and ``might_contain`` takes no column for a filter.
Read next: ``metadata_columns.py``, ``views/event_time/timing.py``; ``docs/windows.md``, "Was it ever seen".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from headwater.views.compiler.frontend.metadata_columns import Replacement, WrittenOut
from headwater.views.compiler.sql.dialect import SparkAsWritten
from headwater.views.compiler.sql.refusal import Span, refuse

AGGREGATE, TEST = "bloom_agg", "bloom_contains"
SLICE_BITS, SLICE_BYTES = 32_768, 4_096
VALUE_SLICES_MAX = 7  # in which a value sets a bit
SLICES_MAX = 9 * VALUE_SLICES_MAX  # a call of bitmap_construct_agg each
EXPECTED = 10_000  # values, unless it is said
ERROR_MAX = 0.01  # of as many values as are expected
POSITION_BITS = 15
FIRST_POSITIONS = 4  # so many positions are bits of the first hash, the others of the second
PART_SHIFT = 45  # the bits of the second hash behind its positions


@dataclass(frozen=True)
class BloomShape:
    """How many slices a filter has: ``parts`` times ``slices``, of which a value uses those of one part.

    >>> [BloomShape.for_values(n) for n in (100, 10_000, 100_000)]
    [BloomShape(slices=1, parts=1), BloomShape(slices=4, parts=1), BloomShape(slices=7, parts=5)]
    >>> BloomShape.for_values(10_000).error(10_000) < 0.01
    True
    """

    slices: int
    parts: int

    @staticmethod
    def for_values(expected: int) -> BloomShape:
        """The smallest filter in which so many values leave one error in a hundred."""
        for slices in range(1, VALUE_SLICES_MAX + 1):
            if BloomShape(slices, 1).error(expected) <= ERROR_MAX:
                return BloomShape(slices, 1)
        parts = 2
        while (
            BloomShape(VALUE_SLICES_MAX, parts).error(expected) > ERROR_MAX and parts * VALUE_SLICES_MAX <= SLICES_MAX
        ):
            parts += 1
        return BloomShape(VALUE_SLICES_MAX, parts)

    @staticmethod
    def for_bits(bits: int) -> BloomShape:
        """The smallest filter of at least so many bits."""
        count = max(1, math.ceil(bits / SLICE_BITS))
        return BloomShape(count, 1) if count <= VALUE_SLICES_MAX else BloomShape(VALUE_SLICES_MAX, -(-count // 7))

    @property
    def count(self) -> int:
        """All slices."""
        return self.slices * self.parts

    def error(self, values: int) -> float:
        """How likely a value that is not in the filter seems to be, when so many are."""
        return float((1 - math.exp(-values / self.parts / SLICE_BITS)) ** self.slices)


def write_out_blooms(sql: str) -> WrittenOut:
    """The text without calls of ``bloom_agg`` and ``bloom_contains``.

    >>> print(write_out_blooms("SELECT bloom_agg(id, 100) AS ids FROM orders").sql)
    SELECT concat(bitmap_construct_agg(CASE WHEN (id) IS NOT NULL THEN \
shiftrightunsigned(xxhash64(CAST((id) AS STRING)), 0) & 32767 END)) AS ids FROM orders
    >>> write_out_blooms("SELECT bloom_agg FROM t").sql
    'SELECT bloom_agg FROM t'
    """
    if not may_name_blooms(sql):
        return WrittenOut(sql, {})
    try:
        tokens = SparkAsWritten().tokenize(sql)
    except TokenError:  # told by whoever compiles it
        return WrittenOut(sql, {})
    return WrittenOut(sql, {}, tuple(_replacements(sql, tokens)))


def may_name_blooms(sql: str) -> bool:
    """Whether one of the two names stands anywhere in a text.

    >>> may_name_blooms("SELECT Bloom_Agg(x) FROM t"), may_name_blooms("SELECT x FROM t")
    (True, False)
    """
    lowered = sql.lower()
    return AGGREGATE in lowered or TEST in lowered


def _replacements(sql: str, tokens: Sequence[Token]) -> Iterator[Replacement]:
    """The outermost calls, from left to right; calls inside their arguments are written out with them."""
    place = 0
    while place < len(tokens) - 1:
        name = tokens[place].text.lower()
        if name not in (AGGREGATE, TEST) or tokens[place + 1].token_type is not TokenType.L_PAREN:
            place += 1
            continue
        arguments, last = _arguments(sql, tokens, place + 1)
        span = (tokens[place].start, tokens[last].end + 1)
        if name == AGGREGATE:
            condition, last = _condition(sql, tokens, last)
            written = _aggregate(sql, span, arguments, condition)
        else:
            written = _test(sql, span, arguments)
        yield Replacement(span[0], tokens[last].end + 1, written)
        place = last + 1


def _arguments(sql: str, tokens: Sequence[Token], opening: int) -> tuple[list[str], int]:
    """The arguments of a call as they stand there, and the place of the bracket that ends it."""
    depth, begin = 0, tokens[opening].end + 1
    found: list[str] = []
    for place in range(opening, len(tokens)):
        kind = tokens[place].token_type
        depth += (kind in (TokenType.L_PAREN, TokenType.L_BRACKET)) - (kind in (TokenType.R_PAREN, TokenType.R_BRACKET))
        if depth == 0 or (depth == 1 and kind is TokenType.COMMA):
            found.append(sql[begin : tokens[place].start].strip())
            begin = tokens[place].end + 1
        if depth == 0:
            return [part for part in found if part], place
    refuse(sql, (tokens[opening].start, len(sql)), ") is missing", f"Close the call: {AGGREGATE}(id).")


def _condition(sql: str, tokens: Sequence[Token], last: int) -> tuple[str, int]:
    """The FILTER behind an aggregate, if there is one, and the place where it ends."""
    behind = [token.text.upper() for token in tokens[last + 1 : last + 3]]
    if behind[:1] == ["OVER"]:
        span = (tokens[last + 1].start, tokens[last + 1].end + 1)
        refuse(sql, span, f"{AGGREGATE} cannot be a window function", "Group by what it is partitioned by.")
    if behind != ["FILTER", "("]:
        return "", last
    (inside, *_), end = _arguments(sql, tokens, last + 2)
    return f" FILTER ({write_out_blooms(inside).sql})", end


def _aggregate(sql: str, span: Span, arguments: Sequence[str], condition: str) -> str:
    if not 1 <= len(arguments) <= 3:
        _refuse_count(sql, span, f"{AGGREGATE} takes a value, how many are expected, and how many bits to use")
    value, *sizes = arguments
    if value.upper().startswith("DISTINCT "):
        value = value[len("DISTINCT ") :]
    numbers = [_number(sql, span, size) for size in sizes]
    shape = BloomShape.for_bits(numbers[1]) if len(numbers) == 2 else BloomShape.for_values(*numbers or [EXPECTED])
    if shape.count > SLICES_MAX:
        refuse(
            sql,
            span,
            f"a Bloom filter in a view has at most {SLICES_MAX * SLICE_BITS:,} bits, for some 200,000 values",
            "Keep the values themselves: SELECT DISTINCT … is exact, accumulates, and is looked up by view.get.",
        )
    value = write_out_blooms(value).sql
    calls = []
    for part in range(shape.parts):
        chosen = f" AND {_part(value, str(shape.parts))} = {part}" if shape.parts > 1 else ""
        for number in range(shape.slices):
            position = f"CASE WHEN ({value}) IS NOT NULL{chosen} THEN {_position(value, number)} END"
            calls.append(f"bitmap_construct_agg({position}){condition}")
    return f"concat({', '.join(calls)})"


def _test(sql: str, span: Span, arguments: Sequence[str]) -> str:
    if len(arguments) != 2:
        _refuse_count(sql, span, f"{TEST} takes a filter and a value")
    bloom, value = (f"({write_out_blooms(part).sql})" for part in arguments)
    count = f"(length({bloom}) DIV {SLICE_BYTES})"
    slices = f"least({count}, {VALUE_SLICES_MAX})"
    first = f"{_part(value, f'greatest({count} DIV {VALUE_SLICES_MAX}, 1)')} * {slices}"
    tests = []
    for number in range(VALUE_SLICES_MAX):
        position = f"({_position(value, number)})"
        byte = f"substring({bloom}, CAST(({first} + {number}) * {SLICE_BYTES} + {position} DIV 8 + 1 AS INT), 1)"
        bit = f"getbit(CAST(conv(hex({byte}), 16, 10) AS BIGINT), CAST({position} % 8 AS INT))"
        tests.append(f"({count} <= {number} OR {bit} = 1)")
    return f"(CASE WHEN {bloom} IS NOT NULL AND {value} IS NOT NULL THEN {' AND '.join(tests)} END)"


def _position(value: str, number: int) -> str:
    """The bit that a value sets in one of its slices."""
    second = number >= FIRST_POSITIONS
    shift = POSITION_BITS * (number - FIRST_POSITIONS if second else number)
    return f"shiftrightunsigned({_hash(value, second=second)}, {shift}) & {SLICE_BITS - 1}"


def _part(value: str, parts: str) -> str:
    return f"pmod(shiftrightunsigned({_hash(value, second=True)}, {PART_SHIFT}), {parts})"


def _hash(value: str, *, second: bool) -> str:
    return f"xxhash64(CAST(({value}) AS STRING){', 1' if second else ''})"


def _number(sql: str, span: Span, written: str) -> int:
    plain = written.replace("_", "").rstrip("Ll")
    if not plain.isdecimal() or int(plain) < 1:
        refuse(sql, span, f"{written} is no whole number", f"Write it out: {AGGREGATE}(id, 10000).")
    return int(plain)


def _refuse_count(sql: str, span: Span, message: str) -> NoReturn:
    refuse(sql, span, message, f"For instance {AGGREGATE}(id, 10000), and {TEST}(ids, 7).")
