"""State: weighted rows, in memory and in files, and the manifest that says which files count.

``algebra.py`` has the operations on weighted rows, on Arrow tables and Spark frames alike (``multisets.py`` for large
parts; ``row_equality.py``, ``row_hash.py``, ``sql_equality.py`` for equality). ``delta.py`` is one tick's changes.
``state_trace.py`` is the protocol of a relation's state: ``trace.py`` keeps it as runs (``run.py``, ``merge.py``),
``log_trace.py`` reads it from the log; ``arrangements.py`` is its index by key. ``state_store.py`` has all traces of an
app, ``manifest.py`` the commit (``manifest_entries.py`` stores what it changes), ``omissions.py`` the records that were
set aside. Imports neither ``stages``, ``tick`` nor ``serving``.
Read first: ``algebra.py``, ``delta.py``, ``trace.py``, ``manifest.py``.
"""
