"""SQL: how Spark's SQL is read and written, word for word, and small questions of a syntax tree.

``dialect.py`` keeps every expression as the user wrote it, ``expressions.py`` asks and changes trees,
``builtin_functions.py`` knows Spark's functions, ``output_names.py`` Spark's names for columns without one,
``refusal.py`` writes the errors of a view's SQL.
Read first: ``dialect.py``.
"""
