"""Metrics: counters, gauges and timings of many hosts in steps of ten seconds, with corrections.

What it is: what people use StatsD for, over a log. A host that was cut off sends its samples late, and each step that
they belong to is corrected; a sample that is sent again under its own id replaces the first, and counts once.
Invariants: running this file declares, and starts nothing; its home is METRICS_HOME, else ``./metrics-data``.
Not here: receiving UDP. ``metrics.append`` takes rows from whoever has them.
Read next: ``docs/windows.md``.
"""

import os

import headwater as hw

app = hw.App("metrics", home=os.environ.get("METRICS_HOME", "./metrics-data"))

samples = app.topic(
    "samples",
    "id STRING, host STRING, name STRING, kind STRING, value DOUBLE, at TIMESTAMP",
    key="id",  # a sample that comes again is the same sample
    event_time="at",
    lateness_ms=10_000,
    partitions=2,
)

app.view(
    "counters",
    """
    SELECT window.start AS since, name, sum(value) AS total, sum(value) / 10 AS per_second
    FROM samples WHERE kind = 'c' GROUP BY window(at, '10 seconds'), name
    """,
)
app.view(
    "gauges",  # the last value of each host, added up
    """
    SELECT since, name, sum(value) AS value FROM (
        SELECT window.start AS since, name, host, max_by(value, at) AS value
        FROM samples WHERE kind = 'g' GROUP BY window(at, '10 seconds'), name, host)
    GROUP BY since, name
    """,
)
app.view(
    "timings",
    """
    SELECT window.start AS since, name, count(*) AS calls, avg(value) AS mean,
           percentile(value, 0.5) AS p50, percentile(value, 0.95) AS p95, max(value) AS most
    FROM samples WHERE kind = 'ms' GROUP BY window(at, '10 seconds'), name
    """,
)
app.view(
    "against_the_step_before",
    """
    SELECT since, name, per_second, per_second - lag(per_second) OVER (PARTITION BY name ORDER BY since) AS change
    FROM counters
    """,
)

if __name__ == "__main__":
    app.run()
