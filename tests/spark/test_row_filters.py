"""No route shows a key a row of another tenant, whatever it asks; and what it shows are all of its own.

What it is: rows that come, change, go, and move from one tenant to another; then every route that reads is asked with
the key of each tenant, with one that has no claim, and with one for every row.
Invariants: the oracle is the rows themselves, kept in a dict. A route that is in the server's table of rights and not
here fails the test.
Not here: SQL of the serving store, with all that it could name (``tests/unit/views/serving/test_rows_shown.py``).
Read next: ``tenants_app.py``; ``docs/privacy.md``.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

import headwater as hw
from headwater.app_file import app_of
from headwater.errors import InvalidQuery
from headwater.server.http.keys import Holder, Keys
from headwater.server.http.masked_answers import MaskedAnswers
from headwater.views.privacy.hidden_columns import hidden_from_json
from tests.services.server.processes import ServerProcess
from tests.spark.test_masked_answers import WITHOUT_VALUES, first_message
from tests.unit.server.test_rights import RIGHTS

APP = Path(__file__).parent / "tenants_app.py"
TENANTS = ("a", "b", None)
Row = tuple[str | None, str]  # tenant, note

# What every key without the scope "rows" is refused, for rows of others may be in the answer.
REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    ("GET /v1/topics/{topic}/records", "/v1/topics/copies/records", {}),
    ("GET /v1/topics/{topic}/records", "/v1/topics/deals.workers.dead/records", {}),
    ("POST /v1/topics/{topic}/groups/{group}/take", "/v1/topics/deals/groups/takers/take", {"json": {}}),
    ("GET /v1/views/{view}/rows", "/v1/views/closed/rows", {}),
    ("GET /v1/views/{view}/rows", "/v1/views/closed/rows?key=1", {}),
    ("GET /v1/views/{view}/history", "/v1/views/closed/history?tick=2", {}),
    ("GET /v1/views/{view}/changes", "/v1/views/closed/changes", {}),
    ("GET /v1/views/{view}/subscribe", "/v1/views/closed/subscribe", {}),
    ("GET /v1/views/{view}/why", "/v1/views/open_deals/why?key=1", {}),
    ("GET /v1/views/{view}/why", "/v1/views/everybody/why?where={}", {}),
    ("GET /v1/views/{view}/pattern", "/v1/views/open_deals/pattern", {}),
    ("GET /v1/search/{sink}", "/v1/search/index?q=secret", {}),
    ("GET /v1/searches/{name}/{id}/subscribe", "/v1/searches/watch/one/subscribe", {}),
]
# Asked below, and what goes by the same check as REFUSED; what is of another topic has the rules of that one.
ELSEWHERE = """
GET /v1/topics/{topic}/records
POST /v1/consumers/{id}/poll
POST /v1/query
GET /v1/aggregates/{name}
GET /v1/aggregates/{name}/{id}
GET /v1/aggregates/{name}/{id}/history
GET /v1/claims/{name}/{value}
GET /v1/processes/{name}
GET /v1/processes/{name}/{id}
GET /v1/searches/{name}
GET /v1/searches/{name}/{id}
POST /v1/searches/{name}/percolate
"""


@dataclass
class Tenants:
    app: hw.App
    server: ServerProcess
    keys: dict[str, str]
    states: dict[int, dict[int, Row]] = field(default_factory=dict)  # after each tick
    calls: list[Row] = field(default_factory=list)

    @property
    def tick(self) -> int:
        return max(self.states)

    def get(self, who: str, path: str, status: int = 200, **more: Any) -> Any:
        answer = self.raw(who, "GET", path, **more)
        assert answer.status_code == status, answer.text
        return answer.json()

    def raw(self, who: str, method: str, path: str, **more: Any) -> Any:
        return self.server.http.request(method, path, headers={"authorization": f"Bearer {self.keys[who]}"}, **more)

    def rows(self, tenant: str, tick: int | None = None) -> list[dict[str, Any]]:
        """What is this tenant's, by the dict."""
        found = self.states[tick or self.tick].items()
        return [{"id": key, "tenant": row[0], "note": row[1]} for key, row in sorted(found) if row[0] == tenant]


def sorted_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


@pytest.fixture(scope="module")
def tenants(spark: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    del spark  # it ticks
    folder = tmp_path_factory.mktemp("tenants")
    os.environ["SERVED_SHOP_HOME"] = str(folder / "home")
    keys = Keys(folder / "keys.json")
    scopes = ["query", "consume", "personal"]
    made = {name: keys.add(name, scopes, claims={"tenant": [name]}) for name in ("a", "b")}
    made |= {"none": keys.add("none", scopes, claims={"team": ["a"]}), "every": keys.add("every", [*scopes, "rows"])}
    chance, state = random.Random(7), dict[int, Row]()
    with app_of(APP) as app:
        deals, calls = app.get_table("deals"), app.get_topic("calls")
        found = Tenants(app, None, made)  # type: ignore[arg-type]
        for round in range(6):
            for key in chance.sample(range(8), 5):
                if key in state and chance.random() < 0.3:
                    deals.delete([{"id": key}])
                    del state[key]
                    continue
                tenant = chance.choice(TENANTS)
                state[key] = (tenant, f"secret-{tenant}-{chance.randrange(2)}")
                deals.upsert([{"id": key, "tenant": tenant, "note": state[key][1]}])
                found.calls.append(state[key])
                calls.append([{"tenant": tenant, "note": state[key][1]}])
            app.tick()
            found.states[app._runtime.manifests.tick()] = dict(state)
            del round
        with deals.topic.worker("workers", deliveries_max=1) as worker:
            worker.reject(worker.take(1, timeout=5), "it was not understood")
        app.get_searches("watch").put("one", "secret")
        found.server = ServerProcess(app.log.home, "--key-file", str(keys.path), app=APP)
        yield found
        found.server.stop()


def test_every_route_that_reads_is_here() -> None:
    reading = {
        f"{method} {path}" for (method, path), (scopes, _) in RIGHTS.items() if scopes not in ("produce", "admin")
    }
    told = {*WITHOUT_VALUES.strip().splitlines(), *ELSEWHERE.strip().splitlines()}

    assert reading - {route for route, *_ in REFUSED} - told == set()


@pytest.mark.parametrize(("route", "path", "more"), REFUSED, ids=[path for _, path, _ in REFUSED])
def test_what_may_have_rows_of_others_is_refused(tenants: Tenants, route: str, path: str, more: dict[str, Any]) -> None:
    method = route.split(" ")[0]
    for who in ("a", "none"):
        answer = tenants.raw(who, method, path, **more)

        assert answer.status_code == 403, answer.text
        assert "told apart" in answer.json()["error"]["message"]
        assert "secret" not in answer.text


@pytest.mark.parametrize("who", ["a", "b"])
def test_a_reader_sees_its_rows_all_of_them_and_no_others(tenants: Tenants, who: str) -> None:
    own = tenants.rows(who)
    other = "b" if who == "a" else "a"

    assert sorted_rows(tenants.get(who, "/v1/views/open_deals/rows?limit=1000")["rows"]) == own
    assert len(tenants.get(who, "/v1/views/open_deals/rows?limit=1")["rows"]) == min(1, len(own))
    for key in range(8):
        read = tenants.get(who, f"/v1/views/open_deals/rows?key={key}")["rows"]
        assert read == [row for row in own if row["id"] == key]
    where = json.dumps({"tenant": other})
    assert tenants.get(who, f"/v1/views/open_deals/rows?where={where}")["rows"] == []
    for tick in tenants.states:
        then = tenants.get(who, f"/v1/views/open_deals/history?tick={tick}")["rows"]
        assert sorted_rows(then) == tenants.rows(who, tick)
    asked = tenants.raw(who, "POST", "/v1/query", json={"sql": "SELECT * FROM open_deals ORDER BY id"}).json()
    counted = tenants.raw(who, "POST", "/v1/query", json={"sql": "SELECT sum(n) AS n FROM notes"}).json()
    assert (asked["rows"], counted["rows"][0]["n"] or 0) == (own, len(own))
    calls = tenants.get(who, "/v1/topics/calls/records?limit=1000")
    assert [(row["tenant"], row["note"]) for row in calls["rows"]] == [each for each in tenants.calls if each[0] == who]
    assert calls["count"] == len(calls["rows"])


@pytest.mark.parametrize("who", ["a", "b"])
def test_changes_lead_from_its_rows_to_its_rows_with_moves_as_deletes_and_inserts(tenants: Tenants, who: str) -> None:
    mine: dict[int, Row] = {}
    told = tenants.get(who, "/v1/views/open_deals/changes?from_tick=1")["ticks"]
    moved = 0
    for tick, state in tenants.states.items():
        changes = next((each["changes"] for each in told if each["tick"] == tick), [])
        before = tenants.states.get(tick - 1, {})
        for change in changes:
            key, row = change["id"], (change["tenant"], change["note"])
            if change["_change_type"] in ("delete", "update_preimage"):
                assert mine.pop(key) == row
            else:
                mine[key] = row
            both = before.get(key, (None,))[0] == state.get(key, (None,))[0] == who
            assert change["_change_type"].startswith("update") == both
            moved += key in before and key in state and not both
        assert mine == {key: row for key, row in state.items() if row[0] == who}

    assert moved  # else nothing was tried


def test_subscribers_and_consumers_get_their_rows(tenants: Tenants) -> None:
    for who, other in (("a", b"secret-b"), ("b", b"secret-a"), ("every", None)):
        headers = {"authorization": f"Bearer {tenants.keys[who]}"}
        said, path = "", "/v1/views/open_deals/subscribe"
        with tenants.server.http.stream("GET", path, headers=headers) as stream:
            snapshot = json.loads(first_message(stream))
        with connect(
            f"ws{tenants.server.address.removeprefix('http')}{path}?from_tick=2", additional_headers=headers
        ) as s:
            said += str(s.recv(timeout=60))
        about = tenants.raw(who, "POST", f"/v1/topics/calls/groups/{who}/consumers", json={}).json()
        said += tenants.raw(who, "POST", f"/v1/consumers/{about['consumer']}/poll", json={"wait": 10}).text

        everything = [row for tenant in TENANTS for row in tenants.rows(tenant)]  # type: ignore[arg-type]
        assert sorted_rows(snapshot["rows"]) == sorted_rows(tenants.rows(who) if other else everything)
        assert f"secret-{'a' if who == 'every' else who}" in said
        assert other is None or (b"secret-None" not in said.encode() and other not in said.encode())


def test_a_token_of_another_tenant_begins_anew(tenants: Tenants) -> None:
    def snapshot(who: str, more: str = "") -> Any:
        headers = {"authorization": f"Bearer {tenants.keys[who]}"}
        with tenants.server.http.stream("GET", f"/v1/views/open_deals/subscribe{more}", headers=headers) as stream:
            return json.loads(first_message(stream))

    again = snapshot("b", f"?token={snapshot('a')['token']}")

    assert (again["type"], again["reset"], sorted_rows(again["rows"])) == ("snapshot", True, tenants.rows("b"))


def test_a_key_without_the_claim_is_refused_and_one_for_every_row_sees_them(tenants: Tenants) -> None:
    for path in ("/v1/views/open_deals/rows", "/v1/views/open_deals/rows?key=1", "/v1/topics/calls/records"):
        said = tenants.get("none", path, 403)["error"]["message"]
        assert said.endswith('are shown by the claim "tenant", which this key has not')
        assert "secret" in json.dumps(tenants.get("every", path)) or path.endswith("=1")
    refused = tenants.raw("none", "POST", "/v1/query", json={"sql": "SELECT count(*) FROM open_deals"})
    assert refused.status_code == 400
    assert tenants.get("none", "/v1/views/everybody/rows")["rows"] == [{"n": len(tenants.states[tenants.tick])}]


@pytest.mark.parametrize("who", ["a", "b"])
def test_queries_of_spark_read_their_rows(tenants: Tenants, who: str) -> None:
    holder = Holder(who, frozenset({"query", "personal"}), claims=frozenset({("tenant", who)}))
    contents = tenants.app._runtime.contents()
    contents.hidden = hidden_from_json(MaskedAnswers(tenants.app).hidden(holder))
    contents.admits = True

    own = tenants.rows(who)
    for relation in ("open_deals", "deals"):
        assert contents.query(f"SELECT * FROM {relation} ORDER BY id").to_pylist() == own
    assert contents.query("SELECT count(*) AS n FROM calls").to_pylist() == [
        {"n": len([each for each in tenants.calls if each[0] == who])}
    ]
    # A condition that fails for rows of others would tell of them.
    other = "b" if who == "a" else "a"
    trap = f"SELECT id FROM open_deals WHERE CASE WHEN note LIKE 'secret-{other}%' THEN raise_error(note) ELSE true END"
    for source in (
        trap,
        f"{trap} AND tenant IS NOT NULL",
        trap.replace("FROM open_deals", "FROM open_deals JOIN notes USING (note)"),
    ):
        contents.query(source)
    for closed in ("closed", "copies"):
        with pytest.raises(InvalidQuery, match="told apart"):
            contents.query(f"SELECT 1 FROM {closed}")
