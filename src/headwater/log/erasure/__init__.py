"""Erasure in the log: a person's values are removed from segments, side topics and the archive; offsets stay.

Read first: ``erasure_records.py``, what is kept of an erasure; then ``personal_rows.py``, what becomes of a row, and
``log_erasure.py``, which goes over all topics. What views and sinks hold: ``views/lifecycle/erasure_rebuild.py``;
the whole of it: ``upkeep/erasure/``.
"""
