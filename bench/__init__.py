"""The benchmarks: of the log, of topics read by Spark, of views, and of windows by event time.

What it is: a command for each (``log_bench.py``, ``source_bench.py``, ``views_bench.py``, ``time_bench.py``).
It is a package of its own, so that ``bench/time`` is never taken for Python's ``time``.
Invariants: nothing here is in the wheel; each command prints a table and writes ``bench/out/NAME.json``.
Read next: ``parts.py``, ``log_bench.py``.
"""
