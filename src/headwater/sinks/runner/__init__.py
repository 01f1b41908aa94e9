"""Runner: sinks led along the committed ticks, each in a thread of its own.

``declared_sinks.py`` is what an app declared, ``sink_runner.py`` runs all its sinks, ``sink_task.py`` one of them;
``sink_status.py`` how each sink is, and ``captured_table_reader.py`` lets
a sink follow a captured table without a view.
Read first: ``sink_task.py``.
"""
