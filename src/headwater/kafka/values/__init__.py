"""Values of messages: many of them as columns, and Avro with its registry of schemas.

Read ``json_columns.py`` first, then ``avro_values.py``.
"""
