"""Sizes: where a tick changes its way of working.

What it is: the numbers that decide whether rows stay on the driver, are joined by one Spark task, or are scanned by
many. Read as ``sizes.TASK_ROWS_MAX``, so that a test can make everything large.
Invariants: what a view holds does not depend on them, only what a tick costs.
Not here: the ways themselves (``views/stages/relation.py``, ``views/stages/stage_run.py``).
Read next: ``bench/views_bench.py``, which measures them.
"""

from __future__ import annotations

# A relation of so few rows is read whole, and never looked up.
LOCAL_ROWS_MAX = 20_000
# So many rows are joined by one task in less time than by several, which must exchange them and write files.
TASK_ROWS_MAX = 500_000
# Beyond so many keys, or a good part of the trace, Spark's scan is quicker than looking up on the driver.
LOOKUP_KEYS_MAX = 200_000
# Of a table whose state is at most so many times as large as the changed keys, all is read instead.
LOOKUP_PART = 0.25
# What comes back to the driver from a large query, when it turns out to be little.
SETTLED_ROWS_MAX = 200_000
# Before a stage is computed anew, the rows of an input are added up on the driver when there are no more than these.
CONSOLIDATED_ROWS_MAX = 2_000_000
# A stage whose inputs changed by more than this part is computed anew.
RECOMPUTE_PART = 0.1
# Changes that were not merged yet, below which they are cheap to read and wait until they are eight runs.
TAIL_ROWS_MIN = 100_000
# ``explode`` makes an array of its whole length: a weight is repeated in chunks of so many rows, and so many chunks.
EXPLODED_ROWS_MAX = 4096
# Hashes of rows that leave a large relation, sent to every task: 8 bytes each, some 40 MB in a hash table.
BROADCAST_HASHES_MAX = 1_000_000
# Rows that a large join holds in memory, once for each task that joins, instead of sorting both of its sides.
BROADCAST_BYTES_MAX = 64 << 20
