"""Maintenance: background work that keeps a home small and verified.

``background.py`` runs the threads, ``maintenance.py`` one round: ``sealing.py`` (Arrow to Parquet), ``compaction.py``
(latest record of each key), ``retention.py`` (age and size). ``alerts.py`` publishes conditions that a user should act
on, ``bounded_logs.py`` cuts what processes print. ``home_check.py`` and ``segment_check.py`` verify every byte.
Read first: ``maintenance.py``.
"""
