"""Queries: SQL of clients, run in processes that can be lost.

``store_queries.py`` sends queries over the serving store to ``store_worker.py`` processes; ``spark_queries.py`` sends
Spark queries to ``query_engine.py``, a process with a Java of its own.
Read first: ``store_queries.py``.
"""
