"""Registry: Spark's built-in functions and the calls in their documentation, from the Spark that runs.

What it is: the names, what each is (from the class that implements it and from how it must be called), and its examples
as expressions and as whole queries.
Invariants: nothing is known by heart but how to read Spark's descriptions; a new function is found by itself.
Not here: which functions a view may call (the compiler's ``REASONS``, which ``test_functions.py`` reads).
Read next: ``arguments.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = re.compile(r"^\s*> (SELECT.*?);\s*$", re.MULTILINE | re.DOTALL)
TEXT = re.compile(r"""r?'(?:[^'\\]|\\.|'')*'|r?"(?:[^"\\]|\\.)*\"""")
TOKEN = re.compile(rf"{TEXT.pattern}|`[^`]*`|[(){{}}\[\],]|\b\d+(?:\.\d+)?\b|\w+|\s+|.", re.DOTALL)
WORD = re.compile(r"[a-z_][a-z0-9_]*")


@dataclass(frozen=True)
class Function:
    """A built-in function: its name, the class behind it, and its documented examples."""

    name: str
    class_name: str
    examples: tuple[str, ...]


def names(spark: SparkSession) -> list[str]:
    """All functions that are called by a name. Operators are not: ``literals.py`` has them."""
    return sorted(row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect() if WORD.fullmatch(row[0]))


def describe(spark: SparkSession, name: str) -> Function:
    """What Spark says about a function."""
    text = "\n".join(row[0] for row in spark.sql(f"DESCRIBE FUNCTION EXTENDED `{name}`").collect())
    found = re.search(r"^Class: (\S+)", text, re.MULTILINE)
    return Function(name, found.group(1) if found else "", tuple(EXAMPLE.findall(text)))


def expressions(function: Function) -> list[str]:
    """The expressions of the examples that need no table."""
    found = []
    for example in function.examples:
        items = _items(example.removeprefix("SELECT"))
        if items is not None:
            found += [item for item in items if re.search(rf"\b{function.name}\b", item, re.IGNORECASE)]
    return list(dict.fromkeys(found))


def queries(function: Function) -> list[str]:
    """The examples that are whole queries, over VALUES of their own."""
    return [example for example in function.examples if _items(example.removeprefix("SELECT")) is None]


def over_columns(expression: str) -> list[str]:
    """The same expression with one of its literals computed from a column at a time.

    >>> over_columns("left('Spark', 3)")
    ["left(concat(left(§s, 0), 'Spark'), 3)", "left('Spark', (§k - §k + 3))"]
    """
    tokens = TOKEN.findall(expression)
    found = []
    for place, token in enumerate(tokens):
        before = "".join(tokens[:place]).rstrip()
        if re.search(r"(?i)\b(interval|date|timestamp|timestamp_ntz|timestamp_ltz|time|x|as|decimal\(\d*,?)$", before):
            continue  # part of a typed literal or of a type
        if TEXT.fullmatch(token):
            computed = f"concat(left(§s, 0), {token})"
        elif re.fullmatch(r"\d{1,9}", token) and re.search(r"[(,]$", before):
            computed = f"(§k - §k + {token})"
        else:
            continue
        found.append("".join([*tokens[:place], computed, *tokens[place + 1 :]]))
    return found


def _items(text: str) -> list[str] | None:
    """The expressions of a SELECT list, when nothing follows it."""
    items, depth, now = [], 0, ""
    for token in TOKEN.findall(text):
        if token in "([{":
            depth += 1
        elif token in ")]}":
            depth -= 1
        if depth == 0 and token == ",":
            items.append(now)
            now = ""
            continue
        if depth == 0 and re.fullmatch(r"(?i)from|where|group|order|union|lateral|values|limit", token):
            return None
        now += token
    found = [item.strip() for item in [*items, now]]
    return [re.sub(r"(?is)\s+AS\s+\w+$", "", item) for item in found if item]
