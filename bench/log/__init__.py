"""BENCH: what the log does per second, beside its peers, in one run.

Invariants: every system gets the same rows (``bench/log/order_rows.py``), every answer is checked (count and checksum),
and systems take turns within a round, so that a noisy machine is noisy for all.
Not here: getting the peers onto a machine (``bench/setup.sh`` in a checkout does that).
Read next: ``bench/log_bench.py``, the driver.
"""
