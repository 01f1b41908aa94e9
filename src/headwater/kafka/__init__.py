"""Kafka: what inlets, sinks and the log on Kafka share.

Here lives the client: addresses, settings, errors as sentences (``kafka_client.py``), and transactions
(``kafka_transactions.py``); in ``values`` what messages in Avro hold. No Spark.
Read first: ``kafka_client.py``.
"""
