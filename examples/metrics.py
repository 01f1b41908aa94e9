"""Metrics: counters, gauges and timings of many hosts in steps of ten seconds, with corrections.

What it is: what people use StatsD for, over a log. A host that was cut off sends its samples late, and each step that
they belong to is corrected; a sample that is sent again under its own id replaces the first, and counts once. Beside
them come metrics of clients that speak StatsD: they have no id, are as lossy as UDP is, and count when they come.
Invariants: running this file declares, and starts nothing; its home is METRICS_HOME, else ``./metrics-data``. Under
``app.run()`` or ``headwater inlet run examples/metrics.py`` it listens on UDP port METRICS_PORT, else 8125.
Read next: ``docs/windows.md``, ``docs/inlets.md``.
"""

import os

import headwater as hw

app = hw.App("metrics", home=os.environ.get("METRICS_HOME", "./metrics-data"))

samples = app.topic(
    "samples",
    "id STRING, host STRING, name STRING, kind STRING, value DOUBLE, at TIMESTAMP",
    key="id",  # a sample that comes again is the same sample
    event_time="at",
    lateness="10 seconds",
    partitions=2,
)
app.inlet("statsd", hw.inlets.StatsD("statsd", port=int(os.environ.get("METRICS_PORT", "8125"))))

app.view(
    "all_samples",  # a counter that was sampled stands for the others too; a gauge's change says nothing by itself
    """
    SELECT host, name, kind, value, at FROM samples
    UNION ALL
    SELECT tags['host'] AS host, metric AS name, type AS kind,
           CASE WHEN type = 'c' THEN value / sample_rate ELSE value END AS value, received_at AS at
    FROM statsd WHERE NOT delta
    """,
    serve=False,
)
app.view(
    "counters",
    """
    SELECT window.start AS since, name, sum(value) AS total, sum(value) / 10 AS per_second
    FROM all_samples WHERE kind = 'c' GROUP BY window(at, '10 seconds'), name
    """,
)
app.view(
    "gauges",  # the last value of each host, added up
    """
    SELECT since, name, sum(value) AS value FROM (
        SELECT window.start AS since, name, host, max_by(value, at) AS value
        FROM all_samples WHERE kind = 'g' GROUP BY window(at, '10 seconds'), name, host)
    GROUP BY since, name
    """,
)
app.view(
    "timings",
    """
    SELECT window.start AS since, name, count(*) AS calls, avg(value) AS mean,
           percentile(value, 0.5) AS p50, percentile(value, 0.95) AS p95, max(value) AS most
    FROM all_samples WHERE kind = 'ms' GROUP BY window(at, '10 seconds'), name
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
