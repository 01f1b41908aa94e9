"""PostgreSQL as a sink: a view as a table of a server.

``postgres_sink.py`` delivers, ``postgres_table.py`` creates and changes the table, ``postgres_columns.py`` maps types.
Read first: ``postgres_sink.py``.
"""
