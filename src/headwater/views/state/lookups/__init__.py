"""Lookups: the rows of some keys, found on the driver without Spark.

``arrangements.py`` keeps the runs of a trace sorted by the hash of the columns that are asked for; ``sorted_blocks.py``
is one run in that order, in memory or in a mapped file. ``key_index.py`` goes the other way: it holds many keys, and is
asked for the rows of a run batch by batch; ``keyed_pass.py`` reads all rows that are there in that way.
Read first: ``arrangements.py``.
"""
