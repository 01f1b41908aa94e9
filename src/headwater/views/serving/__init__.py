"""Serving: what readers see of the views, from any process and mostly without Spark.

``serving_store.py`` keeps every view's rows in SQLite (``serving_tables.py``, ``serving_columns.py``,
``serving_queries.py``); ``publish.py`` fills it after each commit; ``change_feed.py`` and ``view_reader.py`` read
committed changes; ``snapshot.py`` answers Spark queries; ``sql_authorizer.py`` and ``query_admission.py`` limit
what a stranger's query may name.
Read first: ``publish.py``, then ``serving_store.py``.
"""
