"""MariaDB and MySQL: the row binlog, decoded and followed.

``mysql_database.py`` is what a user declares; ``binlog_connection.py`` fetches events, ``binlog_events.py`` and
``binlog_values.py`` decode them, ``binlog_stream.py`` makes transactions of them, at ``binlog_position.py``.
Read first: ``mysql_database.py``, then ``binlog_stream.py``.
"""
