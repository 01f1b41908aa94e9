"""Operators: each SQL construct compiled to stages.

GROUP BY (``aggregation.py``, ``grouping.py``), joins (``joins.py``), subqueries, set operations, window functions,
top-k (``top_k.py``), and ``keyed_stages.py`` for what is recomputed per touched key.
Read first: ``aggregation.py`` and ``joins.py``.
"""
