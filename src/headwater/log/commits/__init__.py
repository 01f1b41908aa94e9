"""Commits: writes over several partitions, and cuts through all of them.

Every append is stamped with the home's cut number (``cut_numbers.py``); a tick closes the number and reads what was
written before (``consistent_cut.py``). An append or a transaction over several partitions is written by
``atomic_append.py`` and decided by one record (``commit_records.py``); ``transaction.py`` is the user's interface.
``append_marks.py`` keeps where appends end, ``sequence_ranges.py`` which of a producer's numbers a partition has.
Read first: ``cut_numbers.py``, then ``atomic_append.py`` and ``consistent_cut.py``.
"""
