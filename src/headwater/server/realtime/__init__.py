"""Realtime: subscribers that are pushed what changes.

``change_notifier.py`` wakes on commits, ``broker.py`` has one reader for each view and many subscribers,
``subscriber_messages.py`` encodes a tick once for all, ``status_events.py`` streams the status.
Read first: ``broker.py``.
"""
