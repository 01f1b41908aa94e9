"""DDL: Spark's column lists to an Arrow schema, and back.

What it is: a parser for column lists (``"order_id BIGINT NOT NULL, tags ARRAY<STRING>"``) with every Spark type of a
topic.
Invariants: ``parse_ddl(to_ddl(schema))`` is the schema again; an accepted text means the same to Spark
(``tests/spark/test_ddl_agrees_with_spark.py``); any other text is refused with the place underlined. Comments are
dropped.
Not here: names and Arrow types that a topic accepts (``normalization.py``); CREATE TABLE's other clauses.
Read next: ``normalization.py``, then ``evolution.py``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa

from headwater.errors import InvalidDeclaration
from headwater.hints import closest, underline

TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")

SIMPLE_TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "BYTE": pa.int8(),
    "SMALLINT": pa.int16(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP_LTZ": TIMESTAMP,
    "TIMESTAMP_NTZ": TIMESTAMP_NTZ,
}
# The first spelling of each type is the one that is written back.
SPARK_NAMES: dict[pa.DataType, str] = {arrow: name for name, arrow in reversed(SIMPLE_TYPES.items())}

# Further types of a view's state: no topic stores them, so only ``parse_view_ddl`` reads them.
DAY_TO_SECOND = "INTERVAL DAY TO SECOND"
VIEW_TYPES: dict[str, pa.DataType] = {DAY_TO_SECOND: pa.duration("us"), "VOID": pa.null()}
VIEW_NAMES: dict[pa.DataType, str] = {arrow: name for name, arrow in VIEW_TYPES.items()}

DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
TEXTS_WITH_LENGTH = ("VARCHAR", "CHAR", "CHARACTER")
NESTED = ("ARRAY", "MAP", "STRUCT")
KNOWN_TYPES = (*SIMPLE_TYPES, *DECIMALS, *TEXTS_WITH_LENGTH, *NESTED)
DECIMAL_PRECISION_MAX = 38

# Spark types that a topic cannot store, each with its replacement.
REFUSED_TYPES = {
    "INTERVAL": "Store the length as BIGINT (microseconds), or its two ends as TIMESTAMP.",
    "TIME": "Store the time of day as BIGINT (microseconds since midnight) or as STRING.",
    "VARIANT": "Store the JSON text as STRING, or declare its fields as a STRUCT.",
    "VOID": "Give the column the type that its values will have.",
    "GEOMETRY": "Store the WKB bytes as BINARY.",
    "GEOGRAPHY": "Store the WKB bytes as BINARY.",
}
# Type names of other databases that are not near a Spark type in spelling.
FOREIGN_TYPES = {
    "TEXT": "STRING",
    "BYTEA": "BINARY",
    "BLOB": "BINARY",
    "BOOL": "BOOLEAN",
    "DATETIME": "TIMESTAMP",
    "TIMESTAMPTZ": "TIMESTAMP",
    "INT8": "TINYINT (8 bits) or BIGINT (8 bytes)",
    "INT16": "SMALLINT",
    "INT32": "INT",
    "INT64": "BIGINT",
    "FLOAT32": "FLOAT",
    "FLOAT64": "DOUBLE",
    "JSON": "STRING",
    "UUID": "STRING",
    "LIST": "ARRAY",
}

PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TOKEN = re.compile(
    r"""(?P<blank>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<quoted>`(?:[^`]|``)*`)
      | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<word>\w+)
      | (?P<sign>[<>(),:])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class DdlToken:
    """One word or sign of the text, and its position."""

    kind: str
    text: str
    start: int

    @property
    def upper(self) -> str:
        return self.text.upper() if self.kind == "word" else self.text


def parse_ddl(text: str) -> pa.Schema:
    """The Arrow schema of a Spark DDL text.

    >>> print(parse_ddl("order_id BIGINT NOT NULL, tags ARRAY<STRING>, price DECIMAL(10,2)").to_string())
    order_id: int64 not null
    tags: list<item: string>
      child 0, item: string
    price: decimal128(10, 2)
    >>> parse_ddl("id INTT")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: unknown type INTT
      id INTT
         ^^^^
      Hint: INTT: did you mean INT?
    """
    return _Parser(text).schema()


def parse_view_ddl(text: str) -> pa.Schema:
    """The same for a view's columns, which may have two more types.

    >>> parse_view_ddl("length INTERVAL DAY TO SECOND, nothing ARRAY<VOID>").types
    [DurationType(duration[us]), ListType(list<item: null>)]
    """
    return _Parser(text, of_view=True).schema()


@functools.lru_cache(maxsize=4096)  # each tick writes the same ones into its manifest
def to_ddl(schema: pa.Schema) -> str:
    """The Spark DDL text of an Arrow schema; ``parse_ddl`` gives the schema back.

    >>> to_ddl(parse_ddl("id long not null, `odd name` struct<a int, b: array<string>>"))
    'id BIGINT NOT NULL, `odd name` STRUCT<a: INT, b: ARRAY<STRING>>'
    """
    return ", ".join(f"{backquoted(field.name)} {_type_and_null(field)}" for field in schema)


def spark_type(arrow: pa.DataType) -> str:
    """The Spark name of an Arrow type.

    >>> spark_type(pa.map_(pa.string(), pa.decimal128(10, 2)))
    'MAP<STRING, DECIMAL(10,2)>'
    """
    if arrow in SPARK_NAMES:
        return SPARK_NAMES[arrow]
    if arrow in VIEW_NAMES:
        return VIEW_NAMES[arrow]
    if pa.types.is_decimal128(arrow):
        return f"DECIMAL({arrow.precision},{arrow.scale})"
    if pa.types.is_list(arrow):
        return f"ARRAY<{spark_type(arrow.value_type)}>"
    if pa.types.is_map(arrow):
        return f"MAP<{spark_type(arrow.key_type)}, {spark_type(arrow.item_type)}>"
    if pa.types.is_struct(arrow):
        return "STRUCT<" + ", ".join(f"{backquoted(field.name)}: {_type_and_null(field)}" for field in arrow) + ">"
    raise InvalidDeclaration(f"the Arrow type {arrow} has no Spark type", arrow_type=str(arrow))


def _type_and_null(field: pa.Field) -> str:
    return spark_type(field.type) + ("" if field.nullable else " NOT NULL")


def backquoted(name: str) -> str:
    """A name in Spark's DDL, quoted where necessary. In a query use ``quoted`` of ``views/spark/topic_scan.py``.

    >>> backquoted("id"), backquoted("odd `name`")
    ('id', '`odd ``name```')
    """
    return name if PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


class _Parser:
    """Recursive descent over the tokens: each method reads one construct and stops after it."""

    def __init__(self, text: str, *, of_view: bool = False) -> None:
        self.text = text
        self.of_view = of_view
        self.tokens = self._tokens()
        self.place = 0

    def schema(self) -> pa.Schema:
        if not self.tokens[:-1]:
            raise InvalidDeclaration("the schema is empty", hint='Name at least one column, as in "id BIGINT".')
        # Spark also takes the whole schema as one type, STRUCT<…>.
        if self.peek().upper == "STRUCT" and self.tokens[1].text == "<":
            fields = list(self.type())
        else:
            fields = self.fields()
        if self.peek().kind != "end":
            self.fail(f"unexpected {self.peek().text!r}", self.peek(), self.separator_hint())
        return pa.schema(fields)

    def fields(self) -> list[pa.Field]:
        fields = [self.field()]
        while self.accept(","):
            fields.append(self.field())
        return fields

    def field(self) -> pa.Field:
        name = self.name()
        self.accept(":")
        if self.peek().kind == "end" or self.peek().text in (",", ">"):
            self.fail(f'column "{name}" has no type', self.peek(), f"Write a type after the name, as in {name} STRING.")
        arrow = self.type()
        nullable = True
        if self.accept("NOT"):
            self.expect("NULL", "NOT stands only in NOT NULL.")
            nullable = False
        if self.accept("COMMENT"):
            comment = self.take()
            if comment.kind != "string":
                self.fail("a COMMENT needs a quoted text", comment, "Write it as COMMENT 'text'.")
            while self.peek().kind == "string":  # SQL joins neighbouring literals
                self.take()
        return pa.field(name, arrow, nullable=nullable)

    def name(self) -> str:
        token = self.take()
        if token.kind == "quoted":
            name = token.text[1:-1].replace("``", "`")
            if name:
                return name
            self.fail("a column has an empty name", token)
        if token.kind == "word" and PLAIN_NAME.fullmatch(token.text):
            return token.text
        if token.kind == "word":
            self.fail(f"the column name {token.text} must be quoted", token, f"Write `{token.text}` in backquotes.")
        self.fail("a column name is missing", token, "A comma too many? Odd names are quoted: `odd name` STRING.")

    def type(self) -> pa.DataType:
        token = self.take()
        name = token.upper
        if token.kind != "word":
            self.fail("a type is missing", token, "Write one of " + ", ".join(KNOWN_TYPES[:4]) + ", …")
        if self.of_view and name == "VOID":
            return VIEW_TYPES[name]
        if self.of_view and name == "INTERVAL":
            for word in DAY_TO_SECOND.split()[1:]:
                self.expect(word, f"The only interval that a view holds is {DAY_TO_SECOND}.")
            return VIEW_TYPES[DAY_TO_SECOND]
        if name in REFUSED_TYPES:
            self.fail(f"a topic cannot store the type {name}", token, REFUSED_TYPES[name])
        if name in SIMPLE_TYPES:
            return self.simple(token)
        if name in DECIMALS:
            return self.decimal()
        if name in TEXTS_WITH_LENGTH:
            self.length(token)
            return pa.string()
        nested: dict[str, Callable[[], pa.DataType]] = {"ARRAY": self.array, "MAP": self.map, "STRUCT": self.struct}
        if name in nested:
            self.expect("<", f"{name} names what it holds: " + NESTED_EXAMPLES[name])
            return nested[name]()
        self.fail(f"unknown type {token.text}", token, _near_type(token.text))

    def simple(self, token: DdlToken) -> pa.DataType:
        if self.peek().text == "(":
            self.fail(f"{token.upper} takes no length", self.peek(), f"Write {token.upper} alone.")
        if self.peek().upper == "COLLATE":
            self.fail("a topic stores no collation", self.peek(), "Write STRING, and collate in the query.")
        if token.upper == "TIMESTAMP" and self.peek().upper in ("WITH", "WITHOUT"):
            return self.timestamp_zone()
        return SIMPLE_TYPES[token.upper]

    def timestamp_zone(self) -> pa.DataType:
        local = self.take().upper == "WITH"
        for word in ("LOCAL", "TIME", "ZONE")[0 if local else 1 :]:
            self.expect(word, "TIMESTAMP WITH LOCAL TIME ZONE or TIMESTAMP WITHOUT TIME ZONE.")
        return TIMESTAMP if local else TIMESTAMP_NTZ

    def decimal(self) -> pa.DataType:
        if not self.accept("("):
            return pa.decimal128(10, 0)  # Spark's default
        at = self.peek()
        precision, scale = self.number(), 0
        if self.accept(","):
            scale = self.number()
        self.expect(")", "DECIMAL takes a precision and a scale, as in DECIMAL(10,2).")
        if not 1 <= precision <= DECIMAL_PRECISION_MAX:
            self.fail(f"a DECIMAL's precision is 1 to {DECIMAL_PRECISION_MAX}, not {precision}", at)
        if scale > precision:
            self.fail(
                f"a DECIMAL's scale ({scale}) cannot exceed its precision ({precision})",
                at,
                "Precision counts all digits, scale those after the point.",
            )
        return pa.decimal128(precision, scale)

    def length(self, token: DdlToken) -> None:
        # Read and dropped, as Spark itself does outside a table's DDL: the values are plain strings.
        self.expect("(", f"{token.upper} needs a length, as in {token.upper}(20); or write STRING.")
        self.number()
        self.expect(")", f"{token.upper} takes one length, as in {token.upper}(20).")

    def array(self) -> pa.DataType:
        element = self.type()
        self.expect(">", NESTED_EXAMPLES["ARRAY"])
        return pa.list_(element)

    def map(self) -> pa.DataType:
        at = self.peek()
        key = self.type()
        if pa.types.is_map(key):
            self.fail("a MAP's key cannot be a MAP", at)
        self.expect(",", NESTED_EXAMPLES["MAP"])
        value = self.type()
        self.expect(">", NESTED_EXAMPLES["MAP"])
        return pa.map_(key, value)

    def struct(self) -> pa.DataType:
        if self.peek().text == ">":
            self.fail("a STRUCT needs at least one field", self.peek(), "Parquet cannot store an empty STRUCT.")
        fields = self.fields()
        self.expect(">", NESTED_EXAMPLES["STRUCT"])
        return pa.struct(fields)

    # --- tokens ---

    def _tokens(self) -> list[DdlToken]:
        tokens, place = [], 0
        while place < len(self.text):
            match = TOKEN.match(self.text, place)
            if match is None:
                sign = self.text[place]
                hint = (
                    "Odd names are quoted with backquotes: `odd-name` STRING."
                    if sign not in "`'\""
                    else f"A closing {sign} is missing."
                )
                self.fail(f"unexpected {sign!r}", DdlToken("sign", sign, place), hint)
            if match.lastgroup != "blank":
                tokens.append(DdlToken(str(match.lastgroup), match.group(), place))
            place = match.end()
        return [*tokens, DdlToken("end", "", len(self.text.rstrip()))]

    def peek(self) -> DdlToken:
        return self.tokens[self.place]

    def take(self) -> DdlToken:
        token = self.tokens[self.place]
        if token.kind != "end":
            self.place += 1
        return token

    def accept(self, upper: str) -> bool:
        if self.peek().upper != upper or self.peek().kind in ("quoted", "string"):
            return False
        self.place += 1
        return True

    def expect(self, upper: str, hint: str) -> None:
        if not self.accept(upper):
            token = self.peek()
            self.fail(
                f"expected {upper!r}, found {token.text!r}" if token.text else f"{upper!r} is missing", token, hint
            )

    def number(self) -> int:
        token = self.take()
        if token.kind != "word" or not (token.text.isascii() and token.text.isdigit()):
            self.fail("a whole number is missing", token, "As in DECIMAL(10,2) or VARCHAR(20).")
        return int(token.text)

    def separator_hint(self) -> str:
        if self.peek().upper in ("DEFAULT", "GENERATED", "PRIMARY", "UNIQUE", "CHECK"):
            return "A column has a name, a type, NOT NULL and COMMENT only. Keys are declared with key=."
        return "Columns are separated by commas; a column is: name TYPE [NOT NULL] [COMMENT 'text']."

    def fail(self, message: str, token: DdlToken, hint: str | None = None) -> NoReturn:
        raise InvalidDeclaration(
            message,
            detail=underline(self.text, (token.start, token.start + len(token.text))),
            hint=hint,
            ddl=self.text,
            position=token.start,
        )


NESTED_EXAMPLES = {"ARRAY": "ARRAY<STRING>", "MAP": "MAP<STRING, INT>", "STRUCT": "STRUCT<a: INT, b: STRING>"}


def _near_type(word: str) -> str:
    if word.upper() in FOREIGN_TYPES:
        return f"Spark's name for it is {FOREIGN_TYPES[word.upper()]}."
    near = closest(word, KNOWN_TYPES)
    if near is not None:
        return f"{word}: did you mean {near}?"
    return "The types are " + ", ".join(KNOWN_TYPES) + "."
