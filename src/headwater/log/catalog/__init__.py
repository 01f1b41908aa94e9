"""Catalog: the metadata that changes in transactions, in one SQLite database of the home.

``catalog.py`` opens it, ``registry.py`` has topics, schema versions, sealed segments and producers,
``catalog_tables.py`` the tables of apps, sinks, attachments and inlets. ``sqlite_file.py`` maps SQLite's errors;
``home_folder.py`` makes a home, ``encrypted_volume.py`` tells whether what is below it encrypts.
Read first: ``catalog.py``, then ``registry.py``.
"""
