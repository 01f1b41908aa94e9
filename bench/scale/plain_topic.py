"""A topic that a plain producer wrote: the events as JSON, a message each, for the peers that read Kafka.

What it is: ``write_plain``. The time is a number of milliseconds: the form that everybody parses fastest.
Invariants: every message is acknowledged; events go to the partitions in turn, in pieces of a thousand.
Not here: what our log writes (``sources.py``). Read next: ``sources.py``.
"""

from __future__ import annotations

from bench.time.events import Events, json_lines

PIECE = 1_000


def write_plain(servers: str, topic: str, events: Events, partitions: int) -> None:
    """Make the topic and write all events."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})  # it must live until the answer is there
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    settings = {"linger.ms": 20, "compression.type": "lz4", "queue.buffering.max.messages": 1_000_000}
    producer = Producer({"bootstrap.servers": servers, **settings})
    for number, line in enumerate(json_lines(events.table)):
        while True:
            try:
                producer.produce(topic, line, partition=number // PIECE % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        if number % PIECE == 0:
            producer.poll(0)
    if producer.flush(120):
        raise TimeoutError(f"Kafka did not take all of {topic} in two minutes")
