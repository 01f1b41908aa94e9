"""The examples do what they say: rows come, change and leave, and the views follow."""

from __future__ import annotations

import datetime as dt
import runpy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


pytestmark = pytest.mark.usefixtures("spark")


def minutes(count: float) -> dt.datetime:
    return NOON + dt.timedelta(minutes=count)


@contextmanager
def example(name: str, home: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the file declares; every view is verified at the end."""
    monkeypatch.setenv(home, str(folder))
    found = runpy.run_path(str(EXAMPLES / f"{name}.py"))
    with found["app"] as app:
        yield found
        assert all(each.equal for each in app.verify())


def test_a_timeline_follows_posts_deletes_follows_and_unfollows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with example("home_timeline", "TIMELINE_HOME", tmp_path, monkeypatch) as made:
        app, posts, follows = made["app"], made["posts"], made["follows"]
        follows.upsert([{"follower": 1, "followee": 2}, {"follower": 1, "followee": 3}, {"follower": 4, "followee": 2}])
        posts.upsert([{"id": n, "author": 2 + n % 2, "text": f"post {n}", "at": minutes(n)} for n in range(120)])
        app.tick()
        assert [row["id"] for row in newest(app, 1)] == list(range(119, 69, -1))
        assert [row["id"] for row in newest(app, 4)] == list(range(118, 18, -2))

        posts.delete([{"id": 118}])
        follows.delete([{"follower": 1, "followee": 3}])
        app.tick()
        assert [row["id"] for row in newest(app, 1)] == list(range(116, 16, -2))
        assert newest(app, 4) == [{**row, "follower": 4} for row in newest(app, 1)]
        assert app.get_view("reach").get(2) == [{"author": 2, "followers": 2}]


def newest(app: Any, follower: int) -> list[dict[str, Any]]:
    return sorted(app.get_view("timeline").get(follower=follower), key=lambda row: row["at"], reverse=True)


def test_a_click_through_rate_is_corrected_by_late_clicks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with example("click_through_rate", "SEARCH_HOME", tmp_path, monkeypatch) as made:
        app, searches, clicks = made["app"], made["searches"], made["clicks"]
        clicks.append([{"search_id": 1, "page": "/a", "at": minutes(5)}])  # before its search is known
        searches.append([{"id": n, "query": "hats", "at": minutes(n)} for n in (1, 2)])
        app.tick()
        assert [row["rate"] for row in app.get_view("click_through").get(query="hats")] == [0.5]

        clicks.append([{"search_id": 2, "page": "/b", "at": minutes(at)} for at in (62.5, 30, 31)])
        app.tick()
        assert [row["rate"] for row in app.get_view("click_through").get(query="hats")] == [1.0]
        assert app.get_view("unanswered").get(query="hats") == []

        searches.delete([{"id": 1}])
        searches.append([{"id": 2, "query": "hats", "at": minutes(32)}])  # corrected: only the click of 62.5 counts
        app.tick()
        (answer,) = app.get_view("answered").get(id=2)
        assert answer["clicked"] == minutes(62.5)


def test_a_late_visit_makes_one_session_of_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with example("sessions", "VISITS_HOME", tmp_path, monkeypatch) as made:
        app, visits = made["app"], made["visits"]
        visits.append(
            [{"user_id": 1, "page": page, "at": minutes(at)} for page, at in (("/", 0), ("/a", 10), ("/b", 50))]
        )
        visits.append([{"user_id": 2, "page": "/", "at": minutes(0)}])
        app.tick()
        assert [(row["begins"], row["visits"]) for row in sorted_sessions(app, 1)] == [
            (minutes(0), 2),
            (minutes(50), 1),
        ]

        visits.append([{"user_id": 1, "page": "/a", "at": minutes(30)}])
        app.tick()
        (session,) = sorted_sessions(app, 1)
        assert (session["visits"], session["pages"], session["entered"], session["left"]) == (4, 3, "/", "/b")
        (hour,) = app.get_view("hours").get(hour=NOON)
        assert (hour["sessions"], hour["visits"], hour["bounced"]) == (2, 2.5, 0.5)
        assert [row["sessions"] for row in app.get_view("entrances").get(page="/")] == [2]


def sorted_sessions(app: Any, user: int) -> list[dict[str, Any]]:
    return sorted(app.get_view("sessions").get(user_id=user), key=lambda row: row["begins"])


def test_an_alarm_is_raised_once_when_its_five_minutes_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with example("fraud_rate", "PAYMENTS_HOME", tmp_path, monkeypatch) as made:
        app, payments = made["app"], made["payments"]

        def pay(country: str, refused: int, of: int, at: float) -> None:
            payments.append(
                [
                    {"id": n, "country": country, "amount": 1, "refused": n < refused, "at": minutes(at)}
                    for n in range(of)
                ]
            )

        pay("DE", refused=10, of=30, at=1)
        pay("FR", refused=1, of=30, at=2)
        app.tick()
        assert app.sql("SELECT * FROM alarms").num_rows == 0  # the five minutes are not over

        pay("FR", refused=0, of=1, at=6)
        app.tick()
        assert app.sql("SELECT * FROM rates").num_rows == 2

        pay("DE", refused=0, of=30, at=3)  # too late to call it off
        app.tick()
        (alarm,) = app.sql("SELECT * FROM alarms").to_pylist()
        assert (alarm["since"], alarm["country"], round(alarm["rate"], 3)) == (minutes(0), "DE", 0.333)
        assert app.get_view("rates").late_rows() == [{"topic": "payments", "producer": "(no name)", "rows": 30}]
        raised = [row["_change_type"] for table in app.get_view("alarms").changes() for row in table.to_pylist()]
        assert raised == ["insert"]


def test_metrics_are_corrected_by_late_and_repeated_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with example("metrics", "METRICS_HOME", tmp_path, monkeypatch) as made:
        app, samples = made["app"], made["samples"]

        def sample(name: str, kind: str, value: float, second: float, host: str = "a", again: str = "") -> None:
            key = again or f"{host}.{name}.{second}"
            at = NOON + dt.timedelta(seconds=second)
            samples.append([{"id": key, "host": host, "name": name, "kind": kind, "value": value, "at": at}])

        for second in range(0, 20, 2):
            sample("hits", "c", 3, second)
            sample("took", "ms", second, second)
            sample("open", "g", second, second)
        app.tick()
        sample("hits", "c", 5, 1, host="b")  # a host that was cut off
        sample("hits", "c", 3, 2, again="a.hits.2")  # sent again: counts once
        sample("hits", "c", 4, 4, again="a.hits.4")  # corrected
        sample("open", "g", 100, 3, host="b")
        app.tick()

        def first(view: str, column: str) -> list[float]:
            rows = app.sql(f"SELECT * FROM {view}").sort_by("since").to_pylist()
            return [row[column] for row in rows]

        assert first("counters", "total") == [21, 15]
        assert first("gauges", "value") == [108, 18]
        assert first("timings", "p50") == [4, 14]
        assert first("against_the_step_before", "change") == [None, pytest.approx(-0.6)]

        statsd = {
            "type": "c",
            "metric": "hits",
            "value": 2.0,
            "delta": False,
            "sample_rate": 0.5,
            "tags": {"host": "c"},
        }
        app.log.get_topic("statsd").append([{**statsd, "received_at": NOON + dt.timedelta(seconds=5)}])
        app.tick()

        assert first("counters", "total") == [25, 15]


def test_media_monitoring_tells_owners_and_takes_back_what_was_withdrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with example("media_monitoring", "MEDIA_HOME", tmp_path, monkeypatch) as made:
        app, articles, watch = made["app"], made["articles"], made["watch"]
        watch.put("floods", "flooding AND reach:>1000", owner="ada")
        watch.put("german", 'language:de "high water"', owner="ben")
        base = {"outlet": "Post", "published": NOON, "body": ""}
        articles.upsert(
            [
                {**base, "id": 1, "title": "The river floods", "language": "en", "reach": 5000},
                {**base, "id": 2, "title": "High water", "language": "de", "reach": 10},
            ]
        )
        app.tick()
        told = {(row["owner"], row["document"], row["title"]) for row in app.get_view("mentions").rows()}
        assert told == {("ada", 1, "The river floods"), ("ben", 2, "High water")}

        articles.delete([{"id": 1}])
        app.get_table("watch_searches").upsert([{"id": "odd", "query": 'title:"', "owner": "eve"}])
        app.tick()
        assert [row["owner"] for row in app.get_view("mentions").rows()] == ["ben"]
        assert [row["search"] for row in app.get_view("broken_searches").rows()] == ["odd"]


def test_a_stolen_card_is_blocked_by_a_command_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with example("stolen_card", "BANK_HOME", tmp_path, monkeypatch) as made:
        app, payments, stolen, cards = made["app"], made["payments"], made["stolen"], made["cards"]

        def pay(card: str, *paid: tuple[int, float]) -> None:
            payments.append([{"card": card, "amount": amount, "at": minutes(at)} for amount, at in paid])

        pay("c-7", (1, 0), (2, 1), (500, 4))
        pay("c-8", (1, 0), (2, 5), (1, 9), (500, 10.5))  # within more than ten minutes
        app.tick()
        assert (stolen.drain(), list(cards.ids())) == (0, [])

        pay("c-7", (3, 2))  # comes late, and makes it three small ones
        app.tick()
        assert (stolen.drain(), stolen.drain()) == (1, 0)
        assert (list(cards.ids()), cards.get("c-7").reason) == (["c-7"], "3 small ones, then 500.00")

        pay("c-7", (1, 20), (1, 21), (1, 22), (900, 23))  # the command is refused: the card is blocked already
        app.tick()
        stolen.drain()
        assert [event.type for event in cards.history("c-7")] == ["was_blocked", "rejected"]
        assert [violation.status for violation in stolen.violations()] == ["refused"]


def test_machines_that_fall_silent_are_told_and_price_moves_are_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with example("silent_machines", "PLANT_HOME", tmp_path, monkeypatch) as made:
        app, beats, prices = made["app"], made["beats"], made["prices"]

        def told() -> list[tuple[str, dt.datetime]]:
            return [(row["machine"], row["last_seen"]) for row in app.get_view("silent").rows()]

        beats.append([{"machine": "press", "at": minutes(at)} for at in (0, 0.5, 1)])
        beats.append([{"machine": "saw", "at": minutes(0)}])
        app.tick()
        assert told() == []  # the saw's minute is over only when the watermark has passed it
        beats.append([{"machine": "press", "at": minutes(at)} for at in (1.5, 2)])
        app.tick()
        assert told() == [("saw", minutes(0))]

        prices.append(
            [{"symbol": "ACME", "price": price, "at": minutes(at)} for at, price in enumerate((10.0, 11, 12, 11))]
        )
        app.tick()
        assert list(app.get_view("rises").rows()) == []
        prices.append([{"symbol": "ACME", "price": 11.5, "at": minutes(1.5)}])  # late: the third rise
        app.tick()
        assert list(app.get_view("rises").rows()) == [{"symbol": "ACME", "since": minutes(0), "gain": 2.0, "steps": 3}]
