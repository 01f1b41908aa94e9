"""Source: ``spark.read.format("headwater")`` and ``spark.readStream.format("headwater")``.

``data_source.py`` is the data source, ``source_options.py`` its options, ``offset_ranges.py`` what a trigger takes and
which task reads what, ``log_handles.py`` the logs that a Python worker has open.
Read first: ``data_source.py``.
"""
