"""Segments of an index: queries as arrays, and batches of documents that are compared with them.

Read first: ``query_segment.py``.
"""
