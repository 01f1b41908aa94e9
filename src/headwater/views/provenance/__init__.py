"""Provenance: the input events behind a row of a view.

``explanations.py`` is asked. ``why.py`` walks from a row down through the stages of its view, and of the views below,
to records of topics: ``stage_lineage.py`` is one step of it, ``carried_rows.py`` the SQL that makes a step exact,
``relation_rows.py`` what a relation holds at the tick, ``input_events.py`` the records. ``provenance.py`` is what comes
out.
Read first: ``why.py``; ``docs/why.md``.
"""
