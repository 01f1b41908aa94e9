"""The query language: what is refused, with which sentence and place; what is read, and how."""

from __future__ import annotations

import pytest

from headwater.errors import InvalidQuery
from headwater.log.schema.ddl import parse_ddl
from headwater.searches.query_nodes import All, Between, Equals, IsNull, Not, Phrase, Some, StartsWith, Word, WordPrefix
from headwater.searches.query_parser import parse
from headwater.searches.search_columns import SearchColumns
from headwater.searches.text_analysis import TextAnalyser

COLUMNS = SearchColumns(
    parse_ddl(
        "id BIGINT, title STRING, body STRING, price DOUBLE, amount INT, country STRING, tags ARRAY<STRING>, "
        "at TIMESTAMP, day DATE, sold BOOLEAN, raw BINARY, `odd name` INT"
    ),
    ["title", "body"],
)
DEFAULT = TextAnalyser("default")

# Query, the part that is underlined, and how the sentence begins.
REFUSED = [
    ("", "", "the query is empty"),
    ("   ", "", "the query is empty"),
    ("a AND", "AND", "nothing stands behind AND"),
    ("a OR )", "OR", "nothing stands behind OR"),
    ("OR a", "OR", "nothing stands before OR"),
    ("a AND OR b", "AND", "nothing stands behind AND"),
    ("NOT", "NOT", "nothing stands behind NOT"),
    ("(a", "(", "a parenthesis is not closed"),
    ("a AND (", "(", "a parenthesis is not closed"),
    ("a)", ")", "this closes nothing"),
    ("a ()", "()", "nothing stands in the parentheses"),
    ('a "b c', '"b c', "the quotation mark is not closed"),
    ('"a b"~2', "~2", "words at a distance are not looked for"),
    ("colour:red", "colour:", 'the documents have no column "colour"'),
    ("raw:1", "raw:", "raw is BINARY, which searches cannot ask about"),
    ("price:", "price:", "a value of price is missing"),
    ("price:cheap", "cheap", "price is DOUBLE: cheap is not a number"),
    ("price:NaN", "NaN", "price is DOUBLE: NaN is not a number"),
    ("amount:1.5", "1.5", "amount is INT: 1.5 is not a whole number"),
    ("sold:maybe", "maybe", "sold is BOOLEAN: true or false"),
    ("day:yesterday", "yesterday", "day is DATE: a day is written 2026-01-31"),
    ("at:>soon", "soon", "at is TIMESTAMP: a moment is written"),
    ("price:[10 TO", "[10", "the range is not complete"),
    ("price:[10 20]", "[10", "the range is not complete"),
    ("[10 TO 20]", "[", "a range needs a column before it"),
    ("title:[a TO b]", "[a TO b]", "title is searched by words, and words have no order"),
    ("title:>a", ">", "title is searched by words, and words have no order"),
    ("tags:[a TO b]", "[a TO b]", "tags is ARRAY<STRING>: a range is asked of one value"),
    ("ri*er", "ri*er", "a wildcard inside a word is not looked for"),
    ("riv?r", "riv?r", "a wildcard inside a word is not looked for"),
    ("river~", "river~", "words that are merely alike, and weights, are not looked for"),
    ("river^2", "river^2", "words that are merely alike, and weights, are not looked for"),
    ("/riv.r/", "/riv.r/", "regular expressions are not looked for"),
    ("...", "...", "there is no word in this"),
    ("x" * 41, "x" * 41, "a word is too long to be in any text"),
    ("a-b*", "a-b*", "the beginning of one word was expected before *"),
    ("(" * 60 + "a", "(", "more than 50 parts stand inside each other"),
    ("sql:", "", "the predicate is not complete"),
    ("sql: price >", "", "the predicate is not complete"),
    ("sql: price > 'x'", "'x'", "price is DOUBLE: a number was expected"),
    ("sql: country = 5", "5", "country is STRING: a text in quotes was expected"),
    ("sql: colour = 'red'", "colour", 'the documents have no column "colour"'),
    ("sql: lower(country) = 'de'", "lower", "the function lower is not computed for searches"),
    ("sql: price + 1 > 2", "+", "a comparison was expected here"),
    ("sql: price > amount", "amount", "a literal was expected here"),
    ("sql: price", "price", "price is DOUBLE, not a condition"),
    ("sql: (price > 1", "(", "a parenthesis is not closed"),
    ("sql: price > 1 price", "price", "this is not expected here"),
    ("sql: country LIKE '%e'", "'%e'", "only the beginning of a text is compared by LIKE"),
    ("sql: tags = 'a'", "tags", "tags is ARRAY<STRING>"),
    ("sql: country = 'DE", "'DE", "the quotation mark is not closed"),
    ("sql: price BETWEEN 1 OR 2", "OR", "AND was expected here"),
    ("sql: country NOT = 'DE'", "=", "IN, BETWEEN or LIKE was expected behind NOT"),
    ("sql: price ; 1", ";", "this is not SQL"),
    ("x" * 20_001, "x", "the query has 20001 characters, and may have 20000"),
]


@pytest.mark.parametrize(("query", "part", "sentence"), REFUSED, ids=[query[:30] for query, _, _ in REFUSED])
def test_a_malformed_query_is_refused_with_the_place(query: str, part: str, sentence: str) -> None:
    with pytest.raises(InvalidQuery) as refused:
        parse(query, COLUMNS, DEFAULT)

    error = refused.value
    assert error.message.startswith(sentence)
    assert error.detail is not None
    assert "^" in error.detail
    if part:
        start = error.data["position"]
        assert query[start : start + error.data["length"]] == part


READ = {
    "rivers": Word("*", "rivers"),
    "Title:Rivers": Word("title", "rivers"),
    '"AND"': Word("*", "and"),
    "and": Word("*", "and"),
    "river-bank": Phrase("*", ("river", "bank")),
    "tit\\:le": Phrase("*", ("tit", "le")),
    "a://b": Phrase("*", ("a", "b")),
    "a b": All((Word("*", "a"), Word("*", "b"))),
    "a OR b c": Some((Word("*", "a"), All((Word("*", "b"), Word("*", "c"))))),
    "a && !b || c": Some((All((Word("*", "a"), Not(Word("*", "b")))), Word("*", "c"))),
    "-a": Not(Word("*", "a")),
    "Ri*": WordPrefix("*", "ri"),
    "*": All(),
    "price:*": Not(IsNull("price")),
    "title:(a OR b*)": Some((Word("title", "a"), WordPrefix("title", "b"))),
    "country:D*": StartsWith("country", "D"),
    'country:"D*"': Equals("country", "D*"),
    "amount:(1 OR >5)": Some((Equals("amount", 1), Between("amount", low=5, low_open=True))),
    "`odd name`:3": Equals("odd name", 3),
    "price:[* TO 5}": Between("price", None, 5.0, False, True),
    "day:1970-01-02": Equals("day", 1),
    "at:1970-01-02": Between("at", 86_400_000_000, 172_800_000_000, False, True),
    "at:>=1970-01-01T00:00:01+00:00": Between("at", low=1_000_000),
    "sql: NOT (price > 5 OR sold)": All((Between("price", high=5.0), Equals("sold", False))),
    "sql: 5 < price": Between("price", low=5.0, low_open=True),
    "SQL: amount IN (1, NULL)": Equals("amount", 1),
    "sql: amount NOT IN (1, NULL)": Some(),
    "sql: country <=> NULL": IsNull("country"),
    "sql: country = 'it''s'": Equals("country", "it's"),
    "sql: day > DATE '1970-01-02' AND TRUE": All((Between("day", low=1, low_open=True), All())),
}


@pytest.mark.parametrize("query", READ)
def test_a_query_is_read_so(query: str) -> None:
    assert parse(query, COLUMNS, DEFAULT) == READ[query]


def test_words_are_stems_where_the_tokenizer_makes_stems() -> None:
    columns = SearchColumns(COLUMNS.schema, ["title"], tokenizer="en_stem")
    stems = TextAnalyser("en_stem")

    assert parse("Running", columns, stems) == Word("title", "run")
    assert parse("Running*", columns, stems) == WordPrefix("title", "running")
