"""KEEP: the embedded log. No Spark here.

An event's way: ``topic_appender.py`` checks and routes rows, ``log/storage/partition_writer.py`` orders and writes
them, ``log/storage/partition_reader.py`` and ``topic_reader.py`` read them, ``log/groups`` shares them among processes,
``log/maintenance`` seals, compacts and drops old ones. ``home.py`` opens it all.
Read next: ``home.py``, ``topic.py``.
"""
