"""Debezium: topics that hold Debezium's change messages, read as captured tables.

``debezium_topic.py`` is what a user declares; ``envelope.py`` reads and writes the message format.
Read first: ``debezium_topic.py``.
"""
