"""Commands to aggregates, in processes that can be lost.

``command_workers.py`` is the server's side, ``command_worker.py`` the process that runs the app's command methods,
``command_counts.py`` what was sent and how long it took. They need the log alone: no engine, no Spark.
Read first: ``command_workers.py``.
"""
