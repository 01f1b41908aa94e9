"""Catalog: what must change in one transaction, in one SQLite database of the home.

``catalog.py`` opens it, ``registry.py`` has topics, schema versions, sealed segments and producers; the tables of apps,
attachments and inlets are declared here because one file holds them all. ``sqlite_file.py`` maps SQLite's errors.
Read first: ``catalog.py``, then ``registry.py``.
"""
