"""Thresholds: the sizes at which a tick changes its way of working.

What it is: the numbers that decide whether rows stay on the driver (Arrow), go to one Spark task, or are scanned by
many tasks; and whether state is looked up, read whole or computed again. Read as ``thresholds.TASK_ROWS_MAX``, so that
a test can make everything large.
Invariants: no threshold changes the content of a view, only the cost of a tick.
Not here: the ways themselves (``views/stages/relation.py``, ``views/stages/stage_run.py``); the merge policy
(``views/state/merge.py``); limits of what readers may ask (``views/serving``).
Read next: ``bench/views_bench.py``, which measures them.
"""

from __future__ import annotations

# Driver or Spark

# A relation of so few rows is read whole on the driver: that is quicker than a lookup. A larger table goes to Spark as
# a file: inside the plan, a hundred thousand rows cost 0.3 s more.
LOCAL_ROWS_MAX = 20_000
# One task joins so many rows in less time than several, which must exchange them and write files.
TASK_ROWS_MAX = 500_000
# A large query's result of at most so many rows comes to the driver, where the next steps are cheaper.
SETTLED_ROWS_MAX = 200_000
# Leaves of a large join up to this size together are broadcast (held once by each task) instead of sorted.
BROADCAST_BYTES_MAX = 64 << 20
# Generated code takes some 3 µs a row, but compiling takes some 0.1 s a table: a plan of many tables and few rows for
# each runs interpreted.
COMPILED_TABLES_MAX = 6
COMPILED_TABLE_ROWS_MIN = 50_000

# Leaves up to this size are joined by hash, which is quicker and takes some five times as much memory; larger ones by
# sorting. That is another plan, whose code Java has not compiled yet: at 4 MB the first tick that was too large for the
# plan of the small ones took Java 3.6 s of processor time instead of 0.4.
FEW_BYTES_MAX = 16 << 20
# A cross join of more pairs than this is a job, which can be given up; the driver lane looks up between batches only.
LANE_PAIRS_MAX = 10_000_000
# Joins over so many rows make their hash tables of leaves that have at most a fourth of the rows of the largest one.
BUILT_ROWS_MIN = 50_000
BUILT_FACTOR = 4
# From so many rows on the driver lane computes groups in slices, a thread for each core. (Each takes a plan more.)
SLICED_ROWS_MIN = 50_000
# The lane takes no more rows than these, nor more of them than so many bytes: Spark's job reads others from files.
LANE_ROWS_MAX = 4_000_000
LANE_BYTES_MAX = 128 << 20
# A leaf travels inside the task when its plan runs as a job: a larger one goes by a file.
TASK_BYTES_MAX = 64 << 20

# Lookup, whole read or recomputation

# Beyond so many keys Spark's scan is quicker than a lookup on the driver.
LOOKUP_KEYS_MAX = 200_000
# A lookup of more keys than this part of the state's rows touches nearly every block: the whole state is read instead;
# that of an input, when its changes are too many for one task as well.
LOOKUP_PART = 0.25
# More keys than this are never looked up, however many rows there are: on the driver the rows found would take some 200
# bytes each of memory. One pass over the state writes them to files instead.
LOOKUP_KEYS_MOST = 2_500_000
# A stage whose inputs changed by more than this part is computed from their whole content.
RECOMPUTE_PART = 0.1
# Before such a recomputation the driver consolidates an input of at most so many rows, so that a row that came and
# went and came again is not joined three times.
CONSOLIDATED_ROWS_MAX = 2_000_000

# One tick's input

# The rows of a keyed or weighted topic pass through the driver: one tick takes at most so many of them.
TICK_BYTES_MAX = 512 << 20
TICK_ROWS_MAX = 10_000_000
# Consolidating compares every column of every row; beyond so many rows it costs more than the rows it saves.
INPUT_CONSOLIDATED_ROWS_MAX = 200_000

# State

# A run of so many bytes in memory, and as stored, has no file: its rows are in the catalog, written with the manifest.
SMALL_RUN_BYTES_MAX = 256 << 10
SMALL_RUN_STORED_BYTES_MAX = 32 << 10
# So few bytes are not compressed, since they would get larger, and are encoded by the thread that has them.
TINY_RUN_BYTES_MAX = 4 << 10
# Runs that are not merged yet are cheap to read below so many rows, and wait until they are eight.
TAIL_ROWS_MIN = 100_000
# A merge up to this size runs on the driver: a million rows in 0.6 s on one core, where Spark takes some 3 s on two.
# The bytes are those of Parquet files; in memory the rows take some ten times as much. (With a key they are merged in
# one pass, and are never in memory together.)
DRIVER_MERGE_ROWS_MAX = 30_000_000
DRIVER_MERGE_BYTES_MAX = 256 << 20
# A consolidated content is kept in memory until so many ticks passed without a reader, or one brought so many rows.
REMEMBERED_TICKS_MAX = 16
REMEMBERED_ROWS_MAX = 20_000
# A sorted piece of so many rows is a mapped file; a smaller one stays in memory, where sorting it again is cheap.
ARRANGEMENT_FILE_ROWS_MIN = 50_000
# The hashes of rows that leave a large relation are broadcast up to this number: some 40 MB in a hash table.
BROADCAST_HASHES_MAX = 1_000_000

# The index of stored searches is written when so many of them changed, and 3 % of them, since it was written last:
# reading them again takes a start 0.1 s for each thousand.
KEPT_SEARCHES_MIN = 1_000
KEPT_SEARCHES_PART = 0.03

# Operations on weighted rows

# So few rows are consolidated by a dictionary: a query of Arrow takes 0.3 ms, however few they are.
FEW_ROWS_MAX = 128

# ``explode`` makes an array of its whole length: a weight is repeated in chunks of so many rows, and so many chunks.
EXPLODED_ROWS_MAX = 4096
# Whole numbers that lie close together are compared by a table of so many places for each number, without hashing.
DENSE_PART = 4
