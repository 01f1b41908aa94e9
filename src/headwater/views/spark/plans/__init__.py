"""Kept plans: queries that Spark planned once, run again in every tick over other rows.

``plan_cache.py`` keeps them and chooses the way; ``arrow_leaves.py`` gives them rows; ``driver_lane.py`` runs a plan on
the driver's own thread, without a Spark job, and ``lane_check.py`` tries that out at the start;
``java_handles.py`` makes one call of many; ``single_partition.py`` rewrites a query so that no rows are exchanged;
``plan_record.py`` tells another process which plans there are.
Read first: ``plan_cache.py``, then ``driver_lane.py``.
"""
