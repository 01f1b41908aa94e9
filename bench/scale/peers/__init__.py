"""Other systems that read the same topic of Kafka. Read ``flink_on_kafka.py``."""
