"""Every route × every right: which keys it takes, whatever the request says.

What it is: the table of all routes, written by hand, beside the server's own list; every route is asked without a key,
with a key of each scope, with one that is limited to the name in the path, and with one that is limited to another.
Invariants: a route that is not in the table fails the test. Without the right nothing but the refusal is answered.
Not here: what routes do (``tests/services/server``).
Read next: ``server/http/guard.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import headwater as hw
from headwater.clock import Clock
from headwater.errors import InvalidDeclaration, Unauthenticated
from headwater.server.application import create
from headwater.server.http.keys import SCOPES, Keys
from headwater.server.server_settings import ServerSettings
from headwater.server.server_state import ServerState
from headwater.testing import ManualClock

# The scope that a route asks for. Behind it, whether a key that is limited to names may come: by the name in the path
# ("name"), not at all ("all"), or the route looks at the names, or at the owner, by itself ("own").
ROUTES = """
GET /v1/app query all
GET /v1/status query all
GET /v1/events query all
GET /v1/history query all
GET /metrics query all
GET /v1/topics consume all
GET /v1/topics/{topic} consume name
POST /v1/topics/{topic}/records produce name
GET /v1/topics/{topic}/records consume name
POST /v1/tables/{table}/rows produce name
POST /v1/tables/{table}/delete produce name
POST /v1/transactions produce own
GET /v1/topics/{topic}/groups consume name
GET /v1/topics/{topic}/groups/{group} consume name
POST /v1/topics/{topic}/groups/{group}/consumers consume name
POST /v1/topics/{topic}/groups/{group}/take consume name
POST /v1/topics/{topic}/groups/{group}/ack consume name
POST /v1/topics/{topic}/groups/{group}/nack consume name
POST /v1/topics/{topic}/groups/{group}/extend consume name
POST /v1/topics/{topic}/groups/{group}/redrive admin name
POST /v1/topics/{topic}/groups/{group}/reset admin name
DELETE /v1/topics/{topic}/groups/{group} admin name
POST /v1/consumers/{id}/poll consume own
POST /v1/consumers/{id}/commit consume own
POST /v1/consumers/{id}/heartbeat consume own
DELETE /v1/consumers/{id} consume own
GET /v1/lag consume all
DELETE /v1/apps/{app}/positions admin all
GET /v1/aggregates query all
GET /v1/aggregates/{name} query name
GET /v1/aggregates/{name}/{id} query name
GET /v1/aggregates/{name}/{id}/history query name
POST /v1/aggregates/{name}/{id}/{command} produce name
POST /v1/aggregates/{name}/{id}/tentative/{version}/{how} produce name
GET /v1/claims/{name}/{value} query name
POST /v1/claims/{name}/{value} produce name
POST /v1/claims/{name}/{value}/release produce name
GET /v1/processes query all
GET /v1/processes/{name} query name
POST /v1/processes/{name} produce name
GET /v1/processes/{name}/{id} query name
POST /v1/processes/{name}/{id}/retry produce name
GET /v1/services query all
POST /v1/services/{name} produce name
GET /v1/searches query all
GET /v1/searches/{name} query name
POST /v1/searches/{name}/percolate query name
GET /v1/searches/{name}/{id} query name
PUT /v1/searches/{name}/{id} produce name
DELETE /v1/searches/{name}/{id} produce name
GET /v1/searches/{name}/{id}/subscribe query name
GET /v1/views query all
GET /v1/views/{view} query name
GET /v1/views/{view}/rows query name
GET /v1/views/{view}/history query name
GET /v1/views/{view}/changes query name
GET /v1/views/{view}/why query+consume all
GET /v1/views/{view}/pattern query+consume all
GET /v1/views/{view}/subscribe query name
POST /v1/views/{view}/verify admin name
POST /v1/views/{view}/rebuild admin name
POST /v1/views/{view}/resume admin name
POST /v1/query query all
GET /v1/search/{sink} query name
"""
RIGHTS = {tuple(line.split()[:2]): tuple(line.split()[2:]) for line in ROUTES.strip().splitlines()}
NO_KEY_NEEDED = {
    ("GET", "/health/live"),
    ("GET", "/health/ready"),
    ("GET", "/v1/session"),
    ("POST", "/v1/session"),
    ("DELETE", "/v1/session"),
}
LIVE = ("/v1/events", "/v1/views/{view}/subscribe", "/v1/searches/{name}/{id}/subscribe")  # an answer without an end
REFUSED = ("unauthenticated", "forbidden")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys") / "keys.json")


@pytest.fixture(scope="module")
def client(keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    keys.add("root", ["admin"])
    with hw.App("shop", home=tmp_path_factory.mktemp("home")) as app:
        app.table("nothing", "id BIGINT", key="id")
        app.table("other", "id BIGINT", key="id")
        state = ServerState(app, ServerSettings(key_file=keys.path))
        # Without its lifespan: what a route would do is not of interest, only whether it is reached.
        yield TestClient(create(state), base_url="http://127.0.0.1:8080", raise_server_exceptions=False)


def made(keys: Keys, name: str, scopes: list[str], only: list[str]) -> str:
    if any(each["name"] == name for each in keys.entries()):
        keys.remove(name)
    return keys.add(name, scopes, only=only)


def refusal(client: TestClient, method: str, path: str, key: str | None) -> str | None:
    """The code of the refusal; None where the request went past the guard."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    for part in ("topic", "table", "view", "name", "sink"):
        path = path.replace(f"{{{part}}}", "nothing")
    path = path.replace("{version}", "1").replace("{how}", "confirm").replace("{", "").replace("}", "")
    answer = client.request(method, path, headers=headers, json={} if method in ("POST", "PUT") else None)
    code = answer.json().get("error", {}).get("code") if answer.headers["content-type"] == "application/json" else None
    assert (answer.status_code in (401, 403)) == (code in REFUSED), answer.text
    return code if code in REFUSED else None


def test_the_table_has_every_route(client: TestClient) -> None:
    listed = client.app.openapi()["paths"]  # type: ignore[attr-defined]
    served = {(method.upper(), path) for path, methods in listed.items() for method in methods}

    assert served - NO_KEY_NEEDED == set(RIGHTS)


@pytest.mark.parametrize(("method", "path"), RIGHTS, ids=lambda each: each)
def test_a_route_takes_the_keys_of_the_table_and_no_others(
    client: TestClient, keys: Keys, method: str, path: str
) -> None:
    scopes, names = RIGHTS[method, path]
    wanted = scopes.split("+")

    assert refusal(client, method, path, None) == "unauthenticated"
    assert refusal(client, method, path, "hw_guessed") == "unauthenticated"
    for scope in SCOPES:
        key = made(keys, "one", [scope], [])
        if scope != "admin" and wanted != [scope]:
            assert refusal(client, method, path, key) == "forbidden", scope
        elif path not in LIVE:
            assert refusal(client, method, path, key) is None, scope
    assert refusal(client, method, path, made(keys, "far", ["admin"], ["other", "other_*"])) == (
        None if names == "own" else "forbidden"
    )
    if path not in LIVE:
        near = refusal(client, method, path, made(keys, "near", wanted, ["noth*"]))
        assert near == ("forbidden" if names == "all" else None)


@pytest.mark.parametrize("path", ["/v1/topics/nothing/records", "/v1/query", "/v1/nowhere", "/metrics"])
def test_without_a_key_nothing_is_told_of_the_body_or_of_the_path(client: TestClient, path: str) -> None:
    answer = client.post(path, content=b"{not json", headers={"content-type": "application/json"})

    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthenticated")


def test_a_transaction_of_a_limited_key_is_about_its_names_alone(client: TestClient, keys: Keys) -> None:
    headers = {"authorization": f"Bearer {made(keys, 'one', ['produce'], ['nothing'])}"}
    ours = {"table": "nothing", "upsert": [{"id": 1}]}

    refused = client.post(
        "/v1/transactions", headers=headers, json={"operations": [ours, {"table": "other", "upsert": [{"id": 1}]}]}
    )

    assert refused.status_code == 403
    assert refused.json()["error"]["message"] == 'key "one" is limited to nothing: "other" is not among them'


def test_a_session_says_what_its_key_is_limited_to(client: TestClient, keys: Keys) -> None:
    limited = client.get("/v1/session", headers={"authorization": f"Bearer {made(keys, 'one', ['query'], ['n*'])}"})

    about = {"keys": True, "name": "one", "scopes": ["query"], "only": ["n*"], "purposes": [], "claims": []}
    assert limited.json() == about


def test_a_key_ends_when_its_time_has_come_and_its_successor_is_good(tmp_path: Path) -> None:
    clock = ManualClock()
    keys = Keys(tmp_path / "keys.json", clock)
    first = keys.add("importer", ["produce"], only=["orders"], lasts_s=60)
    clock.advance(59)
    assert keys.holder(first) is not None

    second = keys.rotate("importer", grace_s=10, lasts_s=60)
    assert keys.holder(first) == keys.holder(second)  # for a second: an old key does not live longer by being replaced
    clock.advance(1)

    with pytest.raises(Unauthenticated, match='the key of "importer" has ended'):
        keys.holder(first)
    found = keys.holder(second)
    assert found is not None
    assert (found.name, found.only) == ("importer", ("orders",))
    clock.advance(60)
    with pytest.raises(Unauthenticated, match="has ended"):
        keys.holder(second)


def test_without_grace_the_old_key_is_unknown_at_once(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.json")
    first = keys.add("importer", ["produce"])

    second = keys.rotate("importer")

    assert keys.holder(first) is None
    assert keys.holder(second) is not None


@pytest.mark.parametrize(
    "damage", [{"ends_us": "tomorrow"}, {"only": "orders"}, {"before": {"hash": "x"}}, {"before": 5}]
)
def test_an_end_or_a_limit_that_cannot_be_read_is_not_taken_for_none(tmp_path: Path, damage: dict[str, object]) -> None:
    keys = Keys(tmp_path / "keys.json", Clock())
    keys.add("importer", ["produce"])
    entries = json.loads(keys.path.read_text())["keys"]
    keys.path.write_text(json.dumps({"keys": [{**entries[0], **damage}]}, indent=1))

    with pytest.raises(InvalidDeclaration, match="is no file of keys"):
        keys.holder("hw_any")


@pytest.mark.parametrize("pattern", ["", "a b", "orders/1", "'; --"])
def test_a_limit_that_is_no_name_is_told(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(InvalidDeclaration, match="a key cannot be limited to"):
        Keys(tmp_path / "keys.json").add("importer", ["produce"], only=[pattern])


def test_a_key_has_its_claims_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.json")

    key = keys.add("acme", ["query"], claims={"tenant": ["acme", "other"], "team": ["7"]})
    renewed = keys.rotate("acme")

    assert keys.holder(key) is None
    holder = keys.holder(renewed)
    assert holder is not None
    assert holder.claims == {("tenant", "acme"), ("tenant", "other"), ("team", "7")}
    assert (holder.privacy.every_row, holder.may("rows")) == (False, False)
    for wrong in ({"te nant": ["acme"]}, {"tenant": []}, {"tenant": [""]}, {"tenant": ["a\0b"]}):
        with pytest.raises(InvalidDeclaration):
            keys.add("wrong", ["query"], claims=wrong)
    assert [each["name"] for each in keys.entries()] == ["acme"]
