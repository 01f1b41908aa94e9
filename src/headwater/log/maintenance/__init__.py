"""Maintenance: what keeps a home small and whole while it is used.

``background.py`` runs the threads, ``maintenance.py`` one round: ``sealing.py`` (Arrow to Parquet), ``compaction.py``
(latest record of each key), ``retention.py`` (age and size). ``alerts.py`` keeps what a person should know.
``home_check.py`` and ``segment_check.py`` verify every byte.
Read first: ``maintenance.py``.
"""
