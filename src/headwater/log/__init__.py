"""KEEP: the embedded log. No Spark here.

An event's way: ``topic.py`` checks and routes rows, ``partition.py`` orders and writes them (``segment.py``,
``index.py``), ``reading.py`` and ``follow.py`` hand them out, ``consumers.py`` and ``workers.py`` share them among
processes, ``sealing.py``, ``retention.py`` and ``compaction.py`` care for what is old. ``home.py`` opens it all.
Read next: ``home.py``.
"""
