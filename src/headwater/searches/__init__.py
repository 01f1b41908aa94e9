"""Stored searches: queries that wait for documents.

What lives here: the query language, text analysis, the index of the queries, matching of documents in batches, and
``Searches``, what an app's user holds. No Spark: the stage that matches each tick's changes is
``views/stages/search_run.py``. Read ``docs/searches.md``, then ``query_index.py``.
"""
