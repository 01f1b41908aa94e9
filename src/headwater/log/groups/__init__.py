"""Groups: readers that share a topic, and what is remembered of them in the catalog.

A consumer group owns whole partitions: ``assignment.py`` deals them out, ``members.py`` fences, ``consumer.py`` reads
and commits. A work group takes single messages: ``leases.py``, ``messages.py``, ``worker.py``, and ``dead_letters.py``
for those given up. ``backpressure.py`` is what producers meet when readers are slow.
Read first: ``groups.py``, then ``consumer.py`` and ``worker.py``.
"""
