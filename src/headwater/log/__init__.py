"""KEEP: the embedded log. No Spark here.

An event's way: ``topic.py`` checks and routes rows, ``log/storage/partition_writer.py`` orders and writes them
(``log/storage/active_segment.py``, ``log/storage/frame_index.py``), ``log/storage/partition_reader.py`` and
``log/topic_reader.py`` hand them out, ``log/groups/consumer.py`` and ``log/groups/worker.py`` share them among
processes, ``log/maintenance/sealing.py``, ``log/maintenance/retention.py`` and ``log/maintenance/compaction.py`` care
for what is old. ``home.py`` opens it all.
Read next: ``home.py``.
"""
