"""The demo: a small shop at work, for a minute, with its dashboard; then an account of everything.

What it is: ``verb.py`` is the command. ``plot.py`` tells what happens when; ``simulator.py`` is the shop and its
visitors, ``engine.py`` what runs the app of ``examples/shop_live.py``; ``audit.py`` holds all of it to account.
Invariants: real processes, a real PostgreSQL, real kills. It finishes by itself, says what was not kept, and leaves
nothing behind (processes, files), unless a home was named.
Not here: the app itself (``examples/shop_live.py``).
Read next: ``plot.py``, ``docs/demo.md``.
"""
