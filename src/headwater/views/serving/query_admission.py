"""Admission: which queries a stranger may ask Spark.

What it is: ``admitted``, which lets one SELECT through, as its words alone, and refuses everything else, before Spark
sees it; ``check_reading``, which has Spark's own lexer and parser read those words, and refuses a text in which they
find anything else.
Invariants: what passes cannot change anything, run a program, call a method of Java, or read anything but relations.
Comments and hints do not reach Spark, which ends some of them elsewhere than our parser; each text and quoted name
begins and ends where our parser says. What our parser cannot read is refused. Which names are mentioned need not be
asked of Spark: the session knows the relations that were shown, with hidden columns and rows left out, and no other.
Not here: which relations there are, that SQL over files is off (``snapshot.py``); time and rows
(``server/engine/engine_process.py``).
Read next: ``snapshot.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from headwater.errors import InvalidQuery
from headwater.views.compiler.frontend.parse import trees
from headwater.views.compiler.sql.dialect import SparkAsWritten

if TYPE_CHECKING:
    from py4j.java_gateway import JVMView
    from pyspark.sql import SparkSession

# What of Spark's functions runs code, reads files, or tells where they are. All others compute with their arguments:
# tests/spark/test_functions_are_sparks.py says so of each name that Spark has.
REFUSED_FUNCTIONS = frozenset(
    {
        "from_avro",  # avroSchemaUrl
        "from_protobuf",  # a file of descriptors
        "from_xml",  # rowValidationXSDPath
        "input_file_block_length",
        "input_file_block_start",
        "input_file_name",
        "java_method",
        "python_worker_logs",
        "reflect",
        "schema_of_avro",
        "schema_of_xml",
        "to_avro",
        "to_protobuf",
        "try_reflect",
    }
)
NO_FUNCTION = "Only functions of SQL."
QUOTES = ("'", '"', "`")
# As ANTLR shows a list of tokens: [@-1,0:5='SELECT',<347>,1:0], [@-1,6:6=' ',<502>,channel=1,1:6]
BEGIN, END = re.compile(r"\[@-?\d+,(\d+):(\d+)='"), re.compile(r"',<-?\d+>(,channel=\d+)?,\d+:\d+\],? ?")
ESCAPED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
Word = tuple[int, str, bool]  # its place, the word, whether Spark's parser gets it


def admitted(sql: str) -> str:
    """The text with spaces for what is no word of it; refused is what is not one SELECT, or reaches out of it.

    >>> admitted("SELECT country, count(*) FROM users GROUP BY country /* of all */;")
    'SELECT country, count(*) FROM users GROUP BY country'
    >>> admitted("DROP VIEW users")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidQuery: only one SELECT can be asked
      Hint: Nothing can be changed by a query.
    >>> admitted("SELECT reflect('java.lang.System', 'exit', 0)")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidQuery: a query cannot call reflect
      Hint: Only functions of SQL.
    """
    try:
        words = words_of(sql)
        found = trees(words)
    except (SqlglotError, RecursionError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidQuery("the query is not SQL that Spark understands", detail=first, hint="Correct it.") from error
    if len(found) != 1 or not isinstance(found[0], exp.Query | exp.Values):
        raise InvalidQuery("only one SELECT can be asked", hint="Nothing can be changed by a query.")
    refuse_calls(words[token.start : token.end + 1] for token in SparkAsWritten().tokenize(words))
    writes = (exp.DML, exp.DDL, exp.Command)
    if any(found[0].find_all(exp.QueryTransform)) or _any_other(found[0], writes):
        raise InvalidQuery("a query cannot run a program, or write", hint=NO_FUNCTION)
    return words


def check_reading(spark: SparkSession, sql: str) -> None:
    """Refuse a text that Spark reads otherwise than we do."""
    from pyspark.errors import PySparkException

    theirs = list(_words(spark, sql))
    ours = [(each.start, sql[each.start : each.end + 1]) for each in SparkAsWritten().tokenize(sql)]
    hidden = [word for _, word, shown in theirs if not shown and not word.isspace()]
    if hidden or _quoted(ours) != _quoted([(place, word) for place, word, _ in theirs]):
        raise InvalidQuery(
            "the query can be read in two ways",
            detail="Spark ends a text in quotes, or a comment, elsewhere than Headwater.",
            hint="Leave out comments, and write quotes within texts as '' and backslashes as \\\\.",
        )
    refuse_calls(word for _, word, shown in theirs if shown)
    try:
        spark._jsparkSession.sessionState().sqlParser().parseQuery(sql)
    except PySparkException as error:
        first = str(error).strip().splitlines()[0]
        raise InvalidQuery("the query cannot be run", detail=first, hint="Correct the query.") from error


def words_of(sql: str) -> str:
    """A text with spaces for its comments and hints, and without the semicolon at its end.

    >>> words_of("SELECT /*+ BROADCAST(u) */ 'a -- b' -- c")
    "SELECT                    'a -- b'"
    """
    kept = [each if each == "\n" else " " for each in sql]
    for token in SparkAsWritten().tokenize(sql):
        if token.token_type != TokenType.HINT:
            kept[token.start : token.end + 1] = sql[token.start : token.end + 1]
    return "".join(kept).strip().rstrip("; \n")


def refuse_calls(words: Iterable[str]) -> None:
    """By the words alone, as they are written, whatever is made of them."""
    for word, following in pairwise([*words, ""]):
        name, calls = word.lower(), following == "("
        if calls and name.strip("`") in REFUSED_FUNCTIONS:
            raise InvalidQuery(f"a query cannot call {name.strip('`')}", hint=NO_FUNCTION)
        if calls and name == "identifier":
            raise InvalidQuery("a query cannot compute names, with IDENTIFIER(…)", hint="Write the name.")
        # TRANSFORM (…) USING 'program'; the USING of a join has a bracket behind it.
        if name == "using" and not calls:
            raise InvalidQuery("a query cannot run a program", hint=NO_FUNCTION)


def _any_other(tree: exp.Expr, kinds: tuple[type[Any], ...]) -> bool:
    """Whether the tree holds one of these that is no query: sqlglot counts a SELECT among what may stand in DDL."""
    return any(not isinstance(node, exp.Query) for node in tree.find_all(*kinds))


def _words(spark: SparkSession, sql: str) -> Iterator[Word]:
    """The text as Spark's lexer cuts it, asked in one call."""
    jvm = spark._jvm
    assert jvm is not None
    told, place = _lexed(jvm, sql), 1
    while place < len(told) - 1:
        begin = BEGIN.match(told, place)
        assert begin is not None, told[place : place + 100]
        first, last = int(begin.group(1)), int(begin.group(2))
        word = sql[first : last + 1]
        end = END.match(told, begin.end() + sum(len(ESCAPED.get(each, each)) for each in word))
        assert end is not None, told[place : place + 100]
        yield first, word, end.group(1) is None
        place = end.end()


def _lexed(jvm: JVMView, sql: str) -> str:
    parser = jvm.org.apache.spark.sql.catalyst.parser
    lexer = parser.SqlBaseLexer(parser.UpperCaseCharStream(jvm.org.antlr.v4.runtime.CharStreams.fromString(sql)))
    lexer.removeErrorListeners()  # which write to standard error; the parser tells
    return str(lexer.getAllTokens().toString())


def _quoted(words: list[tuple[int, str]]) -> list[tuple[int, int]]:
    """Where the texts and names in quotes begin and end, without what stands before the first quote (r'…')."""
    return [(place + word.index(word[-1]), place + len(word)) for place, word in words if word.endswith(QUOTES)]
