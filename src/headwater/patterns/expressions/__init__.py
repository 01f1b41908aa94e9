"""Expressions of DEFINE and MEASURES: split between Spark and the matcher.

``row_expression.py`` is the tree, ``navigation.py`` says which row a reference looks at, ``condition_split.py`` and
``measure_split.py`` do the splitting. ``glue.py`` (types: ``glue_types.py``) evaluates what combines rows, over what a
thread remembers (``thread_memory.py``). Read ``navigation.py`` first.
"""
