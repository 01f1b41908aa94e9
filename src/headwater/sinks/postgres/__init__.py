"""PostgreSQL as a sink: a view as a table of a server.

``postgres_sink.py`` delivers, ``postgres_table.py`` creates and changes the table, ``postgres_columns.py`` maps types.
``postgres_serving.py`` brings all views of an app together, ``postgres_served_rows.py`` reads them for servers.
Read first: ``postgres_sink.py``.
"""
