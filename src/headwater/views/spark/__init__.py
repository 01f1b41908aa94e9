"""Spark: starting it, reading files with it, keeping plans, and its errors.

``spark_session.py`` starts Spark (``jvm.py``, ``class_archive.py``, ``own_process.py``); ``plan_cache.py`` keeps plans
between ticks (``plan_inputs.py``, ``single_partition.py``); ``scans.py`` and ``topic_scan.py`` read files;
``collect.py`` brings results here. ``round_trip.py`` and ``analysis_cache.py`` are Spark's word on a user's query.
Read first: ``spark_session.py``, then ``plan_cache.py``.
"""
