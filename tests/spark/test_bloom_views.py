"""Bloom filters on Spark: what was given is found, and little else.

What it is: a view of filters over a topic, in several ticks, beside sets in Python; asked by a view and by a query.
Invariants: no value that was given is missed, of whatever type it is asked; the share of others that seem to be there
is what the filter's size says, to twice as many.
Not here: what is written out for a call (``tests/compiler/test_bloom_filters.py``).
Read next: ``src/headwater/views/compiler/frontend/bloom_filters.py``.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

import headwater as hw
from headwater.views.compiler.frontend.bloom_filters import BloomShape

FILTERS = """SELECT k, bloom_agg(x, 300) AS few, bloom_agg(x, 5000) FILTER (WHERE x % 2 = 0) AS even,
    bloom_agg(w, 30000) AS words FROM events GROUP BY k"""
ASKED = """SELECT a.id, bloom_contains(f.few, a.id) AS few, bloom_contains(f.even, CAST(a.id AS INT)) AS even,
    bloom_contains(f.words, concat('w', a.id)) AS words FROM asked a JOIN filters f ON f.k = a.k"""


def test_what_was_given_is_found_and_little_else(spark: SparkSession, tmp_path: Path) -> None:
    assert spark is not None
    random = Random(5)
    given = random.sample(range(40_000), k=4_000)

    with hw.App("blooms", home=tmp_path) as app:
        events = app.topic("events", "k STRING, x BIGINT, w STRING")
        asked = app.topic("asked", "k STRING, id BIGINT")
        filters, answers = app.view("filters", FILTERS), app.view("answers", ASKED)
        for part in (given[:10], given[10:1_000], given[1_000:]):
            events.append([{"k": "a", "x": number, "w": f"w{number}"} for number in part])
            events.append([{"k": "a", "x": None, "w": None}, {"k": "b", "x": None, "w": None}])
            app.tick()
        asked.append([{"k": "a", "id": number} for number in range(0, 40_000, 20)] + [{"k": "b", "id": 1}])
        asked.append([{"k": "a", "id": None}])
        app.tick()
        found = answers.to_arrow().to_pylist()
        query = f"SELECT bloom_contains(words, 'w{given[0]}') AS y FROM filters ORDER BY k"
        queried = [row["y"] for row in app.sql(query).to_pylist()]
        different = [each for each in app.verify() if not each.equal]

    assert [stage.kind.value for stage in filters.plan.stages] == ["accumulating"]
    assert different == []
    assert queried == [True, False]
    (nothing,) = [row for row in found if row["id"] is None]
    assert nothing == {"id": None, "few": None, "even": None, "words": None}
    (empty,) = [row for row in found if row["id"] == 1]
    assert empty == {"id": 1, "few": False, "even": False, "words": False}
    there, even = set(given), {number for number in given if number % 2 == 0}
    for name, values, shape in (
        ("few", there, BloomShape.for_values(300)),
        ("even", even, BloomShape.for_values(5_000)),
        ("words", there, BloomShape.for_values(30_000)),
    ):
        others = [row for row in found if row["id"] not in (None, 1) and row["id"] not in values]
        assert all(row[name] for row in found if row["id"] in values), name
        seeming = sum(row[name] for row in others) / len(others)
        assert seeming <= 2 * shape.error(len(values)) + 0.005, (name, seeming, shape.error(len(values)))
