"""Care of whole logs: copies of one log in another, how they are compared, and backups.

Read first: ``log_mirror.py``, which copies; then ``log_checksum.py``, by which a copy is verified. ``backup/`` has
backups of a home, and homes from backups.
Mirrors read and write any log by its contract (``log/contract.py``); backups know the files of a home.
"""
