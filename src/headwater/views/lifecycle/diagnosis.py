"""Diagnosis: which records a view cannot be computed over.

What it is: ``Diagnosis`` runs a view's query in Spark over parts of the records of the tick that failed, and halves
them until the smallest set is left that fails: one record, or a few that fail together (two sides of a join).
Invariants: nothing is changed, and no app is taken over. What is found does fail; each record of it is needed for that.
The query's text is the one that ``verify`` runs.
Not here: setting records aside (``set_aside.py``).
Read next: ``verification.py``, ``docs/failures.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.errors import Misuse, ViewFailed
from headwater.views.lifecycle.set_aside import RecordPlace, record_at
from headwater.views.lifecycle.verification import computed, unmarked
from headwater.views.serving.snapshot import RelationSnapshot, stored
from headwater.views.spark.spark_errors import in_view
from headwater.views.spark.topic_scan import quoted
from headwater.views.state.manifest import Frontier
from headwater.views.state.omissions import frame_without, without
from headwater.views.tick.inputs import InputRelation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.views.tick.prepare import Prepared

NUMBER = "_number"
CANDIDATES_MAX = 5_000_000


@dataclass(frozen=True)
class Culprit:
    """Records that fail together, and how. Leaving out one of them is enough."""

    records: tuple[tuple[RecordPlace, dict[str, Any]], ...]
    error: ViewFailed

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "records": [{**vars(place), "record": str(place), "row": row} for place, row in self.records],
            "error": self.error.to_dict(),
        }


@dataclass(frozen=True)
class Findings:
    """What a diagnosis found."""

    view: str
    tried: int  # records
    runs: int  # of the query
    culprits: tuple[Culprit, ...]
    others_fail: bool  # there are more than were asked for

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return {**vars(self), "culprits": [each.to_dict() for each in self.culprits]}


def smallest(rows: Sequence[int], fails: Callable[[Sequence[int]], bool], beside: Sequence[int] = ()) -> list[int]:
    """A smallest part of ``rows``, which fail, that still fails together with ``beside``.

    Delta debugging: the half that fails by itself; where neither does, what each needs beside the other.

    >>> smallest(range(1000), lambda some: 617 in some)
    [617]
    >>> smallest(range(1000), lambda some: {3, 900} <= set(some))
    [3, 900]
    """
    if len(rows) == 1:
        return list(rows)
    first, second = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    if fails([*first, *beside]):
        return smallest(first, fails, beside)
    if fails([*second, *beside]):
        return smallest(second, fails, beside)
    return smallest(first, fails, [*beside, *second]) + smallest(second, fails, [*beside, *first])


class Diagnosis:
    """One view over parts of the records from ``begin`` up to ``stop``."""

    def __init__(
        self, view: str, prepared: Prepared, contents: RelationSnapshot, begin: Frontier, stop: Frontier, scratch: Path
    ) -> None:
        self.view = view
        self.contents = contents
        self.scratch = scratch
        self.needed = _needed(view, prepared)
        self.views = {name: each for name, each in prepared.views.items() if name in self.needed}
        self.inputs = {name: contents.inputs[name] for name in sorted(self.needed) if name in prepared.inputs}
        topics = {base.topic.name: base.topic for base in self.inputs.values()}
        starts = {name: topic.start_offsets() for name, topic in topics.items()}
        self.begin = {
            name: {n: max(o, begin.get(name, {}).get(n, 0)) for n, o in of.items()} for name, of in starts.items()
        }
        self.stop = {
            name: {n: max(o, stop.get(name, {}).get(n, 0)) for n, o in of.items()} for name, of in self.begin.items()
        }
        self.starts = starts
        self.runs = 0
        self.error: ViewFailed | None = None
        self.places: list[RecordPlace] = []
        self._files: dict[str, Path] = {}
        self._write_candidates()

    # The records in question

    def _write_candidates(self) -> None:
        """Each record gets a number, so that a part of them is a condition."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        first: dict[tuple[str, int], dict[int, int]] = {}
        for name, base in self.inputs.items():
            columns = stored(base)
            tables = []
            for partition, end in self.stop[base.topic.name].items():
                start = self.begin[base.topic.name][partition]
                if start >= end:
                    continue
                numbers = first.setdefault((base.topic.name, partition), {})
                for batch in base.topic.read_partition(partition, start, stop=end, columns=columns):
                    data = without(batch, base.omitted)
                    offsets = [o for o in batch.offsets.tolist() if o not in base.omitted.get(partition, ())]
                    for offset in offsets:  # a table that is read as it is and as it was has each record once
                        if offset not in numbers:
                            numbers[offset] = len(self.places)
                            self.places.append(RecordPlace(base.topic.name, partition, offset))
                    mine = pa.array(np.array([numbers[offset] for offset in offsets], np.int64))
                    tables.append(pa.Table.from_batches([data]).append_column(NUMBER, mine))
                if len(self.places) > CANDIDATES_MAX:
                    raise Misuse(
                        f"the tick that failed has more than {CANDIDATES_MAX:,} records",
                        hint="Fill the view in smaller ticks: app.tick(rows_max=…).",
                    )
            if tables:
                self._files[name] = self.scratch / f"{name.replace('$', '.')}.parquet"
                pq.write_table(pa.concat_tables(tables, promote_options="permissive"), self._files[name])

    # Running the query

    def fails(self, numbers: Sequence[int], *, before: bool) -> bool:
        """Whether the query fails over these records; with ``before``, over all that came before them as well."""
        self.runs += 1
        wanted = _condition(sorted(numbers))
        answers: dict[str, Any] = {name: self._input(name, base, wanted, before) for name, base in self.inputs.items()}
        declared = self.views[self.view].declared
        try:
            with in_view(declared):
                for name, view in self.views.items():
                    answers[name] = unmarked(computed(view, self.contents, answers))
                    if name != self.view and view.plan.inner:
                        answers[name] = answers[name].select(*map(quoted, view.schema.names))
                answers[self.view].write.format("noop").mode("overwrite").save()
        except ViewFailed as error:
            self.error = error
            return True
        return False

    def _input(self, name: str, base: InputRelation, wanted: str, before: bool) -> DataFrame:
        contents, columns, topic = self.contents, stored(base), base.topic.name
        stop = self.begin[topic] if before else self.starts[topic]
        every = frame_without(contents.spark, base.topic, self.starts[topic], stop, columns, base.omitted)
        if name in self._files:
            some = contents.spark.read.schema(every.selectExpr("*", f"0L AS {NUMBER}").schema)
            every = every.union(some.parquet(str(self._files[name])).where(wanted).select(*map(quoted, columns)))
        return contents.understood(base, every)

    # Finding

    def run(self, limit: int) -> Findings:
        """The first so many sets of records that fail."""
        left = list(range(len(self.places)))
        before = not self.fails(left, before=False)  # rows that fail by themselves are found quicker
        found: list[Culprit] = []
        while left and len(found) < limit and self.fails(left, before=before):
            numbers = smallest(left, lambda some: self.fails(some, before=before))
            self.fails(numbers, before=before)
            assert self.error is not None
            records = tuple((self.places[n], self._row(self.places[n])) for n in sorted(numbers))
            found.append(Culprit(records, self.error))
            left = [number for number in left if number != max(numbers)]
        others = len(found) == limit and bool(left) and self.fails(left, before=before)
        return Findings(self.view, len(self.places), self.runs, tuple(found), others)

    def _row(self, place: RecordPlace) -> dict[str, Any]:
        return record_at(self.contents.log.get_topic(place.topic), place.partition, place.offset)


def _needed(view: str, prepared: Prepared) -> set[str]:
    """What a view reads, itself or through others, and itself."""
    found = {view}
    for name in reversed(list(prepared.views)):
        if name in found:
            found |= set(prepared.views[name].plan.reads)
    return found


def _condition(numbers: Sequence[int]) -> str:
    """Some numbers, in order, as a condition; neighbours as one range.

    >>> _condition([1, 2, 3, 7])
    '_number BETWEEN 1 AND 3 OR _number BETWEEN 7 AND 7'
    """
    if not numbers:
        return "false"
    ends = [place for place in range(1, len(numbers)) if numbers[place] != numbers[place - 1] + 1]
    parts = [numbers[start:stop] for start, stop in zip([0, *ends], [*ends, len(numbers)], strict=True)]
    return " OR ".join(f"{NUMBER} BETWEEN {part[0]} AND {part[-1]}" for part in parts)
