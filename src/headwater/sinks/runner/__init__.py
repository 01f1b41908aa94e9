"""Runner: sink tasks, each in a thread of its own, that follow the committed ticks.

``declared_sinks.py`` holds the sinks of an app, ``sink_runner.py`` runs them, ``sink_task.py`` is one of them;
``sink_status.py`` stores the status of each, and ``captured_table_reader.py`` feeds a sink from a captured table
without a view.
Read first: ``sink_task.py``.
"""
