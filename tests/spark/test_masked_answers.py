"""No route shows a key without the right the values of a masked column: a person is in every place of an app.

What it is: every route that reads, asked with a key without the right and with one that has it; the person's values are
looked for in the raw bytes of the answers.
Invariants: a route that is in the server's table of rights and not here fails the test. The key with the right finds
the values where the other does not: so the requests ask for what is there.
Not here: what is personal (``tests/unit/views/test_personal_data.py``), which key may call what
(``tests/unit/server/test_rights.py``).
Read next: ``people_app.py``; ``docs/privacy.md``.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

import headwater as hw
from headwater.app_file import app_of
from headwater.log.maintenance.audit_trail import AUDIT_TOPIC
from headwater.server.http.keys import Holder, Keys
from headwater.server.http.masked_answers import MaskedAnswers
from headwater.views.privacy.hidden_columns import hidden_from_json
from tests.services.server.processes import ServerProcess
from tests.unit.server.test_rights import RIGHTS

APP = Path(__file__).parent / "people_app.py"
NOON = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)
VALUES = (b"marker", b"918273645", b"918273646")  # in small letters; the number, and what a view computes of it
SHOWN, REFUSED, NOTHING = "shown masked", "refused", "has no values"

# The route, what a key without the right gets, and requests.
ASKED: list[tuple[str, str, str, dict[str, Any]]] = [
    ("GET /v1/topics/{topic}/records", SHOWN, "/v1/topics/users/records", {}),
    ("GET /v1/topics/{topic}/records", SHOWN, "/v1/topics/visits/records?from=-20", {}),
    ("GET /v1/topics/{topic}/records", SHOWN, "/v1/topics/pages.late/records", {}),
    ("GET /v1/topics/{topic}/records", SHOWN, "/v1/topics/users.mailers.dead/records", {}),
    ("GET /v1/topics/{topic}/records", SHOWN, "/v1/topics/people_changes/records", {}),
    ("GET /v1/topics/{topic}/records", SHOWN, "/v1/topics/account/records", {}),
    ("POST /v1/topics/{topic}/groups/{group}/take", SHOWN, "/v1/topics/users/groups/{key}/take", {"json": {}}),
    ("GET /v1/aggregates/{name}", REFUSED, "/v1/aggregates/account?newest=5", {}),
    ("GET /v1/aggregates/{name}/{id}", REFUSED, "/v1/aggregates/account/marker-account", {}),
    ("GET /v1/aggregates/{name}/{id}/history", REFUSED, "/v1/aggregates/account/marker-account/history", {}),
    ("GET /v1/claims/{name}/{value}", REFUSED, "/v1/claims/mails/marker-claim", {}),
    ("GET /v1/searches/{name}", REFUSED, "/v1/searches/watch", {}),
    ("GET /v1/searches/{name}/{id}", REFUSED, "/v1/searches/watch/marker-one", {}),
    ("POST /v1/searches/{name}/percolate", REFUSED, "/v1/searches/watch/percolate", {"json": {"name": "marker"}}),
    ("GET /v1/views/{view}/why", REFUSED, "/v1/views/people/why?key=1", {}),
    ("GET /v1/views/{view}/pattern", REFUSED, "/v1/views/steps/pattern", {}),
    ("GET /v1/search/{sink}", REFUSED, "/v1/search/index?q=marker", {}),
    *[
        (f"GET /v1/views/{{view}}/{what}", SHOWN, f"/v1/views/{view}/{what}{more}", {})
        for view in ("people", "contacts", "by_mail", "countries", "pages", "unnamed", "steps", "shouted", "watch")
        for what, more in (("rows", ""), ("history", "?tick={tick}"), ("changes", "?from_tick={first}"))
        if (view, what) != ("watch", "changes")
    ],
    ("GET /v1/views/{view}/rows", SHOWN, "/v1/views/people/rows?key=1", {}),
    ("GET /v1/views/{view}/rows", REFUSED, '/v1/views/people/rows?where={{"email": "marker@x.org"}}', {}),
    ("GET /v1/views/{view}/rows", REFUSED, "/v1/views/by_mail/rows?key=marker@x.org", {}),
    *[
        ("POST /v1/query", SHOWN, "/v1/query", {"json": {"sql": sql}})
        for sql in (
            "SELECT * FROM people",
            "SELECT * FROM contacts",
            "SELECT max(who) AS m, upper(who) AS u, json_group_array(next) AS j FROM contacts GROUP BY id",
            "SELECT p.email FROM people p JOIN by_mail USING (email) ORDER BY p.email",
            "SELECT p.email AS x, b.email FROM people p LEFT JOIN by_mail b ON p.email = b.email WHERE p.email > 'a'",
            "WITH w AS (SELECT * FROM people) SELECT name || number AS x FROM w WHERE name LIKE 'Marker%' OR id > 0",
            "SELECT group_concat(name, number) AS x FROM people GROUP BY email HAVING max(name) IS NOT NULL OR true",
            "SELECT * FROM (SELECT email FROM people UNION SELECT name FROM people) ORDER BY 1",
            "SELECT quote(email) AS q, (SELECT max(name) FROM people) AS n FROM people",
            "SELECT first_value(name) OVER (ORDER BY email) AS f FROM people",
        )
    ],
]
# Routes that tell of declarations, counts and positions.
WITHOUT_VALUES = """
GET /v1/app
GET /v1/status
GET /v1/events
GET /v1/history
GET /metrics
GET /v1/topics
GET /v1/topics/{topic}
GET /v1/topics/{topic}/groups
GET /v1/topics/{topic}/groups/{group}
POST /v1/topics/{topic}/groups/{group}/consumers
POST /v1/topics/{topic}/groups/{group}/ack
POST /v1/topics/{topic}/groups/{group}/nack
POST /v1/topics/{topic}/groups/{group}/extend
POST /v1/consumers/{id}/commit
POST /v1/consumers/{id}/heartbeat
DELETE /v1/consumers/{id}
GET /v1/lag
GET /v1/aggregates
GET /v1/processes
GET /v1/services
GET /v1/searches
GET /v1/views
GET /v1/views/{view}
"""
# Asked in tests of their own below, or with the same check as claims and aggregates.
ELSEWHERE = """
POST /v1/consumers/{id}/poll
GET /v1/views/{view}/subscribe
GET /v1/searches/{name}/{id}/subscribe
GET /v1/processes/{name}
GET /v1/processes/{name}/{id}
"""
People = tuple[hw.App, ServerProcess, dict[str, str]]


@pytest.fixture(scope="module")
def people(spark: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    del spark  # it ticks
    folder = tmp_path_factory.mktemp("people")
    os.environ["SERVED_SHOP_HOME"] = str(folder / "home")
    keys = Keys(folder / "keys.json")
    scopes = ["query", "consume", "produce"]
    made = {
        "without": keys.add("without", scopes),
        "with": keys.add("with", [*scopes, "personal"]),
        "billing": keys.add("billing", scopes, purposes=["billing"]),
    }
    with app_of(APP) as app:
        users, visits = app.get_table("users"), app.get_topic("visits")
        users.upsert(
            [
                {"id": 1, "email": "marker@x.org", "name": "Marker Person", "number": 918273645, "country": "DE"},
                {"id": 2, "email": "other@x.org", "name": "Marker Person", "number": 7, "country": "DE"},
            ]
        )
        visits.append([{"user_id": 1, "page": "/marker", "at": NOON}])
        app.get_searches("watch").put("marker-one", "marker")
        app.get_aggregate("account").send("marker-account", "open", owner="marker")
        app.get_claims("mails").claim("marker-claim", owner="marker")
        app.tick()
        users.upsert([{"id": 2, "email": "marker2@x.org", "name": "Marker", "number": 918273645, "country": "FR"}])
        visits.append([{"user_id": 2, "page": "/marker2", "at": NOON + dt.timedelta(hours=9)}])
        app.tick()
        visits.append([{"user_id": 2, "page": "/marker-late", "at": NOON}])
        app.tick()
        with users.topic.worker("mailers", deliveries_max=1) as worker:
            worker.reject(worker.take(1, timeout=5), "marker was not understood")
        server = ServerProcess(app.log.home, "--key-file", str(keys.path), app=APP)
        yield app, server, made
        server.stop()


def test_every_route_that_reads_is_here() -> None:
    reading = {
        f"{method} {path}" for (method, path), (scopes, _) in RIGHTS.items() if scopes not in ("produce", "admin")
    }
    told = {*WITHOUT_VALUES.strip().splitlines(), *ELSEWHERE.strip().splitlines()}

    assert reading - {route for route, *_ in ASKED} - told == set()
    assert told <= reading


@pytest.mark.parametrize(("route", "expected", "path", "more"), ASKED, ids=[f"{each[2]} {each[3]}" for each in ASKED])
def test_a_route_shows_the_values_to_keys_with_the_right_alone(
    people: People, route: str, expected: str, path: str, more: dict[str, Any]
) -> None:
    app, server, keys = people
    method, tick = route.split(" ")[0], app._runtime.manifests.tick()

    def asked(key: str, **headers: str) -> httpx.Response:
        where = path.format(key=key, tick=tick - 1, first=1)
        with_key = {"authorization": f"Bearer {keys[key]}", **headers}
        return server.http.request(method, where, headers=with_key, **more)

    hidden, shown = asked("without"), asked("with")
    arrow = asked("without", accept="application/vnd.apache.arrow.stream")

    assert hidden.status_code == (403 if expected == REFUSED else 200), hidden.text
    for answer in (hidden, arrow):
        said = answer.content.lower()
        if expected == REFUSED:
            said = said.replace(b"marker@x.org", b"")  # what was asked
        assert not [value for value in VALUES if value in said], said
    # Some are answered by an engine, which this server has not; a page of changes may be behind the tick.
    engine = shown.status_code == 503 and shown.json()["error"]["code"] == "engine_unavailable"
    assert engine or any(value in shown.content.lower() for value in VALUES), shown.text


@pytest.mark.parametrize("view", ["people", "contacts", "shouted"])
def test_subscribers_get_masked_snapshots_and_changes(people: People, view: str) -> None:
    _, server, keys = people
    told: dict[str, str] = {}
    for who in ("without", "with"):
        headers = {"authorization": f"Bearer {keys[who]}"}
        for start in ("", "?from_tick=2"):
            path = f"/v1/views/{view}/subscribe{start}"
            with server.http.stream("GET", path, headers=headers) as stream:
                told[who + start] = first_message(stream)
            with connect(f"ws{server.address.removeprefix('http')}{path}", additional_headers=headers) as socket:
                told[who + start] += str(socket.recv(timeout=60))

    for who, said in told.items():
        found = [value for value in VALUES if value in said.encode().lower()]
        assert bool(found) == (not who.startswith("without")), (who, said)


def test_a_subscriber_gets_a_new_snapshot_when_another_column_is_masked(people: People) -> None:
    app, server, keys = people
    users = app.get_table("users")
    headers = {"authorization": f"Bearer {keys['without']}"}
    with server.http.stream("GET", "/v1/views/people/subscribe", headers=headers) as stream:
        first = json.loads(first_message(stream))
        before = users.privacy
        users.topic.log.topic(
            "users", users.topic.schema, privacy={**before, "country": hw.Personal("user_id", by="id", mask="null")}
        )
        try:
            with server.http.stream(
                "GET", f"/v1/views/people/subscribe?token={first['token']}", headers=headers
            ) as again:
                second = json.loads(first_message(again))
        finally:
            users.topic.log.topic("users", users.topic.schema, privacy=before)

    assert {row["country"] for row in first["rows"]} == {"DE", "FR"}
    assert (second["reset"], {row["country"] for row in second["rows"]}) == (True, {None})


def first_message(stream: httpx.Response) -> str:
    assert stream.status_code == 200, stream.read()
    return next(line.removeprefix("data: ") for line in stream.iter_lines() if line.startswith("data: "))


def test_the_matches_of_a_search_over_people_are_refused(people: People) -> None:
    _, server, keys = people

    refused = server.get(
        "/v1/searches/watch/marker-one/subscribe", 403, headers={"authorization": f"Bearer {keys['without']}"}
    )

    assert "marker" not in json.dumps(refused).lower()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v1/searches/watch/{who}", {"query": "Marker"}),
        ("POST", "/v1/topics/watch_searches/records", {"id": "{who}", "query": "Marker"}),
        ("POST", "/v1/tables/watch_searches/rows", {"id": "{who}", "query": "Marker"}),
        (
            "POST",
            "/v1/transactions",
            {"operations": [{"table": "watch_searches", "upsert": [{"id": "{who}", "query": "Marker"}]}]},
        ),
    ],
)
def test_nobody_learns_a_masked_value_by_a_search_of_his_own(
    people: People, method: str, path: str, body: dict[str, Any]
) -> None:
    _, server, keys = people

    def asked(who: str) -> httpx.Response:
        text = json.dumps(body).replace("{who}", who)
        headers = {"authorization": f"Bearer {keys[who]}", "content-type": "application/json"}
        return server.http.request(method, path.format(who=who), content=text, headers=headers)

    refused, taken = asked("without"), asked("with")

    assert (refused.status_code, taken.status_code) == (403, 200), (refused.text, taken.text)
    assert "is masked for it" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/claims/mails/marker-claim", {"owner": "me"}),
        ("/v1/claims/mails/marker-claim/release", {"owner": "me", "claim": "c"}),
        ("/v1/claims/mails/marker-claim/release", {"owner": "me", "claim": "c", "to": "you"}),
    ],
)
def test_a_refused_claim_tells_its_owner_to_those_who_may_see_it(
    people: People, path: str, body: dict[str, Any]
) -> None:
    _, server, keys = people

    told = {
        who: server.post(path, body, 422, headers={"authorization": f"Bearer {keys[who]}"})["error"]
        for who in ("without", "with")
    }

    assert "marker" not in json.dumps(told["without"])
    assert told["with"]["data"]["owner"] == "marker"


def test_a_consumer_of_a_group_gets_masked_rows(people: People) -> None:
    _, server, keys = people
    said = {}
    for who in ("without", "with"):
        headers = {"authorization": f"Bearer {keys[who]}"}
        about = server.post(f"/v1/topics/users/groups/polls-{who}/consumers", {}, 201, headers=headers)
        said[who] = json.dumps(server.post(f"/v1/consumers/{about['consumer']}/poll", {"wait": 10}, headers=headers))

    assert "marker" not in said["without"].lower()
    assert "918273645" not in said["without"]
    assert "Marker Person" in said["with"]


def test_a_purpose_shows_the_columns_of_that_purpose(people: People) -> None:
    _, server, keys = people
    headers = {"authorization": f"Bearer {keys['billing']}"}

    read = server.get("/v1/views/people/rows?key=1", headers=headers)
    asked = server.post("/v1/query", {"sql": "SELECT email, name FROM people WHERE id = 1"}, headers=headers)
    by_mail = server.get("/v1/views/by_mail/rows?key=marker@x.org", headers=headers)

    assert (read["masked"], read["rows"][0]["email"], read["rows"][0]["name"]) == (
        ["name", "number"],
        "marker@x.org",
        "***",
    )
    assert asked["rows"] == [{"email": "marker@x.org", "name": None}]
    assert by_mail["rows"] == [{"email": "marker@x.org", "users": 1}]


def test_equal_values_have_equal_hashes_in_all_places(people: People) -> None:
    _, server, keys = people
    headers = {"authorization": f"Bearer {keys['without']}"}

    row = server.get("/v1/views/people/rows?key=1", headers=headers)["rows"][0]
    record = server.get("/v1/topics/users/records", headers=headers)["rows"][0]
    grouped = server.get("/v1/views/by_mail/rows", headers=headers)["rows"]

    assert row["email"] == record["email"]
    assert row["email"] in [each["email"] for each in grouped]
    assert (row["name"], row["number"], row["country"]) == ("***", None, "DE")


def test_a_masked_sink_gets_masked_rows_and_changes(people: People) -> None:
    app, server, keys = people
    home = app.log.home
    row = server.get("/v1/views/people/rows?key=1", headers={"authorization": f"Bearer {keys['without']}"})["rows"][0]

    states = {sink.name: sink.status() for sink in app.sinks}
    refused = states.pop("numbers_masked")
    with sqlite3.connect(f"{home}-people.db") as copy:
        copied = dict(copy.execute("SELECT id, email FROM people"))
    with sqlite3.connect(f"{home}-mails.db") as copy:
        mails = [mail for (mail,) in copy.execute("SELECT email FROM by_mail")]
    told = str(list(app.get_topic("contacts_masked").rows())).encode().lower()
    files = b"".join(path.read_bytes() for path in home.parent.glob("home-*.db*")).lower()

    assert {str(each.state) for each in states.values()} == {"following"}
    assert (str(refused.state), refused.error["message"]) == (
        "stopped",
        'a masked copy of view "numbers" has no key: number would be masked by null',
    )
    assert (copied[1], len(copied)) == (row["email"], 2)
    assert sorted(mails) == sorted(copied.values())
    assert b"***" in told
    assert not [value for value in VALUES if value in files + told]


@pytest.mark.parametrize(
    "source",
    [
        "people WHERE email = 'marker@x.org'",
        "people JOIN (SELECT 'marker@x.org' AS email) USING (email)",
        "people NATURAL JOIN (SELECT 'marker@x.org' AS email)",
        "people WHERE 'marker@x.org' IN (SELECT email FROM by_mail)",
        "people WHERE (email, 1) = ('marker@x.org', 1)",
        "by_mail WHERE email IS NOT NULL",
    ],
)
def test_a_query_cannot_find_out_whether_a_value_is_there(people: People, source: str) -> None:
    _, server, keys = people
    asked = {"sql": f"SELECT count(*) AS n FROM {source}"}

    found = {
        who: server.post("/v1/query", asked, headers={"authorization": f"Bearer {keys[who]}"})["rows"][0]["n"]
        for who in ("without", "with")
    }

    assert found["without"] == 0 < found["with"]


SPARK_QUERIES = (
    "SELECT email, name, number, _offset FROM users WHERE email LIKE 'marker%' OR id > 0",
    "SELECT * FROM contacts c JOIN people p USING (id) JOIN shouted s USING (id) JOIN unnamed u USING (id)",
    "SELECT * FROM visits",
)


def test_a_query_of_spark_gets_null_of_masked_columns(people: People) -> None:
    app, _, _ = people
    contents, shown = app._runtime.contents(), app._runtime.contents()
    contents.hidden = hidden_from_json(MaskedAnswers(app).hidden(Holder("without", frozenset({"query"}))))
    contents.admits = True

    for sql in SPARK_QUERIES:
        found = str(contents.query(sql).to_pylist()).encode().lower()
        assert not [value for value in VALUES if value in found], found
    assert "marker" in str(shown.query(SPARK_QUERIES[0]).to_pylist())


def test_what_a_key_was_shown_is_on_record_without_the_values(people: People) -> None:
    app, server, keys = people

    def told(who: str, path: str) -> list[Any]:
        answer = server.http.get(path, headers={"authorization": f"Bearer {keys[who]}"})
        assert answer.status_code == 200
        return list(app.log.get_topic(AUDIT_TOPIC).rows())[-1:]

    (point,), (masked,) = told("with", "/v1/views/people/rows?key=1"), told("without", "/v1/views/people/rows")

    personal = ["email", "id", "name", "number"]
    assert [point[name] for name in ("who", "relation", "columns", "rows")] == ["with", "people", personal, 1]
    assert [masked[name] for name in ("who", "relation", "columns", "rows")] == ["without", "people", ["id"], 2]
    trail = b"".join(path.read_bytes() for path in app.log.get_topic(AUDIT_TOPIC).directory.rglob("*.*"))
    assert not [value for value in VALUES if value in trail.lower()]
    assert app.log.maintain().ok
