"""Members of groups, as processes of their own to be killed. Run: python group_members.py ROLE HOME ..."""

import contextlib
import os
import random
import signal
import sqlite3
import sys
import time
from pathlib import Path

from headwater.errors import Fenced, LeaseLost
from headwater.log.groups.messages import Message
from headwater.log.home import Log
from headwater.log.topic import Topic


def consume(home: str, journal: str) -> None:
    """Consume for ever. The journal says of each batch that it was seen, and then that it was committed."""
    with Log(home) as log, open(journal, "a", buffering=1) as out:
        consumer = log.get_topic("orders").consumer("billing", session_timeout=3.0, rows_max=50)
        for batch in consumer:
            out.write(f"seen {batch.partition} {batch.first_offset} {batch.next_offset}\n")
            time.sleep(random.random() * 0.01)  # the work: it makes room for a kill between seeing and committing
            try:
                consumer.commit(batch)
                out.write(f"committed {batch.partition} {batch.first_offset} {batch.next_offset}\n")
            except Fenced:
                out.write(f"fenced {batch.partition} {batch.first_offset} {batch.next_offset}\n")


def hold(home: str, signal_file: str) -> None:
    """Take one batch, wait for the signal, then commit it: the zombie."""
    with Log(home) as log:
        consumer = log.get_topic("orders").consumer("billing", session_timeout=1.0)
        batch = consumer.poll(timeout=60)
        print(f"holding {batch.partition} {batch.next_offset}", flush=True)
        while not Path(signal_file).exists():
            time.sleep(0.01)
        try:
            consumer.commit(batch)
            print("committed", flush=True)
        except Fenced as error:
            print(f"fenced {error.data['owner']} {error.data['current_generation']}", flush=True)


def work(home: str, ledger: str, name: str, taken_max: str) -> None:
    """Work for ever; the ledger has a row for each attempt, and one for each acceptance that went through."""
    book = sqlite3.connect(ledger, isolation_level=None, timeout=60)
    with Log(home) as log, log.get_topic("jobs").worker("runners", name=name, lease=2.0, deliveries_max=100) as worker:
        while True:
            messages = worker.take(random.randint(1, int(taken_max)))
            places = [(name, message.partition, message.offset) for message in messages]
            book.executemany("INSERT INTO attempts VALUES (?, ?, ?)", places)
            try:
                worker.accept(messages)
            except LeaseLost as error:
                places = [place for place in places if place[1:] not in error.data["lost"]]
            book.executemany("INSERT INTO acceptances VALUES (?, ?, ?)", places)


def step(home: str, ledger: str, name: str) -> None:
    """Work in order by account for ever: mostly accept, sometimes give back for later, reject what is marked.

    The ledger has a row for each attempt, written while the message is held, and one for each acceptance.
    """
    book = sqlite3.connect(ledger, isolation_level=None, timeout=60)
    topic = Log(home).get_topic("steps")
    options = {"lease": 5.0, "deliveries_max": 1000, "retry_delay": 0.02, "retry_delay_max": 0.05}
    with topic.worker("runners", name=name, ordered_by="account", priority="urgency", **options) as worker:
        while True:
            for message in worker.take(random.randint(1, 4)):
                with contextlib.suppress(LeaseLost):  # a busy machine: another worker has it by now
                    step_of(topic, message, name, book)


def step_of(topic: Topic, message: Message, name: str, book: sqlite3.Connection) -> None:
    """One attempt at one message; nothing is written down of one that is no longer ours."""
    row, place = message.row, (name, message.partition, message.offset)
    message.renew()
    book.execute("INSERT INTO attempts VALUES (NULL, ?, ?, ?, ?)", (*place, row["account"]))
    if row["bad"] and not topic.group("runners").describe().redriven:
        message.reject("bad")
    elif random.random() < 0.2:
        message.release()
    else:
        message.accept()
        book.execute("INSERT INTO acceptances VALUES (?, ?, ?)", place)


def stumble(home: str, name: str) -> None:
    """Work for ever, and die of every message that is poison."""
    with Log(home) as log, log.get_topic("jobs").worker("runners", name=name, lease=0.5, deliveries_max=3) as worker:
        for message in worker:
            if message.row["poison"]:
                os.kill(os.getpid(), signal.SIGKILL)
            message.accept()


if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    {"consume": consume, "hold": hold, "work": work, "step": step, "stumble": stumble}[role](*arguments)
