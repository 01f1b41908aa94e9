"""Events: histories with streams, tags and conditions.

A history is a topic whose rows are events of declared types, written through an ``EventStore`` alone. Read
``event_types.py`` (what an event is), ``event_rows.py`` (its row), ``event_query.py`` (types and tags),
``event_index.py`` (where events are), ``event_condition.py`` (what an append expects), then ``event_store.py``.
"""
