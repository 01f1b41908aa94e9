"""Front end: a view's SQL text becomes one plain syntax tree in which every name is resolved.

``parse.py`` makes the tree, ``name_resolution.py`` qualifies every column; ``as_of.py``, ``time_windows.py`` and
``session_distinct.py`` rewrite clauses into plain ones.
Read first: ``parse.py``, then ``name_resolution.py``.
"""
