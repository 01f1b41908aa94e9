"""Storage: the files of a partition, written by one process at a time and read by any.

A batch is framed (``framing.py``), appended to the active segment (``partition_writer.py``, ``active_segment.py``) and
indexed (``frame_index.py``); ``partition_tail.py`` follows what other processes wrote. Readers go through
``partition_layout.py`` and ``partition_reader.py``. Every change to a file goes through ``files.py``; ``recovery.py``
repairs the tail after a crash; ``wake.py`` wakes waiting readers.
Read first: ``partition_writer.py``, then ``active_segment.py`` and ``partition_reader.py``.
"""
