"""Event time: the progress of each producer and topic, by the time in the rows.

``producer_progress.py`` computes the largest time of each producer, ``heartbeats.py`` stores its promises, and
``watermarks.py`` derives the time before which no more rows are expected. ``capture_markers.py`` bounds captured tables
to whole transactions.
Read first: ``watermarks.py``.
"""
