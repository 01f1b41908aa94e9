"""The demo: a small shop that runs for a minute with its dashboard, and a summary with every check.

What it is: ``demo/demo_command.py`` is the command, ``demo/scenario.py`` the sequence of events, ``demo/simulator.py``
the shop's load, ``demo/serving_process.py`` the server of ``examples/shop_live.py``, ``demo/audit.py`` the checks.
Invariants: real processes, a real PostgreSQL, real kills. It ends by itself, reports every failed check, and leaves no
process and no file behind, unless a home was named.
Not here: the app (``examples/shop_live.py``).
Read next: ``demo/scenario.py``, ``docs/demo.md``.
"""
