"""Event time: how far each producer and topic is, by the time in the rows.

``producer_progress.py`` keeps the largest time of each producer, ``heartbeats.py`` its promises, and ``watermarks.py``
derives the time before which nothing more is expected. ``capture_markers.py`` says up to where a captured table is
whole.
Read first: ``watermarks.py``.
"""
