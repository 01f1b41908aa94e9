"""Function trial: from Spark's registry to cases, for as many functions as there is time for.

What it is: ``function_cases`` puts calls that the search found and calls of Spark's documentation into queries.
Invariants: functions that are no functions of the inputs are left out: ``test_functions.py`` sees them refused.
Not here: running the cases (``trial.py``).
Read next: ``calls.py``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from headwater.views.compiler.sql.builtin_functions import AGGREGATES, GENERATORS, REASONS, TABLE_FUNCTIONS, WINDOWS
from tests.spark.trouble import calls, registry
from tests.spark.trouble.arguments import Call, Search
from tests.spark.trouble.registry import Function
from tests.spark.trouble.trial import Case

NOT_OF_THE_INPUTS = frozenset(name for names, *_ in REASONS for name in names)
OVER = " OVER (PARTITION BY §k ORDER BY §id, §r)"
FAILING = {"raise_error", "assert_true"}  # they are there to raise


@dataclass
class Made:
    """Cases, and what they cover."""

    cases: list[Case] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)
    calls: int = 0
    uncalled: list[str] = field(default_factory=list)


def function_cases(
    search: Search, guard: calls.Guard, functions: Sequence[Function], choice: random.Random, *, each: int, placed: int
) -> Made:
    """``each`` calls for every number of arguments; of ``placed`` functions as many go to every other place too."""
    made, scalar = Made(), []
    aggregate, windowed = [], []
    everywhere = {function.name for function in choice.sample(functions, min(placed, len(functions)))}
    for function in functions:
        name = function.name
        if name in NOT_OF_THE_INPUTS or name in TABLE_FUNCTIONS or name in FAILING:
            continue
        found = _found(search, guard, function, choice, each)
        queries = [Case("functions", name, "documented query", sql, exact=False) for sql in _documented(function)]
        made.cases += queries
        if not found and not queries:
            made.uncalled.append(name)
            continue
        made.functions.add(name)
        made.calls += len(found)
        if name in AGGREGATES:
            aggregate += found
        elif name in WINDOWS:
            windowed += found
        elif name in GENERATORS:
            made.cases += calls.generators(found, choice)
        else:
            scalar += found
            for call in choice.sample(found, min(each, len(found))) if name in everywhere else ():
                made.cases += calls.places(call, choice)
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
    return [sql for sql in registry.queries(function) if "kll" not in sql and "rand" not in sql][:2]
