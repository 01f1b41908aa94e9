"""The parts of the server's benchmark: a bounded client, and what is measured with it.

Read next: ``bench/server_bench.py``; then ``client.py``.
"""
