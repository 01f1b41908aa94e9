"""Pathway keeps the revenue by country. Run by Pathway's own Python: ``python pathway_program.py FOLDER``.

What it is: two streams of upserts and deletions read from folders of CSV, made into tables, joined and summed.
Invariants: says ``ready`` when the base's answer is there, and ``done`` with the time when each lot's is; an answer
that never comes is never said. It waits for more files until it is stopped. Amounts are whole quarters
(``cli/log/input_files.py`` says why).
Not here: putting the lots into the folders, and the clock's start (``views/state/run.py``).
Read next: ``views/state/run.py``.
"""

import json
import sys
import time

import pathway as pw

AUTOCOMMIT_MS = 100


class Orders(pw.Schema):
    """The columns of ``orders/*.csv``."""

    order_id: int = pw.column_definition(primary_key=True)
    user_id: int
    amount: int
    is_upsert: bool


class Users(pw.Schema):
    """The columns of ``users/*.csv``; ``id`` is a word of Pathway's own, so it has another name there."""

    user: int = pw.column_definition(primary_key=True)
    country: str
    is_upsert: bool


class Watch:
    """The result as its changes come in, and what is said when it is one of the answers."""

    def __init__(self, answers: list) -> None:
        self.answers = answers
        self.arrived = 0
        self.state: dict = {}

    def change(self, key, row, time, is_addition) -> None:  # noqa: ARG002
        entry = [row["revenue"], row["orders"]]
        if is_addition:
            self.state[row["country"]] = entry
        elif self.state.get(row["country"]) == entry:
            del self.state[row["country"]]

    def end_of_batch(self, _time: int) -> None:
        if self.arrived < len(self.answers) and self.state == self.answers[self.arrived]:
            print(json.dumps({"said": "done" if self.arrived else "ready", "at": time.time()}), flush=True)
            self.arrived += 1


def main(folder: str) -> None:
    with open(f"{folder}/answers.json") as file:
        watch = Watch(json.load(file))
    orders, users = (
        pw.io.csv.read(
            f"{folder}/{name}", schema=schema, mode="streaming", autocommit_duration_ms=AUTOCOMMIT_MS
        ).stream_to_table(pw.this.is_upsert)
        for name, schema in (("orders", Orders), ("users", Users))
    )
    joined = orders.join(users, orders.user_id == users.user).select(pw.right.country, pw.left.amount)
    revenue = joined.groupby(pw.this.country).reduce(
        pw.this.country, revenue=pw.reducers.sum(pw.this.amount), orders=pw.reducers.count()
    )
    pw.io.subscribe(revenue, on_change=watch.change, on_time_end=watch.end_of_batch)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)


if __name__ == "__main__":
    main(sys.argv[1])
