"""State: weighted rows, in memory and in files, and the manifest that says which files count.

``delta.py`` is one tick's changes; ``consolidate.py``, ``multisets.py``, ``row_equality.py`` and ``row_hash.py`` are
its operations. ``trace.py`` is a relation's content as runs (``run.py``, ``merge.py``), ``log_trace.py`` the same over
the log itself, ``arrangements.py`` its index by key. ``state_store.py`` has all traces of an app, ``manifest.py`` the
commit, ``omissions.py`` the records that were set aside. Imports neither ``stages``, ``tick`` nor ``serving``.
Read first: ``delta.py``, ``trace.py``, ``manifest.py``.
"""
