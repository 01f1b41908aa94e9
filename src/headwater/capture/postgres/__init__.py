"""PostgreSQL: logical decoding (pgoutput) over a replication slot.

``postgres_database.py`` is what a user declares; ``replication.py`` streams the slot, ``pgoutput.py`` decodes messages,
``postgres_types.py`` maps types, ``postgres_errors.py`` maps errors.
Read first: ``postgres_database.py``, then ``replication.py``.
"""
