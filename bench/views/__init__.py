"""The benchmark of views, line by line: latency, growth, gain, throughput, catch-up.

What it is: one module for each line, the data they share, and the peers.
Not here: the command (``bench/views_bench.py``).
Read next: ``shop.py``, then ``latency.py``.
"""
