"""The peers of the views: Flink SQL and Pathway, each in a process and a Python environment of its own.

What it is: the inputs they read, the two programs, and what runs them.
Not here: our own side (``bench/views/throughput.py``); bringing them onto the machine (``bench/views/setup.sh``).
Read next: ``views/state/run.py``.
"""
