"""Queries: SQL and searches of clients, run in processes that can be lost.

``query_workers.py`` keeps processes that answer one question at a time (``question_loop.py``): ``store_worker.py`` over
the serving store, ``search_worker.py`` over a search index. ``spark_queries.py`` sends Spark queries to
``query_engine.py``, a process with a Java of its own.
Read first: ``query_workers.py``.
"""
