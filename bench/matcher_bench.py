"""The pattern matcher by itself: rows per second of processor time, without Spark.

What it is: five patterns over random rows in 10 000 partitions, and one over a single long partition; the row columns
are made up, so that only the matcher is measured.
Invariants: processor time of one thread, never wall time; the rows come from a seed.
Not here: patterns in a view, beside Flink (``views_bench.py`` and its neighbours).
Read next: ``docs/patterns.md``.

    python -m bench.matcher_bench [--rows 5000000]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pyarrow as pa

from headwater.patterns import compile_pattern, find_clauses

# name, pattern, definitions, skip, the share of rows at which each condition holds, partitions
CASES = [
    ("A B+ C", "A B+ C", "A AS a, B AS b, C AS c", "PAST LAST ROW", {"a": 0.1, "b": 0.4, "c": 0.1}, 10_000),
    ("A X*? C", "A X*? C", "A AS a, C AS c", "PAST LAST ROW", {"a": 0.1, "c": 0.02}, 10_000),
    ("A X*? C, overlapping", "A X*? C", "A AS a, C AS c", "TO NEXT ROW", {"a": 0.1, "c": 0.02}, 10_000),
    ("A [^B]", "A [^B]", "A AS a, B AS b", "PAST LAST ROW", {"a": 0.9, "b": 0.3}, 10_000),
    ("A X*? C, one partition", "A X*? C", "A AS a, C AS c", "PAST LAST ROW", {"a": 0.1, "c": 0.02}, 1),
    ("A X*? C, C.v > A.v", "A X*? C", "A AS a, C AS c AND C.v > A.v", "PAST LAST ROW", {"a": 0.1, "c": 0.05}, 10_000),
]


def measure(
    name: str, pattern: str, define: str, skip: str, shares: dict[str, float], partitions: int, rows: int
) -> None:
    """One line: the case, seconds of processor time, rows per second, matches."""
    rows = max(rows // (5 if partitions == 1 else 1) // partitions, 1) * partitions
    program = compile_pattern(
        find_clauses(
            f"""t MATCH_RECOGNIZE (PARTITION BY k ORDER BY at MEASURES A.v AS v, count(*) AS n
            AFTER MATCH SKIP {skip} PATTERN ({pattern}) WITHIN INTERVAL 10 MINUTES DEFINE {define})"""
        )[0]
    )
    generator = np.random.default_rng(1)
    columns = {}
    for column in program.row_columns:
        if column.name == program.time_column:
            gaps = generator.integers(0, 60_000_000, (partitions, rows // partitions))
            columns[column.name] = pa.array(np.cumsum(gaps, axis=1).ravel()).cast(pa.timestamp("us"))
        elif column.sql.strip("()") in shares:
            columns[column.name] = pa.array(generator.random(rows) < shares[column.sql.strip("()")])
        else:
            columns[column.name] = pa.array(generator.random(rows))
    table, bounds = pa.table(columns), np.arange(partitions + 1) * (rows // partitions)
    began = time.process_time()
    result = program.match(table, bounds, watermark_us=10**15)
    result.slot_table(table)
    spent = time.process_time() - began
    print(f"{name:28} {spent:6.2f} s  {rows / spent / 1e6:5.1f} M rows/s  {len(result):8,} matches", flush=True)


def main() -> None:
    """Measure every case."""
    parser = argparse.ArgumentParser(description="the pattern matcher without Spark")
    parser.add_argument("--rows", type=int, default=5_000_000)
    rows = parser.parse_args().rows
    for case in CASES:
        measure(*case, rows)


if __name__ == "__main__":
    main()
