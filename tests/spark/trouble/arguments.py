"""Arguments: which calls of a function Spark accepts, over columns and literals of every type.

What it is: ``Search.calls`` finds argument lists by asking Spark's analyser; where it complains about an argument it
says which one and what it wants, and that is tried next.
Invariants: an expression stands over the columns of ``rows.py``, each written ``§name``: ``over`` puts a table's alias
there. The same seed finds the same calls. Nothing is run here, only analysed.
Not here: what is made of a call (``calls.py``); the calls of Spark's own documentation (``log/catalog/registry.py``).
Read next: ``log/catalog/registry.py``, ``calls.py``.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = ("§i", "§n", "§d", "§c", "§b", "§h", "§f", "§e", "2", "-1", "0", "3L", "1.5", "2.5D", "1.25BD", "7Y")
INTEGERS = ("§i", "§k", "1", "2", "3", "§b", "§h", "-1", "0")
TEXTS = (
    "§s",
    "§w",
    "§j",
    "'O''Brien'",
    "'a'",
    "'[a-z]+'",
    "','",
    "'%a%'",
    "'1'",
    "''",
    "r'\\d+'",
    "'été'",
    "upper(§s)",
)
TIMES = (
    "§ts",
    "§nt",
    "§dt",
    "TIMESTAMP'2024-03-31 01:30:00'",
    "DATE'2016-02-29'",
    "TIMESTAMP_NTZ'2016-12-31 00:12:00'",
)
ARRAYS = ("§ai", "§aw", "§ad", "§af", "array(1, 2, NULL)", "array('a', 'O''Brien')", "§ast")
LAMBDAS = (
    "v -> v IS NULL",
    "v -> v",
    "(v, w) -> v",
    "(v, w) -> v IS NULL",
    "(v, w) -> CAST(concat(v, w) AS STRING)",
    "(v, w, y) -> coalesce(w, y)",
    "v -> v > 1",
    "(v, w) -> concat('O''k', v)",
)
BY_TYPE: dict[str, tuple[str, ...]] = {
    "STRING": TEXTS,
    "CHAR": TEXTS,
    "BINARY": ("§x", "X'1F'", "encode(§s, 'UTF-8')"),
    "BOOLEAN": ("§o", "TRUE", "§i > 0", "false", "§s IS NULL"),
    "TINYINT": ("§b", "1Y"),
    "SMALLINT": ("§h", "2S"),
    "INT": INTEGERS,
    "INTEGRAL": INTEGERS,
    "BIGINT": ("§n", "§i", "3L", "86400"),
    "FLOAT": ("§f", "1.5F"),
    "DOUBLE": ("§d", "2.5D", "1e3", "0.5"),
    "DECIMAL": ("§c", "§e", "1.25BD"),
    "NUMERIC": NUMBERS,
    "DATE": ("§dt", "DATE'2016-02-29'", "CAST(§ts AS DATE)"),
    "TIMESTAMP": ("§ts", "TIMESTAMP'2024-03-31 01:30:00'", "CAST(§dt AS TIMESTAMP)"),
    "TIMESTAMP_NTZ": ("§nt", "TIMESTAMP_NTZ'2016-12-31 00:12:00'"),
    "TIME": ("TIME'12:34:56.789'", "CAST(§nt AS TIME)", "make_time(1, 2, 3.5)"),
    "INTERVAL": ("INTERVAL '1 2' DAY TO HOUR", "INTERVAL 1 DAY 2 HOURS", "INTERVAL '1-2' YEAR TO MONTH", "§ts - §nt"),
    "ARRAY<INT>": ("§ai", "array(1, 2, NULL)", "array(§i, §k)"),
    "ARRAY<STRING>": ("§aw", "array('a', 'O''Brien')", "split(§s, ',')"),
    "ARRAY<DOUBLE>": ("§ad", "array(0.5D, 1D)"),
    "ARRAY<FLOAT>": ("§af", "array(1.5F, 2F, 3F)"),
    "STRUCT>": ("§ast", "map_entries(§m)"),
    "ARRAY<ARRAY": ("array(§ai, array(7))", "array(§aw, §aw)"),
    "ARRAY": ARRAYS,
    "MAP": ("§m", "map('O''k', 1)", "map(§k, §s)"),
    "STRUCT": ("§st", "named_struct('A', §i, 'b', §s)", "struct(§k, §s)"),
    "VARIANT": ("to_variant_object(§ai)", "try_parse_json(§j)", "parse_json('{\"a\":[1,2]}')"),
    "LAMBDA": LAMBDAS,
    "GEOMETRY": ("st_geomfromwkb(X'0101000000000000000000f03f0000000000000040')",),
    "GEOGRAPHY": ("st_geogfromwkb(X'0101000000000000000000f03f0000000000000040')",),
}
EVERY = tuple(dict.fromkeys(text for texts in BY_TYPE.values() for text in texts))
STARTS = (TEXTS, NUMBERS, INTEGERS, TIMES, ARRAYS, BY_TYPE["MAP"], BY_TYPE["BINARY"], BY_TYPE["BOOLEAN"])
# Where a number says how long the answer is: 2147483647 would take all of Java's memory, and Spark with it.
LENGTHS = {"array_repeat", "format_number", "lpad", "repeat", "rpad", "sequence", "space"}
LARGE = re.compile(r"§[bhin](?!\w)")
PLACES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
ARITY_MAX, STARTS_MAX, REPAIRS_MAX, ERRORS_MAX = 4, 4, 5, 2

# Where any text is accepted and hardly any means something: what stands at each place ("" is "as found").
SENSIBLE: dict[str, tuple[tuple[str, ...], ...]] = {
    "date_format": (("§ts", "§dt"), ("'yyyy-MM-dd'", "\"yyyy 'year' MM\"", "'EEEE d MMM HH:mm:ss.SSS'", "'Q'")),
    "to_date": (("§w", "'31/12/2016'"), ("'yyyy-MM-dd'", "'dd/MM/yyyy'")),
    "try_to_date": (("§w", "'31 1 2016'"), ("'yyyy-MM-dd'", "'d M y'")),
    "to_timestamp": (("§w", "'2016-12-31'"), ("'yyyy-MM-dd'", "'yyyy-MM-dd HH:mm:ss'")),
    "try_to_timestamp": (("§w", "'2016-12-31'"), ("'yyyy-MM-dd'", "'yyyy-MM-dd HH:mm:ss'")),
    "to_timestamp_ntz": (("§w",), ("'yyyy-MM-dd'", "'yyyy-MM-dd HH:mm:ss'")),
    "to_timestamp_ltz": (("§w",), ("'yyyy-MM-dd'", "'yyyy-MM-dd HH:mm:ss'")),
    "unix_timestamp": (("§w", "§ts"), ("'yyyy-MM-dd'",)),
    "to_unix_timestamp": (("§w", "§ts"), ("'yyyy-MM-dd HH:mm:ss'",)),
    "from_unixtime": (("§n % 100000000", "1700000000"), ("'yyyy-MM-dd HH:mm:ss'", "\"d.M.yy 'at' H\"")),
    "date_trunc": (("'MONTH'", "'week'", "'QUARTER'", "'microsecond'"), ("§ts", "§dt", "§nt")),
    "trunc": (("§dt", "§ts"), ("'MM'", "'year'", "'Q'", "'week'")),
    "date_part": (("'YEAR'", "'dow'", "'SECONDS'", "'yearofweek'"), ("§ts", "§dt")),
    "datepart": (("'YEAR'", "'MONTH'"), ("§ts", "§dt")),
    "next_day": (("§dt",), ("'MO'", "'Friday'")),
    "from_utc_timestamp": (("§ts",), ("'Europe/Berlin'", "'America/New_York'", "'+05:30'")),
    "to_utc_timestamp": (("§ts",), ("'Europe/Berlin'", "'Asia/Kolkata'")),
    "convert_timezone": (("'Europe/Berlin'",), ("'America/Los_Angeles'",), ("§nt",)),
    "from_json": (("§j",), ("'a INT, b STRING'", "'A INT'", "'a STRUCT<b: ARRAY<INT>>'")),
    "get_json_object": (("§j",), ("'$.a'", "'$.a.b[0]'", "\"$['O''k']\"")),
    "json_tuple": (("§j",), ("'a'",), ("'b'",)),
    "schema_of_json": (('\'{"a":1,"B":[1.5]}\'',),),
    "from_csv": (("§s", "'1,x'"), ("'a STRING, b STRING'",)),
    "from_xml": (("'<p><a>1</a><B>x</B></p>'",), ("'a INT, B STRING'",)),
    "schema_of_csv": (("'1,abc'",),),
    "schema_of_xml": (("'<p><a>1</a></p>'",),),
    "regexp_extract": (("§s", "'100-200'"), ("'([a-zA-Z]+)(.*)'", "r'(\\d+)-(\\d+)'"), ("1", "2")),
    "regexp_replace": (("§s",), ("'[aeiou]'", "r'(\\w)'"), ("'_'", "'$1$1'")),
    "regexp_like": (("§s",), ("'^a'", "r'\\d'")),
    "parse_url": (("'https://localhost/c?q=1#r'", "§s"), ("'HOST'", "'QUERY'")),
    "try_parse_url": (("'https://localhost/c?q=1#r'", "§s"), ("'HOST'", "'QUERY'")),
    "to_char": (("§c", "§i"), ("'999999999.99'", "'$00,000,000.0'")),
    "to_varchar": (("§c",), ("'999999999.99'",)),
    "to_number": (("'454.00'", "'-12'"), ("'999.99'", "'S99'")),
    "try_to_number": (("§w", "'454.00'"), ("'999.99'", "'99'")),
    "format_string": (("'%s|%05d'", "'%2$d-%1$s'"), ("§s",), ("§i",)),
    "printf": (("'%s it''s %x'",), ("§s",), ("§i",)),
    "format_number": (("§d", "§c"), ("2", "'#,###.0'")),
    "xpath": (("'<a><b>1</b><b>2</b></a>'",), ("'a/b/text()'",)),
    "xpath_string": (("'<a><b>x</b></a>'",), ("'a/b'",)),
    "xpath_int": (("'<a><b>1</b></a>'",), ("'sum(a/b)'",)),
    "aes_encrypt": (("§s", "§x"), ("'abcdefghijklmnop'",), ("'ECB'",), ("'PKCS'",)),
    "aes_decrypt": (
        ("aes_encrypt(§s, 'abcdefghijklmnop', 'CBC', 'PKCS', X'00000000000000000000000000000000')",),
        ("'abcdefghijklmnop'",),
        ("'CBC'",),
        ("'PKCS'",),
    ),
    "variant_get": (("try_parse_json(§j)",), ("'$.a'",), ("'string'",)),
    "try_variant_get": (("try_parse_json(§j)",), ("'$.a'",), ("'int'", "'string'")),
    "collate": (("§s",), ("'UTF8_LCASE'", "'UNICODE_CI'")),
    "make_date": (("2016", "2024"), ("1", "2", "12"), ("§k + 1", "28")),
    "make_timestamp": (("2016",), ("12",), ("§k + 1",), ("1",), ("2",), ("3.123456",)),
    "make_interval": (("1",), ("§k",), ("0",), ("3",)),
    "sequence": (("1", "§k"), ("5", "9"), ("2",)),
    "repeat": (("§s",), ("2", "§k")),
    "lpad": (("§s",), ("7", "§k + 1"), ("'*'", "'xy'")),
    "rpad": (("§s",), ("7", "§k + 1"), ("'*'", "'xy'")),
    "space": (("§k", "3"),),
    "array_repeat": (("§s", "§i"), ("§k", "2")),
    "shiftleft": (("§i", "§n"), ("1", "§k")),
    "conv": (("§w", "'ff'"), ("16", "10"), ("2", "-10", "36")),
    "encode": (("§s",), ("'UTF-8'", "'UTF-16BE'")),
    "decode": (("§x", "encode(§s, 'UTF-8')"), ("'UTF-8'",)),
    "to_binary": (("'abcd'", "'1F'"), ("'utf-8'", "'base64'", "'hex'")),
    "try_to_binary": (("§s", "'1F'"), ("'hex'", "'utf-8'")),
    "sha2": (("§s", "§x"), ("256", "0", "512")),
    "split_part": (("§s", "'a.b.c'"), ("','", "'.'"), ("1", "-1", "§k + 1")),
    "window": (("§ts",), ("'1 day'", "'10 minutes'")),
    "to_json": (
        ("§st", "§m", "§ast", "named_struct('Mixed Case', §s, 'b', §ts)"),
        ("map('ignoreNullFields', 'false')",),
    ),
    **dict.fromkeys(("collect_list", "array_agg", "collect_set"), (("§i", "§s", "§c", "§dt"),)),
    **dict.fromkeys(("vector_avg", "vector_sum"), (("§af",),)),
    **dict.fromkeys(("bitmap_construct_agg",), (("bitmap_bit_position(§k)",),)),
    **dict.fromkeys(("int", "bigint", "double", "decimal", "float", "string"), (("§k", "'7'", "§c % 100"),)),
    **dict.fromkeys(("date", "timestamp"), (("'2016-12-31'", "§ts", "§dt"),)),
    **dict.fromkeys(("inline", "inline_outer"), (("§ast", "map_entries(§m)"),)),
    "time_bucket": (("INTERVAL '1' HOUR",), ("§ts", "§nt")),
    "percentile_approx": (("§d", "§i"), ("0.5", "array(0.25, 0.75)"), ("100",)),
    "approx_percentile": (("§d", "§i"), ("0.5",), ("100",)),
    "percentile": (("§d", "§i"), ("0.5", "array(0.25, 0.75)")),
    "lead": (("§s", "§i"), ("1", "2"), ("NULL",)),
    "lag": (("§s", "§i"), ("1", "2")),
    "nth_value": (("§s",), ("2",)),
    "ntile": (("3",),),
    "listagg": (("§s",), ("', '", "''''")),
    "string_agg": (("§s",), ("'|'",)),
    "overlay": (("§s",), ("'O''k'",), ("2",), ("1",)),
    "mask": (("§s",), ("'X'", "'*'"), ("'y'",)),
    "elt": (("2", "§k + 1"), ("§s",), ("'b'",), ("§w",)),
    "str_to_map": (("§s", "'a:1,b:2'"), ("','",), ("':'",)),
    "timestamp_seconds": (("§n % 10000000000", "§k", "1.5"),),
    "aggregate": (("§ai",), ("0", "5L"), ("(acc, v) -> coalesce(acc, 0) + coalesce(v % 7, 1)",), ("acc -> acc * 10",)),
    "reduce": (("§ai",), ("0",), ("(acc, v) -> coalesce(acc, 0) + coalesce(v % 7, 1)",), ("acc -> acc * 10",)),
    "zip_with": (("§ai",), ("§aw",), ("(v, w) -> concat(v, w)",)),
    "transform": (("§ai", "§aw", "§ast"), ("v -> concat('O''k', v)", "(v, at) -> at", "v -> v.Key")),
    "array_sort": (("§ai", "§aw"), ("(v, w) -> CASE WHEN v < w THEN -1 WHEN v > w THEN 1 ELSE 0 END",)),
}


@dataclass(frozen=True)
class Call:
    """A call that Spark accepts, over columns written ``§name``, and the type it gives, as Spark writes it."""

    function: str
    text: str
    type: str


def over(text: str, alias: str = "") -> str:
    """The expression over the columns of an alias, or over bare columns.

    >>> over("upper(§s)"), over("upper(§s)", "a")
    ('upper(s)', 'upper(a.s)')
    """
    return text.replace("§", f"{alias}." if alias else "")


class Search:
    """Asks Spark's analyser about calls over table ``t``.

    Spark's errors cost 50 ms each in Python, most of it for stack traces nobody reads. So the plan is analysed without
    the check that raises; a call's own check of its arguments is asked what it misses.
    """

    def __init__(self, session: SparkSession, choice: random.Random) -> None:
        self.session = session
        self.choice = choice
        self.asked = 0

    def type_of(self, text: str, source: str = "t") -> str | None:
        """The type of an expression over the table; None when Spark does not accept it."""
        sql = f"SELECT {over(text)} FROM {source}"
        try:
            if self._complaint(sql) is not None:
                return None
            fields = self.session.sql(sql).schema.fields  # with all checks
        except Exception:
            return None
        return fields[0].dataType.simpleString() if len(fields) == 1 else f"{len(fields)} columns"

    def calls(self, function: str, *, each: int, suffix: str = "") -> list[Call]:
        """Up to ``each`` different calls for every number of arguments that Spark accepts."""
        found: dict[str, Call] = {}
        for arguments in self._sensible(function, each):
            self._add(found, function, arguments, suffix)
        for arity in self._arities(function, suffix):
            for _ in range(1 if arity == 0 else each):
                accepted = self._repaired(function, arity, suffix)
                if accepted is not None:
                    self._add(found, function, accepted, suffix)
        return list(found.values())

    def _arities(self, function: str, suffix: str) -> list[int]:
        """How many arguments it takes: Spark's error for too many of them says so."""
        many = ", ".join(["1"] * 30)
        try:
            self._complaint(f"SELECT {function}({many}){over(suffix)} FROM t")
        except Exception as error:
            about = getattr(error, "getMessageParameters", dict)() or {}
            numbers = [int(number) for number in re.findall(r"\d+", about.get("expectedNum", ""))]
            if numbers:
                return [number for number in numbers if number <= ARITY_MAX]
        return list(range(ARITY_MAX + 1))

    def _sensible(self, function: str, each: int) -> list[list[str]]:
        places = SENSIBLE.get(function, ())
        return [[self.choice.choice(place) for place in places] for _ in range(2 * each)] if places else []

    def _add(self, found: dict[str, Call], function: str, arguments: list[str], suffix: str) -> None:
        text = f"{function}({', '.join(arguments)}){suffix}"
        type = self.type_of(text) if text not in found else None
        if type is not None:
            found[text] = Call(function, text, type)

    def _repaired(self, function: str, arity: int, suffix: str) -> list[str] | None:
        """Arguments that Spark accepts; None when none were found."""
        errors = 0
        for _ in range(STARTS_MAX):
            arguments = [self.choice.choice(self.choice.choice(STARTS)) for _ in range(arity)]
            for _ in range(REPAIRS_MAX):
                if function in LENGTHS:
                    arguments = [LARGE.sub("§k", text) for text in arguments]
                try:
                    sql = f"SELECT {over(function)}({over(', '.join(arguments))}){over(suffix)} FROM t"
                    complaint = self._complaint(sql)
                except Exception:
                    errors += 1
                    if errors == ERRORS_MAX or not arity:
                        return None
                    break
                if complaint is None:
                    return arguments
                if not arity:
                    return None
                place, wanted = self._answer(complaint, arguments)
                arguments[place] = self.choice.choice(wanted)
        return None

    def _complaint(self, sql: str) -> dict[str, str] | None:
        """What is wrong with the arguments of the first call; None when the query is resolved."""
        self.asked += 1
        state = self.session._jsparkSession.sessionState()
        plan = state.analyzer().execute(state.sqlParser().parsePlan(sql))
        if plan.resolved():
            return None
        try:
            checked = plan.expressions().head().child().checkInputDataTypes()
            about = checked.messageParameters()
            return {name: about.apply(name) for name in ("paramIndex", "requiredType") if about.contains(name)}
        except Exception:
            return {}

    def _answer(self, complaint: dict[str, str], arguments: list[str]) -> tuple[int, tuple[str, ...]]:
        place = self.choice.randrange(len(arguments))
        if complaint.get("paramIndex") in PLACES:
            place = min(PLACES.index(complaint["paramIndex"]), len(arguments) - 1)
        required = complaint.get("requiredType", "")
        choices = tuple(text for type, texts in BY_TYPE.items() if re.search(rf'"{type}', required) for text in texts)
        return place, choices or EVERY
