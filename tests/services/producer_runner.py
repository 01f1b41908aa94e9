"""A process that appends numbered batches to a log until it is killed: for tests of logs that must not write twice.

What it is: ``python -m tests.services.producer_runner ADDRESS TOPIC NAME``: a named producer that goes on after its
last sequence; batch N holds the rows (N, 0) … (N, 9), so the topic says itself what is missing or there twice.
Not here: what is expected (``test_log_conformance_writes.py``).
"""

from __future__ import annotations

import sys

from headwater.kafka.kafka_log import KafkaLog
from headwater.log.home import Log
from headwater.log_address import is_remote

ROWS = 10


def main(address: str, topic_name: str, name: str) -> None:
    with KafkaLog(address) if is_remote(address) else Log(address) as log:
        producer = log.get_topic(topic_name).producer(name)
        print("began", producer.last_sequence, flush=True)
        while True:
            number = producer.last_sequence + 1
            producer.append([{"batch": number, "row": row} for row in range(ROWS)])
            print(number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
