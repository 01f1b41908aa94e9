"""Groups: how an accumulating stage computes many of them, and puts new rows in the place of old ones.

``flow_slices.py`` computes what many rows change by all cores in the driver lane, ``large_groups.py`` by Spark's scans;
``replaced_groups.py`` tells the changes when groups get new rows.
Read first: ``flow_slices.py``.
"""
