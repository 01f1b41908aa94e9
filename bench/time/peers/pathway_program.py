"""Pathway makes the sums. Run by Pathway's own Python: ``python pathway_program.py FOLDER KIND RUN``.

What it is: the JSON files of ``FOLDER/run-RUN``, read until there are no more, summed by minute and country.
``KIND`` is ``windowby`` (its tumbling windows) or ``groupby`` (of the minute as a number).
Invariants: writes ``FOLDER/found-RUN.json``, then says ``done`` once, with the time at which the last change came.
Not here: the clock's start, and whether the answer is right (``views/state/run.py``).
Read next: ``views/state/run.py``.
"""

import json
import sys
import time

import pathway as pw

MINUTE_MS = 60_000


class Events(pw.Schema):
    """The members of each JSON object."""

    event_id: int
    country: str
    amount: float
    at: int


def windowed(events: pw.Table) -> pw.Table:
    windows = events.windowby(
        pw.this.at, window=pw.temporal.tumbling(duration=MINUTE_MS, origin=0), instance=pw.this.country
    )
    return windows.reduce(
        minute=pw.this._pw_window_start,
        country=pw.this._pw_instance,
        amount=pw.reducers.sum(pw.this.amount),
        events=pw.reducers.count(),
    )


def grouped(events: pw.Table) -> pw.Table:
    by_minute = events.select(pw.this.country, pw.this.amount, minute=pw.this.at // MINUTE_MS * MINUTE_MS)
    return by_minute.groupby(pw.this.minute, pw.this.country).reduce(
        pw.this.minute, pw.this.country, amount=pw.reducers.sum(pw.this.amount), events=pw.reducers.count()
    )


def main(folder: str, kind: str, run: str) -> None:
    events = pw.io.jsonlines.read(f"{folder}/run-{run}", schema=Events, mode="static")
    found: dict = {}
    last_at = 0.0

    def change(key, row, time, is_addition) -> None:  # noqa: ARG001
        nonlocal last_at
        last_at = now()
        group, entry = (row["minute"], row["country"]), (row["amount"], row["events"])
        if is_addition:
            found[group] = entry
        elif found.get(group) == entry:
            del found[group]

    pw.io.subscribe({"windowby": windowed, "groupby": grouped}[kind](events), on_change=change)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    with open(f"{folder}/found-{run}.json", "w") as file:
        json.dump([[*group, *entry] for group, entry in found.items()], file)
    print(json.dumps({"said": "done", "ends": [last_at]}), flush=True)
    sys.stdin.read()  # whoever started us looks at our memory, then stops us


now = time.time  # "time" is the name of one of Pathway's arguments


if __name__ == "__main__":
    main(*sys.argv[1:])
