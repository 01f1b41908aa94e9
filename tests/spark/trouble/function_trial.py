"""Function trial: from Spark's registry to cases, for as many functions as there is time for.

What it is: ``function_cases`` puts calls that the search found and calls of Spark's documentation into queries.
Invariants: functions that are no functions of the inputs are left out: ``test_functions.py`` sees them refused.
Not here: running the cases (``trial.py``).
Read next: ``calls.py``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.views.compiler.sql.builtin_functions import AGGREGATES, GENERATORS, REASONS, TABLE_FUNCTIONS, WINDOWS
from tests.spark.trouble import calls, registry
from tests.spark.trouble.arguments import Call, Search
from tests.spark.trouble.registry import Function
from tests.spark.trouble.trial import AT_ONCE, Case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOT_OF_THE_INPUTS = frozenset(name for names, *_ in REASONS for name in names)
OVER = " OVER (PARTITION BY §k ORDER BY §id, §r)"
# Functions that this Spark has and takes no call of, and why.
UNCALLABLE = {
    **dict.fromkeys(
        (
            "make_time",
            "time",
            "time_diff",
            "time_from_micros",
            "time_from_millis",
            "time_from_seconds",
            "time_to_micros",
            "time_to_millis",
            "time_to_seconds",
            "time_trunc",
            "to_time",
            "try_to_time",
        ),
        "the type TIME is off (UNSUPPORTED_TIME_TYPE)",
    ),
    **dict.fromkeys(("timestamp_nanos", "unix_nanos"), "timestamps of nanoseconds are off"),
    "case": "no function: CASE WHEN, which literals.sql has",
    "schema_of_avro": "Spark's module for Avro is not loaded",
}
FAILING = {"raise_error", "assert_true"}  # they are there to raise


@dataclass
class Made:
    """Cases, and what they cover."""

    cases: list[Case] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)
    calls: int = 0
    uncalled: list[str] = field(default_factory=list)


def function_cases(
    session: SparkSession, functions: Sequence[Function], seed: int, *, each: int, placed: int, places_max: int
) -> Made:
    """``each`` calls for every number of arguments; of ``placed`` functions as many go to other places too."""
    made, scalar = Made(), []
    aggregate, windowed = [], []
    choice = random.Random(seed)
    everywhere = {function.name for function in choice.sample(functions, min(placed, len(functions)))}
    left_out = NOT_OF_THE_INPUTS | TABLE_FUNCTIONS | FAILING
    functions = [function for function in functions if function.name not in left_out]
    # Of its own: a function is called the same way whichever others are tried.
    choices = [random.Random(f"{seed} {function.name}") for function in functions]
    guard = calls.Guard(session)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        every = list(pool.map(lambda one, own: _found(Search(session, own), guard, one, own, each), functions, choices))
    for function, own, found in zip(functions, choices, every, strict=True):
        name = function.name
        queries = [Case("functions", name, "documented query", sql, exact=False) for sql in _documented(function)]
        made.cases += queries
        if not found and not queries:
            made.uncalled.append(name)
            continue
        made.functions.add(name)
        made.calls += len(found)
        if name in AGGREGATES or name.startswith("kll_"):  # functions of sketches, which only aggregates make
            aggregate += found
        elif name in WINDOWS:
            windowed += found
        elif name in GENERATORS:
            made.cases += calls.generators(found, own)
        else:
            scalar += found
            for call in own.sample(found, min(each, len(found))) if name in everywhere else ():
                placed_calls = list(calls.places(call, own))
                made.cases += own.sample(placed_calls, min(places_max, len(placed_calls)))
    made.cases += calls.selects(scalar, choice)
    made.cases += calls.aggregates(aggregate, choice)
    made.cases += calls.windowed(windowed, choice)
    return made


def _found(search: Search, guard: calls.Guard, function: Function, choice: random.Random, each: int) -> list[Call]:
    name = function.name
    if name in calls.ONLY:
        texts = [(text, search.type_of(text)) for text in calls.ONLY[name]]
        return [Call(name, text, type) for text, type in texts if type is not None]
    if name in GENERATORS:
        return search.calls(name, each=each)
    if name in WINDOWS:
        return search.calls(name, each=each, suffix=OVER)
    found = search.calls(name, each=each)
    if name in AGGREGATES:
        if name in calls.DEFINITE:
            wrapped = [calls.DEFINITE[name].format(call.text) for call in found]
            found = [Call(name, text, type) for text in wrapped if (type := search.type_of(text)) is not None]
        return [call for call in (calls.storable(call, search) for call in found) if call is not None]
    for expression in registry.expressions(function)[: each + 2]:
        texts = [expression, *choice.sample(over := registry.over_columns(expression), min(each, len(over)))]
        found += [Call(name, text, type) for text in texts if (type := search.type_of(text)) is not None]
    kept = []
    for call in (calls.storable(call, search) for call in dict.fromkeys(found)):
        text = guard.guarded(call.text) if call is not None else None
        if call is not None and text is not None:
            kept.append(Call(name, text, call.type))
    return kept


def _documented(function: Function) -> list[str]:
    """Queries of our own where a call needs one; else those of Spark's documentation.

    None where SQL leaves their answer open, as the order of a list.
    """
    if function.name in calls.QUERIES:
        return [*calls.QUERIES[function.name]]
    if function.name in calls.DEFINITE:
        return []
    return [sql for sql in registry.queries(function) if "rand" not in sql][:2]
