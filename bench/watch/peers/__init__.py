"""The peer of patterns: Flink SQL's MATCH_RECOGNIZE, in a process and a Python environment of its own.

What it is: the program, and what runs it.
Not here: bringing Flink onto the machine (``bench/views/setup.sh``).
Read next: ``flink_matches.py``.
"""
