"""Figures of more than one machine: Kafka, a Spark cluster and an S3 server, all on this one."""
