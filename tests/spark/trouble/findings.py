"""Findings: what the trials found, counted, printed and written down.

What it is: ``Findings`` collects outcomes, tells which are not accepted, prints the table at the end of a run and
writes ``build/trouble/FAMILY.json``.
Invariants: a refusal is accepted only when a pattern of ``ACCEPTED`` names it, with the reason; a difference or a
failure never is.
Not here: making the outcomes (``trial.py``).
Read next: ``docs/guarantees.md``.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from tests.spark.trouble.trial import Case, Outcome

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
WHOLE = os.environ.get("HEADWATER_TROUBLE") == "whole" or THOROUGH >= 10
# One sample until somebody asks for another: a run must not fail for what it did not change.
SEED = int(os.environ.get("HEADWATER_SEED") or 739936)
# "2/8": the second of eight parts of a whole run, which together are the whole run.
PART, PARTS = (int(number) for number in os.environ.get("HEADWATER_TROUBLE_PART", "1/1").split("/"))
# Of each function, in a whole run: calls for every number of arguments, and calls that go to every place.
EACH = int(os.environ.get("HEADWATER_TROUBLE_EACH", "2"))
PLACES_MAX = int(os.environ.get("HEADWATER_TROUBLE_PLACES", "99"))  # of one call, beside SELECT, by chance
WRITTEN_EVERY = 100
WRITTEN = Path(__file__).parents[3] / "build" / "trouble"

Thing = TypeVar("Thing")
RAISES, ONCE_WRONG = "spark raises", "once wrong"
NO_COLUMNS = r"INTERVAL|VOID|VARIANT|TIME\(|COLLATE|GEO|STRUCT<>"
# What is refused though Spark answers, and why that is right. Keep it small.
ACCEPTED: dict[str, str] = {
    rf"has type .*({NO_COLUMNS}).*, which a view cannot hold|cannot use the type": "no topic can store the type either",
    r"without an initialisation vector": "the vector is chance",
    r"LIMIT without ORDER BY|OFFSET without ORDER BY": "any rows would do",
    r"two columns (are )?named|has two columns": "a view is a table",
}


def sampled(cases: Sequence[Case], count: int) -> list[Case]:
    """All cases in a whole run, else those that were once wrong and as many others as there is time for."""
    always = [case for case in cases if case.place == ONCE_WRONG]
    others = [case for case in cases if case.place != ONCE_WRONG]
    if WHOLE:
        return of_this_part([*always, *others])
    return [*always, *random.Random(SEED).sample(others, min(len(others), count * THOROUGH))]


def of_this_part(things: Sequence[Thing]) -> list[Thing]:
    """Those that this part of a whole run is about; all of them when there is one part."""
    return list(things[PART - 1 :: PARTS])


class Findings:
    """Outcomes of one run."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.tried: Counter[str] = Counter()

    def add(self, outcomes: Iterable[Outcome], *, answered: bool = True) -> list[Outcome]:
        """Take outcomes in; returns those that are not accepted. ``answered``: Spark must have an answer to each."""
        wrong = []
        for number, each in enumerate(outcomes, start=1):
            self.outcomes.append(each)
            if not accepted(each) and (answered or each.verdict != RAISES):
                wrong.append(each)
            if number % WRITTEN_EVERY == 0:  # a run of an hour that is stopped has not run for nothing
                self.write()
        return wrong

    def table(self, only: str | None = None) -> list[str]:
        """The figures, as lines; of one family, or of all."""
        lines = [f"{name:32} {count:6}" for name, count in self.tried.items()]
        for family in [only] if only else sorted({outcome.case.family for outcome in self.outcomes}):
            mine = [outcome for outcome in self.outcomes if outcome.case.family == family]
            verdicts = Counter(outcome.verdict for outcome in mine)
            subjects = len({outcome.case.subject for outcome in mine if outcome.verdict == "same"})
            counts = ", ".join(f"{verdict} {verdicts[verdict]}" for verdict in sorted(verdicts))
            lines.append(f"{family:12} {len(mine):6} views, {subjects} subjects: {counts}")
        told = [outcome for outcome in self.outcomes if only in (None, outcome.case.family)]
        refused = Counter(reason(outcome) for outcome in told if outcome.verdict == "refused")
        lines += [f"  refused {count:5}  {why}" for why, count in refused.most_common()]
        return lines

    def write(self) -> None:
        """Write what is not the same, a file for each family: two processes may share the tests, by file."""
        WRITTEN.mkdir(parents=True, exist_ok=True)
        for family in {outcome.case.family for outcome in self.outcomes}:
            mine = [outcome for outcome in self.outcomes if outcome.case.family == family]
            found = [
                {
                    "verdict": outcome.verdict,
                    "subject": outcome.case.subject,
                    "place": outcome.case.place,
                    "sql": outcome.case.sql,
                    "detail": outcome.detail,
                }
                for outcome in mine
                if outcome.verdict != "same"
            ]
            about = {"seed": SEED, "whole": WHOLE, "views": len(mine), "figures": self.table(family), "found": found}
            name = family if PARTS == 1 else f"{family}-{PART}-of-{PARTS}"
            (WRITTEN / f"{name}.json").write_text(json.dumps(about, indent=1, ensure_ascii=False))


def report(wrong: Sequence[Outcome]) -> str:
    """What an assertion shows: every query that is not right, and how."""
    lines = [f"{each.verdict} | {each.case.place} | {each.case.sql} | {each.detail}" for each in wrong]
    return "\n".join([f"{len(wrong)} views are not right (HEADWATER_SEED={SEED})", *lines])


def accepted(outcome: Outcome) -> bool:
    """Whether an outcome is as it should be."""
    if outcome.verdict == "refused":
        return any(re.search(pattern, outcome.detail) for pattern in ACCEPTED)
    return outcome.verdict == "same"


def reason(outcome: Outcome) -> str:
    """A refusal without what differs from query to query."""
    text = re.sub(r"\(line \d+.*", "", outcome.detail)
    text = re.sub(r'"[^"]*"|\'[^\']*\'|`[^`]*`', "…", text)
    return re.sub(r"\s+", " ", text)[:110].strip()
