"""Who may ask, from where, how much and how often; what is refused has changed nothing."""

from __future__ import annotations

import json
import socket
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme
import websockets.exceptions
from typer.testing import CliRunner, Result
from websockets.sync.client import connect

from headwater.cli.main import app
from headwater.errors import InvalidDeclaration
from headwater.log.home import Log
from headwater.server.http.keys import SCOPES, Keys
from headwater.server.server_settings import ServerSettings
from tests.services.server.conftest import declared
from tests.services.server.processes import ServerProcess
from tests.services.server.ticks_by_hand import HandTicks

ALLOWED = [
    ("produce", "POST", "/v1/topics/orders/records"),
    ("produce", "POST", "/v1/tables/basket/rows"),
    ("consume", "GET", "/v1/topics"),
    ("consume", "GET", "/v1/topics/orders/records"),
    ("consume", "POST", "/v1/topics/orders/groups/g/consumers"),
    ("consume", "POST", "/v1/topics/clicks/groups/w/take"),
    ("query", "POST", "/v1/query"),
    ("query", "GET", "/v1/views/revenue/rows"),
    ("query", "GET", "/v1/app"),
    ("query", "GET", "/v1/status"),
    ("query", "GET", "/metrics"),
    ("admin", "POST", "/v1/topics/orders/groups/g/reset"),
    ("admin", "POST", "/v1/views/revenue/verify"),
]
BODIES = {
    "/v1/topics/orders/records": {"order_id": 1},
    "/v1/tables/basket/rows": {"fruit": "fig"},
    "/v1/query": {"sql": "SELECT 1"},
    "/v1/topics/orders/groups/g/reset": {"to": "latest", "force": True},
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, dict[str, str], Log]]:
    folder = tmp_path_factory.mktemp("guarded")
    with declared(folder / "home") as log:
        ticks = HandTicks(log)
        ticks.commit({"DE": 1})
        keys = Keys(folder / "keys.json")
        made = {scope: keys.add(scope, [scope]) for scope in SCOPES}
        server = ServerProcess(log.home, "--key-file", str(keys.path), "--body-mib", "1")
        yield server, made, log
        server.stop()
        ticks.close()


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize(("scope", "method", "path"), ALLOWED, ids=[path for _, _, path in ALLOWED])
def test_a_request_needs_a_key_with_the_scope(
    guarded: tuple[ServerProcess, dict[str, str], Log], scope: str, method: str, path: str
) -> None:
    server, keys, log = guarded
    before = (
        log.get_topic("orders").end_offsets(),
        log.get_topic("basket").end_offsets(),
        len(log.get_topic("orders").groups()),
    )
    body = BODIES.get(path, {}) if method == "POST" else None

    refusals = [
        server.http.request(method, path, json=body),
        server.http.request(method, path, json=body, headers=bearer("hw_wrong")),
        *(
            server.http.request(method, path, json=body, headers={"x-api-key": keys[other]})
            for other in SCOPES
            if other not in (scope, "admin")
        ),
    ]
    assert [answer.status_code for answer in refusals] == [401, 401] + [403] * (len(refusals) - 2)
    assert {answer.json()["error"]["code"] for answer in refusals} == {"unauthenticated", "forbidden"}
    after = (
        log.get_topic("orders").end_offsets(),
        log.get_topic("basket").end_offsets(),
        len(log.get_topic("orders").groups()),
    )
    assert after == before, "what is refused changes nothing"

    for key in {scope, "admin"}:
        answer = server.http.request(method, path, json=body, headers=bearer(keys[key]))
        assert answer.status_code in (200, 201, 503), answer.text


def test_what_shows_nothing_needs_no_key(guarded: tuple[ServerProcess, dict[str, str], Log]) -> None:
    server, _, _ = guarded

    for path in ("/", "/docs", "/views/revenue", "/openapi.json", "/health/live", "/health/ready", "/v1/session"):
        assert server.http.get(path).status_code in (200, 503), path


def test_a_subscription_ends_with_its_key_before_another_row_is_shown(
    guarded: tuple[ServerProcess, dict[str, str], Log],
) -> None:
    server, made, log = guarded
    keys = Keys(log.home.parent / "keys.json")
    gone, changed = keys.add("gone", ["query"]), keys.add("changed", ["query"])
    path, ticks = "/v1/views/revenue/subscribe", HandTicks(log)
    ticks.commit({"DE": 1})
    to = f"ws{server.address.removeprefix('http')}{path}"
    with (
        server.http.stream("GET", path, headers=bearer(gone)) as removed,
        connect(to, additional_headers=bearer(changed)) as socket,
        connect(to, additional_headers=bearer(made["query"])) as kept,
    ):
        lines = removed.iter_lines()
        while not next(lines).startswith("data: "):
            pass
        assert (
            json.loads(socket.recv(60))["rows"] == json.loads(kept.recv(60))["rows"] == [{"country": "DE", "total": 1}]
        )

        keys.remove("gone")
        keys.remove("changed")
        keys.add("changed", ["consume"])
        ticks.commit({"SECRET": 7})

        assert "SECRET" in str(kept.recv(60))
        assert "SECRET" not in "".join(lines)
        with pytest.raises(websockets.exceptions.ConnectionClosedError) as closed:
            socket.recv(60)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401
    ticks.close()


def test_a_key_that_is_removed_is_refused_from_the_next_request_on(
    guarded: tuple[ServerProcess, dict[str, str], Log],
) -> None:
    server, _, log = guarded
    keys = Keys(log.home.parent / "keys.json")
    key = keys.add("guest", ["query"])
    assert server.http.get("/v1/status", headers=bearer(key)).status_code == 200

    keys.remove("guest")

    assert server.http.get("/v1/status", headers=bearer(key)).status_code == 401
    assert key not in keys.path.read_text()
    assert stat.S_IMODE(keys.path.stat().st_mode) == 0o600


def test_a_browser_keeps_its_key_in_a_cookie_that_scripts_cannot_read(
    guarded: tuple[ServerProcess, dict[str, str], Log],
) -> None:
    server, keys, _ = guarded
    with httpx.Client(base_url=server.address) as browser:
        assert browser.post("/v1/session", json={"key": "hw_wrong"}).status_code == 401

        opened = browser.post("/v1/session", json={"key": keys["query"]})

        assert {"HttpOnly", "SameSite=strict"} <= {part.strip() for part in opened.headers["set-cookie"].split(";")}
        assert browser.get("/v1/status").status_code == 200
        assert browser.get("/v1/session").json()["scopes"] == ["query"]
        browser.delete("/v1/session")
        assert browser.get("/v1/status").status_code == 401


@pytest.mark.parametrize("key", [None, "hw_wrong", "produce"])
def test_a_websocket_needs_a_key_too(guarded: tuple[ServerProcess, dict[str, str], Log], key: str | None) -> None:
    server, keys, _ = guarded
    headers = bearer(keys.get(key, key)) if key else {}
    address = f"{server.address.replace('http', 'ws')}/v1/views/revenue/subscribe"

    with pytest.raises((websockets.exceptions.InvalidStatus, websockets.exceptions.ConnectionClosed)):
        connect(address, additional_headers=headers).recv(timeout=10)

    with connect(address, additional_headers=bearer(keys["query"])) as open_socket:
        assert json.loads(open_socket.recv(timeout=10))["type"] == "snapshot"


def test_the_events_behind_a_row_need_both_scopes_since_they_are_rows_of_topics(
    guarded: tuple[ServerProcess, dict[str, str], Log],
) -> None:
    server, keys, _ = guarded

    for scope in ("query", "consume"):
        refused = server.http.get("/v1/views/revenue/why?key=DE", headers=bearer(keys[scope]))
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    passed = server.http.get("/v1/views/nothing/why?key=DE", headers=bearer(keys["admin"]))
    assert passed.json()["error"]["code"] == "unknown_view"


def test_one_key_cannot_speak_for_the_consumer_of_another(guarded: tuple[ServerProcess, dict[str, str], Log]) -> None:
    server, keys, _ = guarded
    joined = server.http.post("/v1/topics/clicks/groups/mine/consumers", json={}, headers=bearer(keys["consume"]))

    stolen = server.http.post(f"/v1/consumers/{joined.json()['consumer']}/poll", json={}, headers=bearer(keys["admin"]))

    assert (stolen.status_code, stolen.json()["error"]["code"]) == (409, "fenced")


def test_a_body_that_is_too_large_is_refused_before_it_is_read(
    guarded: tuple[ServerProcess, dict[str, str], Log],
) -> None:
    server, keys, log = guarded
    before = log.get_topic("orders").end_offsets()
    headers = bearer(keys["admin"])
    large = b'{"order_id": 1}\n' * 100_000

    told = server.http.post("/v1/topics/orders/records", content=large, headers=headers)
    chunked = server.http.post(
        "/v1/topics/orders/records", content=(large[i : i + 9999] for i in range(0, len(large), 9999)), headers=headers
    )
    as_query = server.http.post(
        "/v1/query", content=(b'{"sql":"' + b"x" * 3_000_000 for _ in range(1)), headers=headers
    )

    for answer in (told, chunked, as_query):
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    assert log.get_topic("orders").end_offsets() == before
    host, _, port = server.address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as raw:  # it does not wait for what was announced
        raw.sendall(
            f"POST /v1/topics/orders/records HTTP/1.1\r\nHost: {host}:{port}\r\nX-API-Key: {keys['admin']}\r\n"
            "Content-Length: 99999999999\r\n\r\n".encode()
        )
        assert raw.recv(12) == b"HTTP/1.1 413"


def test_a_page_of_another_site_can_neither_read_nor_write(server: ServerProcess, log: Log) -> None:
    before = log.get_topic("orders").end_offsets()
    evil = {"origin": "http://" + "evil.invalid"}

    post = server.http.post(
        "/v1/topics/orders/records", content=b'{"order_id": 1}', headers={**evil, "content-type": "text/plain"}
    )
    read = server.http.get("/v1/status", headers=evil)
    rebound = server.http.get("/v1/status", headers={"host": "evil.invalid"})
    preflight = server.http.options("/v1/status", headers=evil)
    own = server.http.get("/v1/status", headers={"origin": server.address})

    assert [answer.status_code for answer in (post, read, rebound, own)] == [403, 403, 403, 200]
    assert "access-control-allow-origin" not in preflight.headers
    assert log.get_topic("orders").end_offsets() == before
    with pytest.raises(websockets.exceptions.InvalidStatus):
        connect(f"{server.address.replace('http', 'ws')}/v1/views/revenue/subscribe", additional_headers=evil)


@pytest.fixture(scope="module")
def narrow(log: Log) -> Iterator[ServerProcess]:
    server = ServerProcess(log.home, "--origin", "https://example.com", "--rate", "20")
    yield server
    server.stop()


def test_a_site_that_is_allowed_may_call(narrow: ServerProcess) -> None:
    friend = {"origin": "https://example.com"}

    answer = narrow.http.get("/v1/status", headers=friend)
    preflight = narrow.http.options("/v1/query", headers={**friend, "access-control-request-method": "POST"})

    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "https://example.com")
    assert preflight.headers["access-control-allow-origin"] == "https://example.com"
    assert narrow.http.get("/v1/status", headers={"origin": "https://example.com" + ".evil"}).status_code == 403


def test_too_many_requests_are_told_to_wait(narrow: ServerProcess) -> None:
    answers = [narrow.http.get("/health/live") for _ in range(200)]

    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert refused[0].json()["error"]["code"] == "too_many"
    assert refused[0].headers["retry-after"] == "1"
    assert answers[0].status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.2", "example.com", "::"])
def test_a_server_that_others_can_reach_needs_keys(host: str) -> None:
    with pytest.raises(InvalidDeclaration, match="needs keys"):
        ServerSettings(host=host)

    assert ServerSettings(host=host, key_file=Path("keys.json")).host == host


def test_the_command_refuses_it_too_and_keys_are_made_by_the_command_line(tmp_path: Path) -> None:
    def headwater(*words: str) -> Result:
        return CliRunner().invoke(app, words)

    file = str(tmp_path / "keys.json")
    added = json.loads(headwater("key", "add", "me", "--scope", "query", "--key-file", file, "--json").stdout)
    listed = json.loads(headwater("key", "ls", "--key-file", file, "--json").stdout)
    removed = headwater("key", "rm", "me", "--key-file", file)
    wrong = headwater("key", "add", "me", "--scope", "root", "--key-file", file)
    unguarded = headwater("serve", str(Path(__file__).parent / "shop_app.py"), "--host", "0.0.0.0")

    assert added["key"].startswith("hw_")
    assert [each["name"] for each in listed] == ["me"]
    assert (removed.exit_code, wrong.exit_code, unguarded.exit_code) == (0, 2, 2)
    assert "needs keys" in unguarded.stderr
    assert Keys(Path(file)).entries() == []


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    """The server's certificate with its key in one file, and a client that trusts who has signed it."""
    authority, file = trustme.CA(), tmp_path_factory.mktemp("tls") / "server.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(file))
    trusts = ssl.create_default_context()
    authority.configure_trust(trusts)
    return file, trusts


def test_a_server_with_a_certificate_speaks_tls_and_nothing_else(
    certificates: tuple[Path, ssl.SSLContext], tmp_path: Path
) -> None:
    file, trusts = certificates
    with declared(tmp_path / "home") as log:
        ticks = HandTicks(log)
        ticks.commit({"DE": 1})
        keys = Keys(tmp_path / "keys.json")
        key = {"authorization": f"Bearer {keys.add('me', ['admin'])}"}
        options = ["--key-file", str(keys.path), "--tls-certificate", str(file)]
        server = ServerProcess(log.home, *options, trusts=trusts)
        opened = server.http.post("/v1/session", json={"key": key["authorization"].removeprefix("Bearer ")})
        rows = server.get("/v1/views/revenue/rows", headers=key)["rows"]
        with connect(
            f"{server.address.replace('https', 'wss')}/v1/views/revenue/subscribe", additional_headers=key, ssl=trusts
        ) as socket:
            first = json.loads(socket.recv(timeout=60))
        with pytest.raises(httpx.HTTPError):
            httpx.get(server.address.replace("https", "http") + "/health/live", timeout=60)
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(server.address + "/health/live", timeout=60)
        server.stop()
        ticks.close()

    assert server.address.startswith("https://")
    assert [row["country"] for row in rows] == ["DE"]
    assert first["type"] == "snapshot"
    assert "Secure" in opened.headers["set-cookie"]


def test_a_certificate_that_cannot_be_used_is_told_before_anything_starts(
    certificates: tuple[Path, ssl.SSLContext], tmp_path: Path
) -> None:
    file = tmp_path / "no.pem"
    file.write_text("this is no certificate")
    serve = ["serve", str(Path(__file__).parent / "shop_app.py"), "--no-engine"]

    wrong = CliRunner().invoke(app, [*serve, "--tls-certificate", str(file)])
    missing = CliRunner().invoke(app, [*serve, "--tls-certificate", str(tmp_path / "missing.pem")])
    other = CliRunner().invoke(app, [*serve, "--tls-key", str(certificates[0])])

    assert (wrong.exit_code, missing.exit_code, other.exit_code) == (2, 2, 2)
    assert f"TLS cannot be used with {file}" in wrong.stderr
    assert "No such file" in missing.stderr
    assert "a TLS key without its certificate" in other.stderr


PATHS = [
    "/static/../engine.py",
    "/static/%2e%2e/engine.py",
    "/static//etc/passwd",
    "/static/..%2f..%2ferrors.py",
    "/%00",
    "/v1/%ff",
]


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_out_of_the_static_files(server: ServerProcess, path: str) -> None:
    host, _, port = server.address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: raw.recv(65536), b""))

    assert answer.split(b" ", 2)[1] in (b"404", b"405", b"400"), answer[:200]
    assert b"import" not in answer
