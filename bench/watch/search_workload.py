"""Searches and documents of the benchmark: media monitoring and price alerts.

What it is: ``searches`` and ``documents``, from a seed; and both as files for peers.
Invariants: the same numbers give the same rows. Every query is one of five forms that all contenders can express; words
are drawn as in natural texts (the n-th most frequent with a probability like 1/n), in queries without the hundred most
frequent ones, which nobody waits for.
Not here: measuring (``searches.py``). Read next: ``searches.py``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

VOCABULARY = 50_000
FREQUENT = 100  # words that queries do not ask for
CATEGORIES, COUNTRIES = 500, 50
PRICE_MAX = 1_000.0
TITLE_WORDS, BODY_WORDS = 8, 120
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("title", pa.string()),
        ("body", pa.string()),
        ("category", pa.string()),
        ("country", pa.string()),
        ("price", pa.float64()),
    ]
)


@dataclass(frozen=True)
class BenchSearch:
    """One search: its parts, for peers, and its text."""

    id: str
    parts: dict[str, Any]

    @property
    def query(self) -> str:
        """In our language."""
        parts = self.parts
        words = [f"body:{word}" for word in parts.get("words", ())]
        words += [f'body:"{" ".join(phrase)}"' for phrase in parts.get("phrases", ())]
        words += [f"body:{start}*" for start in parts.get("prefixes", ())]
        words += [f"{column}:{value}" for column, value in parts.get("values", {}).items()]
        if "price" in parts:
            words.append("price:[{} TO {}]".format(*parts["price"]))
        if "any" in parts:
            words.append("(" + " OR ".join(f"body:{word}" for word in parts["any"]) + ")")
        words += [f"NOT body:{word}" for word in parts.get("not", ())]
        return " AND ".join(words)


class Words:
    """Words as natural texts have them."""

    def __init__(self, seed: int) -> None:
        self.chance = np.random.default_rng(seed)
        shares = np.cumsum(1 / np.arange(1, VOCABULARY + 1))
        self.shares = shares / shares[-1]
        # A word is a number in letters: prefixes of words have many words.
        self.words = np.array([_spelled(number) for number in range(VOCABULARY)])

    def draw(self, count: int, *, least: int = 0) -> list[str]:
        """Some words; none of the ``least`` most frequent ones."""
        low = self.shares[least - 1] if least else 0.0
        return list(self.words[np.searchsorted(self.shares, self.chance.uniform(low, 1.0, count))])


def _spelled(number: int) -> str:
    """A word of four to six letters for a number, so that neighbours in frequency are not neighbours in spelling."""
    scrambled, letters = (number * 7_919 + 13) % 1_000_003, ""
    for _ in range(4 + number % 3):
        scrambled, place = divmod(scrambled, 26)
        letters += chr(97 + place)
    return f"{letters}{number % 10}{number}"


def searches(count: int, *, seed: int = 1) -> list[BenchSearch]:
    """So many searches."""
    words = Words(seed)
    chance = words.chance
    found = []
    for number in range(count):
        form = number % 20
        low = round(float(chance.uniform(0, PRICE_MAX)), 2)
        price = [low, round(low + float(chance.choice([1.0, 10.0, 100.0])), 2)]
        parts: dict[str, Any]
        if form < 8:  # words that must all be there
            parts = {"words": words.draw(int(chance.integers(2, 4)), least=FREQUENT)}
        elif form < 12:
            parts = {"phrases": [words.draw(2, least=FREQUENT)]}
        elif form < 17:  # a value and a range
            column = "category" if chance.random() < 0.7 else "country"
            value = int(chance.integers(0, CATEGORIES if column == "category" else COUNTRIES))
            parts = {"values": {column: f"{column[:2]}{value}"}, "price": price}
        elif form < 19:
            one, *others = words.draw(3, least=FREQUENT)
            parts = {"words": [one], "any": others, "price": price, "not": words.draw(1, least=FREQUENT)}
        else:
            one, other = words.draw(2, least=FREQUENT)
            parts = {"words": [one], "prefixes": [other[:3]]}
        found.append(BenchSearch(f"s{number}", parts))
    return found


def documents(count: int, *, seed: int) -> pa.Table:
    """So many documents."""
    words = Words(10_000 + seed)
    chance = words.chance
    return pa.table(
        {
            "id": np.arange(count),
            "title": [" ".join(words.draw(TITLE_WORDS)) for _ in range(count)],
            "body": [" ".join(words.draw(BODY_WORDS)) for _ in range(count)],
            "category": [f"ca{number}" for number in chance.integers(0, CATEGORIES, count)],
            "country": [f"co{number}" for number in chance.integers(0, COUNTRIES, count)],
            "price": np.round(chance.uniform(0, PRICE_MAX, count), 2),
        },
        schema=SCHEMA,
    )


def write_files(folder: Path, found: list[BenchSearch], batches: list[pa.Table]) -> None:
    """The searches and the batches of documents, as lines of fields that a program without a JSON parser reads."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "searches.tsv").open("w") as file:
        for each in found:
            parts = each.parts
            fields = [
                each.id,
                " ".join(parts.get("words", ())),
                "|".join(" ".join(phrase) for phrase in parts.get("phrases", ())),
                " ".join(parts.get("prefixes", ())),
                " ".join(f"{column}={value}" for column, value in parts.get("values", {}).items()),
                " ".join(map(str, parts.get("price", ()))),
                " ".join(parts.get("any", ())),
                " ".join(parts.get("not", ())),
            ]
            file.write("\t".join(fields) + "\n")
    for number, table in enumerate(batches):
        with (folder / f"documents-{number}.tsv").open("w") as file:
            for row in table.to_pylist():
                file.write("\t".join(str(row[name]) for name in SCHEMA.names) + "\n")
    (folder / "about.json").write_text(json.dumps({"batches": len(batches)}))
