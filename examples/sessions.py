"""Sessions: visits of pages become sessions of a user, and sessions become figures of an hour.

What it is: web analytics by ``session_window``. A visit that comes late may lengthen a session, or make one of two;
what was told of them before is taken back.
Invariants: running this file declares, and starts nothing; its home is VISITS_HOME, else ``./visits-data``.
Not here: appending. Any process does that: see ``docs/log.md``.
Read next: ``docs/windows.md``.
"""

import os

import headwater as hw

app = hw.App("visits", home=os.environ.get("VISITS_HOME", "./visits-data"))

visits = app.topic("visits", "user_id BIGINT, page STRING, at TIMESTAMP", event_time="at", partitions=2)

app.view(
    "sessions",  # until half an hour passes without a visit
    """
    SELECT user_id, session_window.start AS begins, max(at) AS ends, count(*) AS visits,
           count(DISTINCT page) AS pages, min_by(page, at) AS entered, max_by(page, at) AS left
    FROM visits GROUP BY session_window(at, '30 minutes'), user_id
    """,
)
app.view(
    "hours",
    """
    SELECT window.start AS hour, count(*) AS sessions, avg(visits) AS visits,
           avg(unix_seconds(ends) - unix_seconds(begins)) AS seconds,
           count_if(visits = 1) / count(*) AS bounced
    FROM sessions GROUP BY window(begins, '1 hour')
    """,
)
app.view(
    "entrances",  # the three pages of each hour by which most sessions begin
    """
    SELECT hour, page, sessions FROM (
        SELECT hour, page, sessions, row_number() OVER (PARTITION BY hour ORDER BY sessions DESC, page) AS place
        FROM (SELECT window.start AS hour, entered AS page, count(*) AS sessions
              FROM sessions GROUP BY window(begins, '1 hour'), entered))
    WHERE place <= 3
    """,
)

if __name__ == "__main__":
    app.run()
