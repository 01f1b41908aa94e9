"""Fraud: the share of payments that are refused, by country and five minutes, and an alarm when it is high.

What it is: a rate, and a view that holds the alarms. A window is judged once, when it has closed: ``emit="final"``.
Payments come up to half a minute out of order; what comes later than that is counted and set aside, never lost.
Invariants: running this file declares, and starts nothing; its home is PAYMENTS_HOME, else ``./payments-data``.
Not here: appending, and telling people: ``app.get_view("alarms").changes(follow=True)`` yields each alarm once.
Read next: ``docs/time.md``.
"""

import os

import headwater as hw

app = hw.App("payments", home=os.environ.get("PAYMENTS_HOME", "./payments-data"))

payments = app.topic(
    "payments",
    "id BIGINT, country STRING, amount DECIMAL(12,2), refused BOOLEAN, at TIMESTAMP",
    event_time="at",
    lateness="30 seconds",
    partitions=2,
)

app.view(
    "rates",
    """
    SELECT window.start AS since, country, count(*) AS payments, count_if(refused) AS refused,
           count_if(refused) / count(*) AS rate
    FROM payments GROUP BY window(at, '5 minutes'), country
    """,
    emit="final",
)
app.view("alarms", "SELECT since, country, payments, rate FROM rates WHERE payments >= 20 AND rate > 0.2")

if __name__ == "__main__":
    app.run()
