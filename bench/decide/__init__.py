"""Benchmarks of deciding: events, commands, and the events behind a row. See ``decide_bench.py``, ``why_bench.py``."""
