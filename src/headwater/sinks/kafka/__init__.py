"""Kafka: a view in a Kafka topic, each tick in one Kafka transaction with its token.

``kafka_sink.py`` is the declaration and the contract; ``kafka/kafka_transactions.py`` produces and fences,
``kafka_progress.py`` reads the last token back, ``kafka_records.py`` makes records of rows.
Read first: ``kafka_sink.py``.
"""
