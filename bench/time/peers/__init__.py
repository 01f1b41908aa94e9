"""The peers of windows by event time: Flink SQL and Pathway, each in a process and a Python environment of its own.

What it is: the two programs, and what runs them.
Not here: Structured Streaming (``bench/time/streaming.py``); bringing them onto the machine (``bench/views/setup.sh``).
Read next: ``views/state/run.py``.
"""
