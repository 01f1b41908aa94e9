"""Click-through rate: searches joined with the clicks that follow within the hour, as a rate by hour and query.

What it is: a join of two streams with a bound in time. A click that comes late, before its search, or is never sent is
no special case: the rate is corrected when it comes.
Invariants: running this file declares, and starts nothing; its home is SEARCH_HOME, else ``./search-data``.
Not here: appending. Any process does that: see ``docs/log.md``.
Read next: ``docs/windows.md``.
"""

import os

import headwater as hw

app = hw.App("search", home=os.environ.get("SEARCH_HOME", "./search-data"))

searches = app.topic("searches", "id BIGINT, query STRING, at TIMESTAMP", key="id", event_time="at")
clicks = app.topic("clicks", "search_id BIGINT, page STRING, at TIMESTAMP", event_time="at")

app.view(
    "answered",  # each search, with its first click within the hour if there was one
    """
    SELECT s.id, s.query, s.at, min(c.at) AS clicked
    FROM searches s LEFT JOIN clicks c ON c.search_id = s.id AND c.at BETWEEN s.at AND s.at + INTERVAL 1 HOUR
    GROUP BY s.id, s.query, s.at
    """,
)
app.view(
    "click_through",
    """
    SELECT window.start AS hour, query, count(*) AS searches, count(clicked) AS clicked,
           count(clicked) / count(*) AS rate
    FROM answered GROUP BY window(at, '1 hour'), query
    """,
)
app.view(
    "unanswered",
    """
    SELECT id, query, at FROM searches s
    WHERE NOT EXISTS (SELECT 1 FROM clicks c
                      WHERE c.search_id = s.id AND c.at BETWEEN s.at AND s.at + INTERVAL 1 HOUR)
    """,
)

if __name__ == "__main__":
    app.run()
