"""Kafka: the messages of a Kafka topic into a topic of the log, each once.

``kafka_inlet.py`` is the declaration and the loop; ``kafka_reader.py`` consumes, ``kafka_positions.py`` keeps how far
it came, in the log's catalog; ``kafka_messages.py`` makes rows of messages, with ``value_formats.py`` for what is in
them (for Avro see ``kafka/values``).
Read first: ``kafka_inlet.py``.
"""
