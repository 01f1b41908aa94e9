"""Stages: one stage of a view's plan in one tick, on Spark.

``stage_run.py`` turns the deltas of a stage's inputs into its own delta; ``relation.py`` is a relation as one tick
sees it (changed, before, after), ``view_sessions.py`` the two Spark sessions of a view, ``stage_schemas.py`` types as
Spark's analyser gives them, ``top_k_rows.py`` the leading rows of a key, ``python_views.py`` views that are functions.
Read first: ``stage_run.py``, then ``relation.py``.
"""
