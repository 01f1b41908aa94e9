"""The benchmark of windows by event time: one-minute sums by country, with rows that come late.

What it is: the events and their answer, our side, Spark's own Structured Streaming, and the other peers.
Not here: the command (``bench/time_bench.py``).
Read next: ``server/realtime/status_events.py``, then ``own.py``.
"""
