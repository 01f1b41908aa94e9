"""Commands of the log: ``headwater topic``, ``group``, ``check``, ``maintain``.

``topic_commands.py`` with ``create_topic.py``, ``append_rows.py`` (``input_files.py``, ``csv_text.py``) and
``tail.py``; ``group_commands.py``; ``check_commands.py``.
Read first: ``topic_commands.py``.
"""
