"""Federation: tables of other stores in one query with ours.

What it is: stores that were attached by a name (PostgreSQL, MariaDB and MySQL, SQLite, Parquet, CSV, Delta), and what
a query fetches from each: the columns it uses, and the rows that can matter to it.

    query  →  federation/table_references.py  →  conditions.py  →  a store  →  Arrow  →  Spark runs the whole query
              which tables    what it may be    fetches
              and columns     asked

Invariants: a condition that a store is asked is applied again by Spark. So a store may return more rows than needed,
never fewer. Stores are only read. No Spark here: ``views/serving/federated_tables.py`` makes frames of what is fetched.
Not here: capturing a database (``capture/``), which keeps a copy in the log.
Read next: ``federation/table_references.py``, ``conditions.py``, ``store.py``; ``docs/federation.md``.
"""
