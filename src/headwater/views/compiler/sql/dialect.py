"""The dialect: Spark's SQL, read so that every expression is written again word for word.

What it is: sqlglot's Spark dialect, used for structure only. sqlglot is made for translating between databases: it
knows what ``log10``, ``to_date`` or ``INTERVAL 1 DAY 1 HOUR`` mean elsewhere and writes something similar. Here a call
is a name (in lower case) and its arguments, a literal and a type are their own text, and so is an interval.
Invariants: reading a query and writing it (``text``) gives Spark the same words but for the names of sources and
columns, keywords in another case and parentheses. ``views/spark/round_trip.py`` has Spark confirm it for every view;
``tests/spark/test_sql_is_written_as_read.py`` runs the examples of Spark's own documentation both ways.
Not here: which functions a view may call (``builtin_functions.py``).
Read next: ``views/compiler/frontend/parse.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, ClassVar

from sqlglot import exp, parser
from sqlglot.dialects.spark import Spark
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from headwater.views.compiler.sql.compiled_sqlglot import refuse_compiled

refuse_compiled(parser.__file__)

# Written before a text in quotes these make one literal: DATE'2020-01-01', X '1F'.
LITERAL_TYPES = frozenset({"DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "X"})
# Without brackets these are columns where a column has such a name, and functions elsewhere.
CALLED_WITHOUT_BRACKETS = frozenset(
    {
        "current_catalog",
        "current_database",
        "current_date",
        "current_path",
        "current_schema",
        "current_time",
        "current_timestamp",
        "current_user",
        "localtime",
        "localtimestamp",
        "session_user",
        "user",
    }
)
# Their first argument of three is a word, and no column: timestampadd(DAY, 1, at).
UNIT_FIRST = frozenset({"date_add", "date_diff", "dateadd", "datediff", "timediff", "timestampadd", "timestampdiff"})
# The words that separate the arguments of calls with a syntax of their own.
SEPARATORS = {
    "EXTRACT": ("FROM",),
    "OVERLAY": ("PLACING", "FROM", "FOR"),
    "POSITION": ("IN",),
    "SUBSTR": ("FROM", "FOR"),
    "SUBSTRING": ("FROM", "FOR"),
    "TRIM": ("FROM",),
}
BEFORE_TRIMMED = ("BOTH", "LEADING", "TRAILING")
# Behind these the word VALUES is a column, and no list of rows.
BEHIND_A_COLUMN = frozenset(
    {
        TokenType.ALIAS,
        TokenType.AND,
        TokenType.COMMA,
        TokenType.DOT,
        TokenType.EQ,
        TokenType.FROM,
        TokenType.GROUP_BY,
        TokenType.GT,
        TokenType.GTE,
        TokenType.IN,
        TokenType.IS,
        TokenType.LIKE,
        TokenType.LT,
        TokenType.LTE,
        TokenType.NEQ,
        TokenType.OR,
        TokenType.ORDER_BY,
        TokenType.R_PAREN,
        TokenType.SEMICOLON,
    }
)
# Behind these a query begins.
BEFORE_A_QUERY = frozenset(
    {TokenType.ALL, TokenType.DISTINCT, TokenType.EXCEPT, TokenType.INTERSECT, TokenType.L_PAREN, TokenType.UNION}
)
# when(a, b), in(a, b) and between(a, b, c) are functions where an expression begins; elsewhere they are keywords.
CALLED_LIKE_KEYWORDS = frozenset({TokenType.BETWEEN, TokenType.IN, TokenType.WHEN})
BEFORE_AN_EXPRESSION = frozenset(
    {
        TokenType.AND,
        TokenType.COMMA,
        TokenType.DASH,
        TokenType.DISTINCT,
        TokenType.DPIPE,
        TokenType.ELSE,
        TokenType.EQ,
        TokenType.GROUP_BY,
        TokenType.GT,
        TokenType.GTE,
        TokenType.HAVING,
        TokenType.L_BRACKET,
        TokenType.L_PAREN,
        TokenType.LT,
        TokenType.LTE,
        TokenType.MOD,
        TokenType.NEQ,
        TokenType.NOT,
        TokenType.NULLSAFE_EQ,
        TokenType.ON,
        TokenType.OR,
        TokenType.ORDER_BY,
        TokenType.PARTITION_BY,
        TokenType.PLUS,
        TokenType.SELECT,
        TokenType.SLASH,
        TokenType.STAR,
        TokenType.THEN,
        TokenType.WHEN,
        TokenType.WHERE,
    }
)
INTERVAL_UNITS = frozenset(
    {"YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND", "NANOSECOND"}
)


class Written(exp.Literal):
    """A literal with its spelling; ``this`` is its value as far as sqlglot can tell it."""

    arg_types = {"this": True, "is_string": True, "spelling": True}  # noqa: RUF012


class WrittenType(exp.DataType):
    """A type with its spelling."""

    arg_types = {**exp.DataType.arg_types, "spelling": True}  # noqa: RUF012


class WrittenCast(exp.Cast):
    """DATE'2020-01-01' and its like, with their spelling."""

    arg_types = {**exp.Cast.arg_types, "spelling": True}  # noqa: RUF012


class Spelled(exp.Expression, exp.Condition):
    """Text with expressions in between: ``pieces[0] expressions[0] pieces[1] …``.

    ``open`` says that it needs parentheses to stand between operators.
    """

    arg_types = {"pieces": True, "expressions": False, "open": False}  # noqa: RUF012
    _hash_raw_args = False


class Interval(exp.Expression, exp.Condition):
    """INTERVAL … as it was written; ``expressions`` are plain ``exp.Interval``, one for each unit, when it has such."""

    arg_types = {"spelling": True, "expressions": False}  # noqa: RUF012


class UnsignedShift(exp.Expression, exp.Binary):
    """``a >>> b``"""


def text(node: exp.Expr) -> str:
    """The node in Spark's SQL, every expression spelled as it was read.

    >>> import sqlglot
    >>> text(sqlglot.parse_one("SELECT Log10(a), 'it''s', 1L, CAST(a AS struct<userId: int>) FROM t", SparkAsWritten))
    "SELECT log10(a), 'it''s', 1L, CAST(a AS struct<userId: int>) FROM t"
    """
    return node.sql(SparkAsWritten, comments=False)


def _merged(found: list[Token], sql: str) -> Iterator[Token]:
    """The words of a text, each literal one word."""
    place = 0
    while place < len(found):
        token = found[place]
        following = found[place + 1 : place + 3]
        kinds = [each.token_type for each in following]
        if (
            token.token_type == TokenType.NUMBER
            and kinds[:1] == [TokenType.DCOLON]
            and following[0].start == token.start
        ):
            # sqlglot makes three words of 1L: 1 :: BIGINT, all at one place
            end = following[1].end
            yield _token(TokenType.NUMBER, sql[token.start : end + 1], token, end)
            place += 3
            continue
        if token.token_type == TokenType.GT and sql[token.start : token.start + 3] == ">>>":
            yield _token(TokenType.DQMARK, ">>>", token, following[1].end)
            place += 3
            continue
        if token.token_type == TokenType.TABLE and _is_query(found, place):  # TABLE u is SELECT * FROM u
            for kind, word in ((TokenType.SELECT, "SELECT"), (TokenType.STAR, "*"), (TokenType.FROM, "FROM")):
                yield _token(kind, word, token, token.end)
            place += 1
            continue
        if token.token_type == TokenType.VALUES and (not kinds or kinds[0] in BEHIND_A_COLUMN):
            token.token_type = TokenType.VAR
        elif token.token_type == TokenType.WINDOW and kinds[:1] == [TokenType.L_PAREN]:
            # window(at, '1 minute') is a function; WINDOW w AS (…) is a clause, and has no bracket behind the word.
            token.token_type = TokenType.VAR
        elif token.token_type in CALLED_LIKE_KEYWORDS and kinds[:1] == [TokenType.L_PAREN]:
            before = found[place - 1].token_type if place else None
            if before in BEFORE_AN_EXPRESSION and (before != TokenType.NOT or token.token_type == TokenType.WHEN):
                token.token_type = TokenType.VAR
        elif token.text.lower() in CALLED_WITHOUT_BRACKETS and token.token_type not in (
            TokenType.STRING,
            TokenType.IDENTIFIER,
        ):
            token.token_type = TokenType.VAR
        yield token
        place += 1


def _is_query(found: list[Token], place: int) -> bool:
    """Whether TABLE stands where a query begins, and not before the argument of a function."""
    before = [each.token_type for each in found[max(place - 2, 0) : place]]
    if place + 1 == len(found) or found[place + 1].token_type not in (TokenType.VAR, TokenType.IDENTIFIER):
        return False
    return not before or (before[-1] in BEFORE_A_QUERY and before != [TokenType.VAR, TokenType.L_PAREN])


def _token(kind: TokenType, text: str, first: Token, end: int) -> Token:
    return Token(kind, text, line=first.line, col=first.col, start=first.start, end=end, comments=first.comments)


class SparkTyped(Spark):
    """sqlglot's own reading of Spark's SQL, which knows what types functions give; never to be written again."""

    class Tokenizer(Spark.Tokenizer):
        def tokenize(self, sql: str) -> list[Token]:
            return list(_merged(super().tokenize(sql), sql))


class SparkAsWritten(Spark):
    """For ``sqlglot.parse_one(sql, read=SparkAsWritten)``; write with ``text``."""

    class Tokenizer(Spark.Tokenizer):
        # 'it''s' is one text since Spark 4.
        STRING_ESCAPES = ["\\", "'", '"']  # noqa: RUF012

        def tokenize(self, sql: str) -> list[Token]:
            return list(_merged(super().tokenize(sql), sql))

    class Parser(SparkParser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {}  # array(1, 2)[0] is an element, and no array of 0
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
        NO_PAREN_FUNCTION_PARSERS = {  # noqa: RUF012
            name: made for name, made in SparkParser.NO_PAREN_FUNCTION_PARSERS.items() if name in ("ANY", "CASE")
        }
        FUNCTION_PARSERS = {  # noqa: RUF012
            "CAST": lambda self: self._parse_cast(True),
            "TRY_CAST": lambda self: self._parse_cast(False, safe=True),
            **{name: lambda self, name=name: self._with_separators(name) for name in SEPARATORS},
        }
        COLUMN_OPERATORS = {  # noqa: RUF012
            **SparkParser.COLUMN_OPERATORS,
            TokenType.DCOLON: lambda self, this, to: self.expression(exp.Cast(this=this, to=to)),
        }
        UNARY_PARSERS = {  # noqa: RUF012
            **SparkParser.UNARY_PARSERS,
            TokenType.PLUS: lambda self: Spelled(pieces=("+", ""), expressions=[self._parse_unary()], open=True),
        }
        BITWISE = {**SparkParser.BITWISE, TokenType.DQMARK: UnsignedShift}  # noqa: RUF012
        STRING_PARSERS = {  # noqa: RUF012
            kind: lambda self, token: self._written(token, token, is_string=True) for kind in SparkParser.STRING_PARSERS
        }
        NUMERIC_PARSERS = {  # noqa: RUF012
            **dict.fromkeys(
                SparkParser.NUMERIC_PARSERS, lambda self, token: Spelled(pieces=(self._source(token, token),))
            ),
            TokenType.NUMBER: lambda self, token: self._written(token, token, is_string=False),
        }
        PRIMARY_PARSERS = {**SparkParser.PRIMARY_PARSERS, **STRING_PARSERS, **NUMERIC_PARSERS}  # noqa: RUF012

        def _source(self, first: Token, last: Token) -> str:
            """The words from one to the other, without comments."""
            start, end = first.start, last.end
            inside = [token for token in self._tokens if start <= token.start and token.end <= end]
            parts = [self.sql[inside[0].start : inside[0].end + 1]]
            for one, other in pairwise(inside):
                gap = self.sql[one.end + 1 : other.start]
                parts.append(" " if gap else "")
                parts.append(self.sql[other.start : other.end + 1])
            return "".join(parts)

        def _written(self, first: Token, last: Token, *, is_string: bool, value: str | None = None) -> Written:
            node = Written(
                this=first.text if value is None else value, is_string=is_string, spelling=self._source(first, last)
            )
            return node.update_positions(first)

        def _parse_primary(self) -> exp.Expr | None:
            first = self._curr
            if first and first.token_type == TokenType.STRING:
                value = ""
                while self._match(TokenType.STRING):  # 'a' 'b' is 'ab'
                    value += self._prev.text
                return self._written(first, self._prev, is_string=True, value=value)
            if self._match_pair(TokenType.DOT, TokenType.NUMBER):
                return self._written(first, self._prev, is_string=False, value=f"0.{self._prev.text}")
            return super()._parse_primary()

        def _parse_value(self, values: bool = True) -> exp.Tuple | None:
            if self._match(TokenType.L_PAREN, advance=False):
                return super()._parse_value(values)
            value = self._parse_disjunction()  # VALUES 1, 2 AS t: the name is that of the rows, not of the last value
            return self.expression(exp.Tuple(expressions=[value])) if value is not None else None

        def _parse_atom(self) -> exp.Expr | None:
            return None if self._is_typed_literal() else super()._parse_atom()

        def _is_typed_literal(self) -> bool:
            kind, following = self._curr, self._next
            return bool(
                kind
                and following
                and following.token_type == TokenType.STRING
                and kind.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
                and kind.text.upper() in LITERAL_TYPES
            )

        def _parse_unary(self) -> exp.Expr | None:
            first = self._curr
            following = self._tokens[self._index + 1 : self._index + 3]
            if first and first.token_type == TokenType.DASH and len(following) == 2:
                number, then = following
                if (number.token_type, then.token_type) == (TokenType.NUMBER, TokenType.DCOLON):
                    # -1::STRING is (-1)::STRING: the sign is a part of the number
                    self._advance(2)
                    value = f"-{number.text}"
                    return self._parse_column_ops(self._written(first, number, is_string=False, value=value))
            return super()._parse_unary()

        def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
            if not fallback_to_identifier and self._is_typed_literal():
                first, following = self._curr, self._next
                self._advance(2)
                value = following.text
                while self._match(TokenType.STRING):
                    value += self._prev.text
                spelling = self._source(first, self._prev)
                node: exp.Expr = Spelled(pieces=(spelling,))
                if first.text.upper() != "X":
                    literal = Written(this=value, is_string=True, spelling=self._source(following, self._prev))
                    node = WrittenCast(this=literal, to=exp.DataType.build(first.text, "spark"), spelling=spelling)
                node = node.update_positions(first)
                return self._parse_column_ops(node)
            return super()._parse_type(parse_interval, fallback_to_identifier)

        def _parse_types(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
            first = self._curr
            found = super()._parse_types(*args, **kwargs)
            if type(found) is exp.DataType and first is not self._curr:
                # STRING COLLATE UTF8_LCASE is a type: the collation is no column
                parts = {name: part for name, part in found.args.items() if name != "collate"}
                return WrittenType(**parts, spelling=self._source(first, self._prev))
            return found

        def _parse_interval(self, *_: Any, **__: Any) -> Any:
            """INTERVAL '1 2' DAY TO HOUR, INTERVAL 1 DAY -2 HOURS, INTERVAL '1 day': one piece of text."""
            index, first = self._index, self._curr
            if not self._match(TokenType.INTERVAL):
                return None
            units: list[exp.Expr] = []
            plain = True
            while True:
                start = self._index
                negative = self._match_set((TokenType.DASH, TokenType.PLUS))
                number = self._curr and self._curr.token_type in (TokenType.STRING, TokenType.NUMBER, TokenType.DOT)
                value = self._parse_primary() if number else None
                unit = self._curr.text.upper() if self._curr and self._curr.token_type != TokenType.STRING else ""
                if value is None or (unit.removesuffix("S") not in INTERVAL_UNITS and units):
                    self._retreat(start)
                    break
                if unit.removesuffix("S") not in INTERVAL_UNITS:  # INTERVAL '1 day'
                    plain = False
                    break
                self._advance()
                if self._curr and self._curr.text.upper() == "TO":
                    plain = False
                    self._advance(2)
                plain = plain and not negative
                units.append(exp.Interval(this=value, unit=exp.var(unit)))
            if self._index == index + 1:  # a column called interval
                self._retreat(index)
                return None
            spelling = self._source(first, self._prev)
            return Interval(spelling=spelling, expressions=units if plain else []).update_positions(first)

        def _with_separators(self, name: str) -> exp.Expr:
            """``trim(BOTH 'x' FROM s)``; a call with commas stays a call."""
            called = self._tokens[self._index - 2]
            pieces, parts = [f"{self.sql[called.start : called.end + 1]}("], []
            if name == "TRIM" and self._match_texts(BEFORE_TRIMMED):
                pieces[-1] += f"{self._prev.text} "
            if name == "EXTRACT":
                pieces[-1] += self._curr.text
                self._advance()
            elif not self._match_texts((*SEPARATORS[name], ")"), advance=False):
                parts.append(self._argument(name))
                pieces.append("")
            plain = pieces == [pieces[0], ""] and not pieces[0].endswith(" ")
            while self._match_texts(SEPARATORS[name]):
                plain = False
                pieces[-1] += f" {self._prev.text} "
                parts.append(self._argument(name))
                pieces.append("")
            if plain or not parts:
                while self._match(TokenType.COMMA):
                    parts.append(self._parse_lambda())
                word = self.sql[called.start : called.end + 1].lower()
                return self.expression(exp.Anonymous(this=word, expressions=parts)).update_positions(called)
            pieces[-1] += ")"
            node = Spelled(pieces=tuple(pieces), expressions=parts).update_positions(called)
            node.meta["call"] = name.lower()
            return node

        def _argument(self, name: str) -> exp.Expr | None:
            return self._parse_bitwise() if name == "POSITION" else self._parse_disjunction()

        def _parse_function_call(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
            token = self._curr
            if token and token.text.lower() in UNIT_FIRST and self._has_unit_first():
                unit = self._tokens[self._index + 2]
                self._advance(4)
                rest = self._parse_csv(self._parse_lambda)
                self._match_r_paren()
                word = exp.var(unit.text)
                return self.expression(
                    exp.Anonymous(this=token.text.lower(), expressions=[word, *rest])
                ).update_positions(token)
            found = super()._parse_function_call(*args, **kwargs)
            called = found.this if isinstance(found, exp.Window) else found
            if type(called) is exp.Anonymous:
                if isinstance(called.this, str):
                    called.set("this", called.this.lower())
                for part in called.expressions:
                    if isinstance(part, exp.Alias):  # struct(a AS userId): the name of a field, not of a column
                        part.args["alias"].meta["case_sensitive"] = True
            return found

        def _has_unit_first(self) -> bool:
            ahead = self._tokens[self._index + 1 : self._index + 4]
            if [each.token_type for each in (ahead[:1] + ahead[2:3])] != [TokenType.L_PAREN, TokenType.COMMA]:
                return False
            unit, depth, commas = ahead[1], 0, 0
            if unit.token_type in (TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER):
                return False
            for token in self._tokens[self._index + 1 :]:
                depth += token.token_type == TokenType.L_PAREN
                depth -= token.token_type == TokenType.R_PAREN
                commas += depth == 1 and token.token_type == TokenType.COMMA
                if depth == 0:
                    break
            return commas == 2

    class Generator(SparkGenerator):
        TRANSFORMS = {  # noqa: RUF012
            **SparkGenerator.TRANSFORMS,
            **dict.fromkeys((Written, WrittenCast, WrittenType, Interval), lambda _, e: e.args["spelling"]),
            Spelled: lambda self, e: self._spelled(e),
            UnsignedShift: lambda self, e: self.binary(e, ">>>"),
            exp.Cast: lambda self, e: f"CAST({self.sql(e, 'this')} AS {self.sql(e, 'to')})",
            exp.TryCast: lambda self, e: f"TRY_CAST({self.sql(e, 'this')} AS {self.sql(e, 'to')})",
            exp.Anonymous: lambda self, e: self._called(e),
            exp.BitwiseNot: lambda self, e: f"~ {self.sql(e, 'this')}",
            exp.BitwiseLeftShift: lambda self, e: self.binary(e, "<<"),
            exp.BitwiseRightShift: lambda self, e: self.binary(e, ">>"),
            exp.NullSafeEQ: lambda self, e: self.binary(e, "<=>"),
            exp.NullSafeNEQ: lambda self, e: self.binary(e, "IS DISTINCT FROM"),
            exp.IntDiv: lambda self, e: self.binary(e, "DIV"),
        }

        def _spelled(self, node: Spelled) -> str:
            first, *others = node.args["pieces"]
            return str(first) + "".join(
                self.sql(part) + piece for part, piece in zip(node.expressions, others, strict=True)
            )

        def _called(self, node: exp.Anonymous) -> str:
            name = node.this if isinstance(node.this, str) else self.sql(node.this)
            return f"{name}({', '.join(self.sql(part) for part in node.expressions)})"
