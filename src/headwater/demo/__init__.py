"""The demo: a small shop at work, for a minute, with its dashboard; then an account of everything.

What it is: ``demo/demo_command.py`` is the command. ``demo/scenario.py`` tells what happens when; ``demo/simulator.py``
is the shop and its visitors, ``demo/serving_process.py`` what runs the app of ``examples/shop_live.py``;
``demo/audit.py`` holds all of it to account.
Invariants: real processes, a real PostgreSQL, real kills. It finishes by itself, says what was not kept, and leaves
nothing behind (processes, files), unless a home was named.
Not here: the app itself (``examples/shop_live.py``).
Read next: ``demo/scenario.py``, ``docs/demo.md``.
"""
