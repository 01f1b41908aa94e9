"""Backups of a home: made while everything runs, restored to any covered point, and tried.

Read first: ``backup_cut.py``, the one moment that a backup is of; then ``backup_writer.py``, which copies, and
``home_restore.py``, which brings a home back. ``backup_repository.py`` is what lies in the folder or bucket.
"""
