"""An app with a person in every place of it: served in ``test_masked_answers.py``."""

import os

import headwater as hw
from headwater.aggregates import command, event
from headwater.views.view_declaration import ViewFunction

HOME = os.environ["SERVED_SHOP_HOME"]


class Account:
    owner = ""

    @command
    def open(self, owner: str) -> None:
        self.opened(owner)

    @event
    def opened(self, owner: str) -> None:
        self.owner = owner


app = hw.App("people", home=HOME)
users = app.table(
    "users",
    "id BIGINT, email STRING, name STRING, number BIGINT, country STRING, since TIMESTAMP",
    key="id",
    privacy={
        "id": hw.Personal("user_id"),
        "email": hw.Personal("user_id", by="id", purpose="billing", mask="hash"),
        "name": hw.Personal("user_id", by="id", mask="redact"),
        "number": hw.Personal("user_id", by="id", purpose="shipping", mask="null"),
    },
)
visits = app.topic(
    "visits",
    "user_id BIGINT, page STRING, at TIMESTAMP",
    event_time="at",
    privacy={"user_id": hw.Personal("user_id"), "page": hw.Personal("user_id", by="user_id", mask="null")},
)
app.view("people", "SELECT * FROM users")
app.view("contacts", "SELECT id, concat(lower(name), ' <', email, '>') AS who, number + 1 AS next FROM people")
app.view("by_mail", "SELECT email, count(*) AS users FROM users GROUP BY email")
app.view("countries", "SELECT country, max(name) AS last, count(*) AS users FROM users GROUP BY country")
app.view("pages", "SELECT page, count(*) AS visits FROM visits GROUP BY page, window(at, '1 minute')", late="drop")
app.view("unnamed", "SELECT id, upper(name), email = 'x' FROM users")
app.view(
    "steps",
    "SELECT * FROM visits MATCH_RECOGNIZE (PARTITION BY user_id ORDER BY at MEASURES A.page AS page PATTERN (A) "
    "DEFINE A AS page IS NOT NULL)",
)


def shouted(users):  # type: ignore[no-untyped-def]
    from pyspark.sql import functions as f

    return users.select("id", f.upper("name").alias("name"))


shout: ViewFunction = shouted
app.view_function("shouted", inputs=[users])(shout)
app.sink("people", hw.sinks.Search(f"{HOME}-search", text=["name", "email"]), name="index")
app.sink("people", hw.sinks.Topic("people_changes"))
app.sink("people", hw.sinks.SQLite(f"{HOME}-people.db"), name="people_masked", mask=True)
app.sink("by_mail", hw.sinks.SQLite(f"{HOME}-mails.db"), name="mails_masked", mask=True)
app.sink("contacts", hw.sinks.Topic("contacts_masked"), mask=True)
app.view("numbers", "SELECT number, count(*) AS users FROM users GROUP BY number")
app.sink("numbers", hw.sinks.SQLite(f"{HOME}-numbers.db"), name="numbers_masked", mask=True)
app.searches("watch", over=users, text=["name"])
app.aggregate("account", Account, partitions=1)
app.claims("mails", partitions=1)
BY = {
    "watch_searches": {"query": hw.Personal("user_id", mask="null")},
    "account": {"stream": hw.Personal("account", mask="hash"), "opened": hw.Personal("account", mask="null")},
    "mails": {"stream": hw.Personal("mail", mask="hash"), "claimed": hw.Personal("mail", mask="null")},
}
for topic, privacy in BY.items():
    by = {column: hw.Personal(each.subject, by=next(iter(privacy)), mask=each.mask) for column, each in privacy.items()}
    app.topic(topic, app.get_topic(topic).schema, privacy=by)
