"""Why: the input events behind rows of views, against a judge that knows nothing of stages.

What it is: small random tables, views of many shapes, and DuckDB. Each row of an input is one event, so the judge runs
the view's own SQL over chosen events.
Invariants, for every row that is asked for: the query over only the events that were told gives the row (they suffice);
without any one of the others it is still there (nothing is left out); where the shape demands it, without any one of
those told it is not (nothing is told that does not matter).
Not here: how texts are rewritten (``tests/unit/views/provenance/test_carried_rows.py``).
Read next: ``src/headwater/views/provenance/why.py``.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter

import duckdb
import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import Misuse, OffsetOutOfRange, RowRefused, UnknownRow
from headwater.log.home import Log
from headwater.log.schema.json_lines import json_line
from headwater.testing import ManualClock
from headwater.views import thresholds
from headwater.views.provenance import input_events, stage_lineage
from tests.unit.command_line import CommandLine
from tests.unit.weighted_rows import thorough

pytestmark = pytest.mark.usefixtures("spark")

TABLES = {
    "users": "id BIGINT, country STRING",
    "orders": "order_id BIGINT, user_id BIGINT, amount BIGINT",
    "clicks": "user_id BIGINT, page STRING, n BIGINT",
}
# {view: (SQL, whether each event that is told must matter)}
VIEWS = {
    "filtered": ("SELECT order_id, amount * 2 AS twice FROM orders WHERE amount > 3", True),
    "revenue": (
        "SELECT u.country, sum(o.amount) AS revenue, count(*) AS n FROM orders o JOIN users u ON o.user_id = u.id "
        "GROUP BY u.country",
        False,  # a user whom no order of the country needs is not told; one that only amounts of 0 need would matter
    ),
    "rich": ("SELECT country, revenue FROM revenue WHERE revenue > 12", False),
    "three": (
        "SELECT u.country, c.page, count(*) AS n FROM orders o JOIN users u ON o.user_id = u.id "
        "JOIN clicks c ON c.user_id = u.id WHERE o.amount > 2 GROUP BY u.country, c.page",
        True,
    ),
    "countries": ("SELECT DISTINCT country FROM users", False),
    "with_country": (
        "SELECT o.order_id, o.amount, u.country FROM orders o LEFT JOIN users u ON o.user_id = u.id "
        "AND u.country <> 'FR'",
        True,
    ),
    "both": ("SELECT o.order_id, u.id FROM orders o FULL JOIN users u ON o.user_id = u.id", True),
    "idle": (
        "SELECT id, country FROM users u WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.user_id = u.id AND "
        "o.amount > 5)",
        True,
    ),
    "active": ("SELECT id FROM users u WHERE EXISTS (SELECT 1 FROM orders o WHERE o.user_id = u.id)", False),
    "never": ("SELECT id FROM users EXCEPT SELECT user_id AS id FROM orders", True),
    "either": ("SELECT id, 'u' AS what FROM users UNION ALL SELECT user_id AS id, 'o' AS what FROM orders", False),
    "highest": ("SELECT user_id, max(amount) AS most FROM orders GROUP BY user_id HAVING count(*) > 1", False),
    "numbered": (
        "SELECT order_id, user_id, row_number() OVER (PARTITION BY user_id ORDER BY amount, order_id) AS place "
        "FROM orders",
        True,
    ),
    "running": (
        "SELECT order_id, user_id, sum(amount) OVER (PARTITION BY user_id ORDER BY order_id) AS total FROM orders",
        False,
    ),
    "largest": ("SELECT order_id, amount FROM orders ORDER BY amount DESC, order_id LIMIT 3", True),
    "above": ("SELECT order_id FROM orders WHERE amount > (SELECT avg(amount) FROM orders)", False),
    "pages": ("SELECT page, count(*) AS n, sum(n) AS total FROM clicks GROUP BY page", True),
    "nobody": ("SELECT id FROM users WHERE id NOT IN (SELECT user_id FROM orders)", True),
}


class Shop:
    """An app of all these views, and what its tables hold: {topic: {place: row}}."""

    def __init__(self, home) -> None:
        self.app = hw.App("shop", home=home)
        self.app._log = Log(home, clock=ManualClock(), maintenance_interval=None)
        self.users = self.app.table("users", TABLES["users"], key="id", partitions=2)
        self.orders = self.app.topic("orders", TABLES["orders"], key="order_id", partitions=2)
        self.clicks = self.app.topic("clicks", TABLES["clicks"], partitions=2)
        for name, (sql, _) in VIEWS.items():
            self.app.view(name, sql)
        self.events: dict[str, dict[str, dict]] = {}

    def fill(self, chance: random.Random) -> None:
        """Some rows, corrections and deletions, in two ticks."""
        self.users.upsert([{"id": n, "country": chance.choice(["DE", "FR", "IT"])} for n in range(8)])
        for tick in range(2):
            ids = chance.sample(range(14), 10)
            self.orders.append(
                [{"order_id": n, "user_id": chance.randrange(6), "amount": chance.randrange(1, 10)} for n in ids]
            )
            self.clicks.append(
                [{"user_id": chance.randrange(6), "page": chance.choice("ab"), "n": n} for n in range(4)],
                metadata=hw.Metadata(actor="anna", correlation_id=f"basket-{tick}"),
                request_id=f"clicks-{tick}",
            )
            if tick:
                self.users.upsert([{"id": chance.randrange(6), "country": "IT"}])
                self.orders.delete([{"order_id": chance.choice(ids)}])
                self.users.delete([{"id": 5}])
            self.app.tick()
        self.events = {name: self._current(name) for name in TABLES}

    def _current(self, name: str) -> dict[str, dict]:
        """The rows of a topic by the place of their event; of a key the last one."""
        topic = self.app.log.get_topic(name)
        found: dict[object, tuple[str, dict] | None] = {}
        columns = [*topic.schema.names, "_partition", "_offset", *(["_deleted"] if topic.settings.key else [])]
        for row in topic.rows(columns=columns):
            place = f"{name}[{row.pop('_partition')}]@{row.pop('_offset')}"
            gone = row.pop("_deleted", False)
            key = tuple(row[column] for column in topic.settings.key) or place
            found[key] = None if gone else (place, row)
        return dict(each for each in found.values() if each is not None)


class Judge:
    """DuckDB over chosen events."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.schemas = {name: shop.app.log.get_topic(name).schema for name in TABLES}

    def gives(self, view: str, row: dict, places: set[str]) -> bool:
        """Whether a view's query over the rows of these events has the row."""
        with duckdb.connect() as db:
            for name, rows in self.shop.events.items():
                some = [each for place, each in rows.items() if place in places]
                db.register(f"_{name}", pa.Table.from_pylist(some, self.schemas[name]))
                db.execute(f"CREATE TABLE {name} AS SELECT * FROM _{name}")
            for name in ("revenue",) if view == "rich" else ():
                db.execute(f"CREATE VIEW {name} AS {VIEWS[name][0]}")
            found = db.execute(VIEWS[view][0]).fetchall()
        return tuple(row.values()) in found


@pytest.fixture(scope="module")
def shop(request, tmp_path_factory):
    request.getfixturevalue("spark")
    made = Shop(tmp_path_factory.mktemp("why") / "home")
    made.fill(random.Random(7))
    yield made
    made.app.close()


@pytest.mark.parametrize("view", VIEWS)
def test_the_events_suffice_and_no_other_matters(shop, view):
    judge, (_, needed) = Judge(shop), VIEWS[view]
    rows = list(shop.app.get_view(view).rows())
    every = {place for rows in shop.events.values() for place in rows}
    assert rows
    for row in random.Random(view).sample(rows, min(len(rows), thorough(2))):
        found = shop.app.get_view(view).why(**row, limit=1000)
        told = {str(event) for event in found.events}

        assert found.rows[0] == row
        assert told <= every
        assert judge.gives(view, row, told), "they suffice"
        if view not in ("above", "largest"):  # in these another row decides by not being there
            assert all(judge.gives(view, row, every - {place}) for place in every - told), "nothing is left out"
        if needed:
            assert [place for place in told if judge.gives(view, row, every - {place})] == [], "all of it matters"


@pytest.mark.parametrize("view", ["rich", "with_country", "never", "either"])
def test_many_rows_stay_in_spark_and_give_the_same_events(shop, view, monkeypatch):
    row = next(shop.app.get_view(view).rows())
    here = shop.app.get_view(view).why(**row, limit=1000)

    monkeypatch.setattr(stage_lineage, "TOLD_ROWS_MAX", 0)
    monkeypatch.setattr(stage_lineage, "HELD_ROWS_MAX", 0)
    monkeypatch.setattr(input_events, "HERE_ROWS_MAX", 0)
    monkeypatch.setattr(thresholds, "LOCAL_ROWS_MAX", 0)
    by_spark = shop.app.get_view(view).why(**row, limit=1000)

    assert by_spark == here


def test_an_event_says_where_it_is_and_who_wrote_it(shop):
    found = shop.app.get_view("pages").why("a", limit=1)

    (event,) = found.events
    number = event.correlation_id.removeprefix("basket-")
    assert (event.topic, event.actor, event.request_id) == ("clicks", "anna", f"clicks-{number}")
    assert event.row == shop.events["clicks"][str(event)]
    assert found.inputs[0].count == len([row for row in shop.events["clicks"].values() if row["page"] == "a"])
    assert found.inputs[0].left_out == found.inputs[0].count - 1
    assert found.to_dict()["inputs"][0]["events"][0]["record"] == str(event)
    assert str(found).splitlines()[0] == "pages at tick 2"


def test_an_earlier_tick_is_explained_by_the_events_of_then(shop):
    view = shop.app.get_view("pages")
    now = {str(event) for event in view.why("b", limit=100).events}

    then = view.why("b", at_tick=1, limit=100)

    assert then.tick == 1
    assert {event.correlation_id for event in then.events} == {"basket-0"}
    assert {str(event) for event in then.events} < now
    assert [row["n"] for row in view.history(as_of=1).to_pylist() if row["page"] == "b"] == [len(then.events)]
    with pytest.raises(OffsetOutOfRange, match='the history of view "pages" at tick 9 is not kept'):
        view.why("b", at_tick=9)


def test_a_row_that_is_not_there_and_a_wrong_key_are_told(shop):
    pages, filtered = shop.app.get_view("pages"), shop.app.get_view("filtered")

    with pytest.raises(UnknownRow, match=r'view "pages" has no row \{"page":"z"\} at tick 2'):
        pages.why("z")
    with pytest.raises(RowRefused, match="order_id"):
        filtered.why("seven")
    with pytest.raises(Misuse, match=r"the key of view \"pages\" is \(page\), and 2 values were given"):
        pages.why("a", "b")
    with pytest.raises(Misuse, match='view "pages" has no column "pge"'):
        pages.why(pge="a")


def test_a_multiset_a_function_and_an_explosion(tmp_path):
    app = hw.App("shop", home=tmp_path / "home")
    basket = app.table("basket", "fruit STRING, n BIGINT")
    app.view("fruits", "SELECT fruit, sum(n) AS n FROM basket GROUP BY fruit")
    app.view("parts", "SELECT fruit, part FROM basket LATERAL VIEW explode(sequence(1, n)) AS part")

    @app.view_function(inputs=["basket"], by="fruit")
    def most(basket):
        from pyspark.sql import functions as f

        return basket.groupBy("fruit").agg(f.max("n").alias("n"))

    basket.insert([{"fruit": "fig", "n": 1}, {"fruit": "fig", "n": 2}, {"fruit": "pear", "n": 3}])
    basket.delete([{"fruit": "fig", "n": 1}])
    app.tick()

    fruits = app.get_view("fruits").why("fig")
    parts = app.get_view("parts").why(fruit="pear", part=2)
    by_key = app.get_view("most").why(fruit="fig")

    assert [(str(event), event.weight) for event in fruits.events] == [("basket[0]@1", 1)]
    assert [str(event) for event in parts.events] == ["basket[0]@2"]
    assert [str(event) for event in by_key.events] == ["basket[0]@1"]
    assert (by_key.exact, by_key.steps[0].rule) == (False, "all rows with the same fruit")
    app.close()


SESSIONS = {
    "whole": "SELECT session_window(at, '10 seconds') AS span, page, count(*) AS n FROM clicks "
    "GROUP BY session_window(at, '10 seconds'), page",
    "begins": "SELECT date_format(session_window.start, 'HH:mm:ss') AS begin, page, count(*) AS n FROM clicks "
    "GROUP BY session_window(at, '10 seconds'), page HAVING count(*) > 1",
    "hidden": "SELECT page, count(*) AS n FROM clicks GROUP BY session_window(at, '10 seconds'), page",
    "alone": "SELECT session_window(at, '10 seconds').end AS end, count(*) AS n FROM clicks "
    "GROUP BY session_window(at, '10 seconds')",
}


def sessions_of(rows: list[dict]) -> list[list[dict]]:
    """By a walk through time: a row that comes ten seconds or more after the one before begins another."""
    found: list[list[dict]] = []
    for row in sorted(rows, key=lambda row: row["at"]):
        if found and row["at"] - found[-1][-1]["at"] < dt.timedelta(seconds=10):
            found[-1].append(row)
        else:
            found.append([row])
    return found


@pytest.mark.parametrize("view", SESSIONS)
def test_the_rows_of_a_session_are_told_whether_it_is_shown_or_not(tmp_path, view):
    chance, begin = random.Random(view), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    seconds = [number + (number % 10 == 0) for number in chance.sample(range(300), 40)]  # none exactly a gap apart
    rows = [
        {"id": id, "page": chance.choice("ab"), "at": begin + dt.timedelta(seconds=second, milliseconds=id)}
        for id, second in enumerate(seconds)
    ]
    with hw.App("shop", home=tmp_path / "home") as app:
        clicks = app.topic("clicks", "id BIGINT, page STRING, at TIMESTAMP", event_time="at")
        made = app.view(view, SESSIONS[view])
        clicks.append(rows)
        app.tick()
        pages = [rows] if view == "alone" else [[row for row in rows if row["page"] == page] for page in "ab"]
        sessions = [session for page in pages for session in sessions_of(page)]

        def shown(session: list[dict]) -> dict:
            first, end = session[0]["at"], session[-1]["at"] + dt.timedelta(seconds=10)
            page, n = {"page": session[0]["page"]}, {"n": len(session)}
            return {
                "whole": {"span": {"start": first, "end": end}, **page, **n},
                "begins": {"begin": f"{first:%H:%M:%S}", **page, **n},
                "hidden": {**page, **n},
                "alone": {"end": end, **n},
            }[view]

        asked = [session for session in sessions if view != "begins" or len(session) > 1]
        for session in chance.sample(asked, thorough(2)):
            found = made.why(**shown(session), limit=100)

            behind = [row["id"] for each in sessions if shown(each) == shown(session) for row in each]
            assert sorted(event.row["id"] for event in found.events) == sorted(behind)
            assert found.exact


def test_late_rows_are_not_behind_a_final_row(tmp_path):
    app = hw.App("shop", home=tmp_path / "home")
    clicks = app.topic("clicks", "page STRING, at TIMESTAMP", event_time="at")
    begin = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    app.view(
        "minutes",
        "SELECT window(at, '1 minute').start AS minute, page, count(*) AS n FROM clicks "
        "GROUP BY window(at, '1 minute'), page",
        emit="final",
    )
    early = [{"page": "a", "at": begin + dt.timedelta(seconds=second)} for second in (1, 2)]
    clicks.append([*early, {"page": "b", "at": begin + dt.timedelta(seconds=3)}])
    app.tick()
    clicks.append([{"page": "a", "at": begin + dt.timedelta(minutes=3)}])
    app.tick()
    clicks.append([early[0]])  # too late
    clicks.append([{"page": "a", "at": begin + dt.timedelta(minutes=9)}])
    app.tick()
    app.tick()

    (row,) = [row for row in app.get_view("minutes").rows() if row["minute"] == begin and row["page"] == "a"]
    found = app.get_view("minutes").why(**row)

    assert row["n"] == 2
    assert [str(event) for event in found.events] == ["clicks[0]@0", "clicks[0]@1"]
    app.close()


def test_the_command_line_tells_the_same(shop):
    headwater = CommandLine(shop.app.home)

    shown = headwater("why", "pages", "a", "--limit", "2")
    country = next(shop.app.get_view("rich").rows())["country"]
    found = headwater.json("why", "rich", f"country={country}", "--at-tick", "2")
    wrong = headwater.error("why", "filtered", "seven")

    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[:2] == [
        "pages at tick 2",
        f"  {json_line(shop.app.get_view('pages').get('a')[0])}",
    ]
    assert "actor anna" in shown.stdout
    told = shop.app.get_view("rich").why(country=country)
    assert [each["record"] for part in found["inputs"] for each in part["events"]] == list(map(str, told.events))
    assert wrong["message"] == "'seven' is no value of column \"order_id\""


def test_counts_of_rows_are_of_bags(shop):
    """Two equal rows of a view are one question."""
    found = shop.app.get_view("either").why(id=1, what="o", limit=100)

    assert Counter(row["what"] for row in found.rows) == {"o": len(found.inputs[0].events)}


def test_a_report_is_written_with_the_rule_and_what_the_reader_may_see(tmp_path):
    headwater = CommandLine(tmp_path / "home")
    privacy = {"id": hw.Personal("user_id"), "mail": hw.Personal("user_id", by="id", mask="redact")}
    with hw.App("bank", home=headwater.home) as app:
        users = app.table("users", "id BIGINT, mail STRING", key="id", privacy=privacy)
        app.view("mails", "SELECT id, upper(mail) AS mail FROM users WHERE id < 9")
        users.upsert([{"id": 7, "mail": "marker"}, {"id": 8, "mail": "other"}], metadata=hw.Metadata(actor="anna"))
        app.tick()

    page, text = tmp_path / "why.html", tmp_path / "why.md"
    written = [
        headwater("why", "mails", "id=7", "--report", str(page)),
        headwater("why", "mails", "id=7", "--report", str(text), "--unmasked"),
    ]
    refused = headwater.error("why", "mails", "id=7", "--report", str(tmp_path / "why.pdf"))

    assert [each.exit_code for each in written] == [0, 0]
    assert "WHERE id &lt; 9" in page.read_text()
    assert "users[0]@0" in page.read_text()
    assert "marker" not in page.read_text().lower()
    assert "MARKER" in text.read_text()
    assert "anna" in text.read_text()
    assert "ends in .html or .md" in refused["hint"]
    assert not (tmp_path / "why.pdf").exists()
