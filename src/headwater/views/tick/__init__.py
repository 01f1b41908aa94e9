"""Tick: one atomic advance of all views of an app.

``driver.py`` calls ``engine.py``; it reads ranges of the log as deltas (``inputs.py``), pushes them through the views
(``evaluate.py``) stage by stage, and commits one manifest. ``prepare.py`` makes plans with types before the first tick;
``pausing.py`` keeps a view that fails from stopping the others; ``reports.py`` has the times of the last ticks.
Read first: ``engine.py``, then ``evaluate.py``.
"""
