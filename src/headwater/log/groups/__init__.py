"""Groups: readers that share a topic, with their state in the catalog.

A consumer group owns whole partitions: ``assignment.py`` assigns them, ``members.py`` fences, ``consumer.py`` reads and
commits. A work group takes single messages: ``leases.py``, ``messages.py``, ``worker.py``, and ``dead_letters.py`` for
those given up. ``readers.py`` knows every reader of a topic, apps too; ``backpressure.py`` slows or drops appends when
they are slow.
Read first: ``groups.py``, then ``consumer.py`` and ``worker.py``.
"""
