"""Bucket runs: the buckets of time whose sessions a tick can have changed.

What it is: ``bucket_runs``, which widens the buckets of the changed rows to whole runs: buckets side by side that have
rows, before the tick or after it, up to the next one that has none on either side.
Invariants: rows are looked up by their buckets, twice as many in each round, so a run of n buckets takes some log n
lookups of at most about 2 n buckets. A bucket that seems to have rows and has none only makes a run longer.
Not here: what a bucket is (``views/compiler/operators/session_buckets.py``).
Read next: ``stage_run.py``.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from headwater.views.stages.relation import TickRelation


def bucket_runs(source: TickRelation, bucket: str, changed: Iterable[int]) -> list[int] | None:
    """The buckets of the runs that these buckets, which have changed rows, are in; None when they must be scanned."""
    found = set(changed)
    filled, asked = set(found), set(found)  # buckets that have rows; buckets of which that is known
    edges = {(at + way, way) for at in found for way in (-1, 1)}  # where runs may go on, and which way
    step = 1
    while edges:
        unknown = {at + way * n for at, way in edges for n in range(step)} - asked
        there = _with_rows(source, bucket, sorted(unknown))
        if there is None:
            return None
        filled |= there
        asked |= unknown
        further = set()
        for at, way in edges:
            while at in filled and at not in found:  # beyond a bucket that was found another edge goes on
                found.add(at)
                at += way
            if at not in asked:  # else the run ends there: what lies behind the hole is of another
                further.add((at, way))
        edges, step = further, 2 * step
    return sorted(found)


def _with_rows(source: TickRelation, bucket: str, asked: list[int]) -> set[int] | None:
    """Those of some buckets that had rows before the tick; None when they are too many to be looked up."""
    if not asked or source.trace is None:
        return set()
    keys = pa.table({bucket: pa.array(asked, pa.int64())})
    rows = source.before([bucket], [bucket], keys).local
    if rows is None:
        return None
    return set(rows.column(bucket).unique().to_pylist()) & set(asked)
