"""Schemas: a topic's columns, and values on their way into and out of them.

Declared types become one stored form (``ddl.py``, ``normalization.py``) and may grow (``evolution.py``). Python values
become Arrow columns, strictly (``columns.py``, ``nested_columns.py``, ``arrow_input.py``, ``row_conversion.py``);
``row_identity.py`` says which rows are equal. Imports nothing else of the log.
Read first: ``row_conversion.py``.
"""
