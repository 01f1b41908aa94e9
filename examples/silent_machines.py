"""Machines that have fallen silent: a heartbeat that no other one follows within a minute.

What it is: absence. That something did not come is known when the watermark has passed, so the view shows final rows;
and price moves beside it, of a pattern in Python.
Invariants: running this file declares, and starts nothing. The home is PLANT_HOME, else ``./plant-data``.
Not here: who sends heartbeats: HTTP, StatsD, AMQP (``docs/inlets.md``).
Read next: ``headwater plan examples/silent_machines.py``, then ``docs/patterns.md``.
"""

import os

import headwater as hw

app = hw.App("plant", home=os.environ.get("PLANT_HOME", "./plant-data"))
beats = app.topic("beats", "machine STRING, at TIMESTAMP", event_time="at", lateness="5 seconds")
prices = app.topic("prices", "symbol STRING, price DOUBLE, at TIMESTAMP", event_time="at")

app.view(
    "silent",
    """
    SELECT machine, last_seen FROM beats MATCH_RECOGNIZE (
      PARTITION BY machine ORDER BY at
      MEASURES beat.at AS last_seen
      AFTER MATCH SKIP TO NEXT ROW
      PATTERN (beat [^another]) WITHIN INTERVAL 1 MINUTE
      DEFINE another AS true
    )
    """,
    emit="final",
)
app.view(
    "rises",  # three higher prices in a row, and a fall; a late price corrects it
    hw.pattern("low up{3,} down")
    .over(prices, by="symbol", order="at")
    .define(up="price > prev(price)", down="price < prev(price)")
    .measures(since="first(low.at)", gain="last(up.price) - first(low.price)", steps="count(up.price)")
    .within("1 hour"),
)

if __name__ == "__main__":
    app.run()
