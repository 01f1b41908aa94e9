"""Algebra: queries as relational expressions over weighted rows, and what can be proven of them.

``flow.py`` is a linear or bilinear query and its delta, ``select_block.py`` one SELECT in the making, ``plan_nodes.py``
stages in the making. ``accumulators.py`` and ``exact_sums.py`` are aggregates that can be added to and taken from.
``uniqueness.py``, ``correlation.py``, ``nondeterminism.py``, ``event_time_columns.py`` and ``finality.py`` derive keys,
correlation, open choices and until when a row can change.
Read first: ``flow.py``.
"""
