"""Spark: starting it, reading files with it, keeping plans, and its errors.

``spark_session.py`` starts Spark (``jvm.py``, ``class_archive.py``, ``own_process.py``); ``plans/`` keeps plans between
ticks and runs them; ``scans.py`` and ``topic_scan.py`` read files; ``collect.py`` brings results here.
``round_trip.py`` and ``analysis_cache.py`` are Spark's word on a user's query.
Read first: ``spark_session.py``, then ``plans/plan_cache.py``.
"""
