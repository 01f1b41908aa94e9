"""Tokens of an identity provider: those that are good, and every other."""

from __future__ import annotations

import asyncio
import base64
import http.server
import json
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from starlette.testclient import TestClient

import headwater as hw
from headwater.errors import InvalidDeclaration, Unauthenticated, Unavailable
from headwater.server.application import create
from headwater.server.http import identity_tokens
from headwater.server.http.identity_tokens import Identities, IdentityTokens
from headwater.server.http.keys import Keys
from headwater.server.server_settings import ServerSettings
from headwater.server.server_state import ServerState
from headwater.testing import ManualClock

ISSUER, AUDIENCE = "https://example.com", "shop"
FAR, PAST = 4_000_000_000, 1_000_000_000


class Provider:
    """An identity provider: its private keys, and what it publishes."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[Any, str]] = {}

    def add(self, name: str, algorithm: str = "RS256") -> None:
        make = {
            "RS256": lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048),
            "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
            "EdDSA": ed25519.Ed25519PrivateKey.generate,
        }
        self.keys[name] = (make[algorithm](), algorithm)

    def published(self) -> dict[str, Any]:
        found = []
        for name, (key, algorithm) in self.keys.items():
            kind = jwt.get_algorithm_by_name(algorithm)
            found.append({**kind.to_jwk(key.public_key(), as_dict=True), "kid": name, "alg": algorithm, "use": "sig"})
        return {"keys": found}

    def token(self, name: str = "one", headers: dict[str, Any] | None = None, **claims: Any) -> str:
        key, algorithm = self.keys[name]
        body = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": FAR, "scope": "openid headwater.query", **claims}
        given = {claim: value for claim, value in body.items() if value is not None}
        return jwt.encode(given, key, algorithm, headers={"kid": name, **(headers or {})})


@pytest.fixture(scope="module")
def provider() -> Provider:
    made = Provider()
    made.add("one")
    return made


def answer(asked: Coroutine[Any, Any, Any]) -> Any:
    """Of a coroutine, run in a thread of its own: a browser of other tests keeps a loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, asked).result()


def listed(provider: Provider, folder: Path) -> str:
    path = folder / "jwks.json"
    path.write_text(json.dumps(provider.published()))
    return str(path)


@pytest.fixture
def tokens(provider: Provider, tmp_path: Path) -> IdentityTokens:
    found = IdentityTokens(ISSUER, AUDIENCE, listed(provider, tmp_path))
    found.fetch()
    return found


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_good_token_says_who_and_what(tmp_path: Path, algorithm: str) -> None:
    provider = Provider()
    provider.add("k", algorithm)
    tokens = IdentityTokens(ISSUER, AUDIENCE, listed(provider, tmp_path))
    tokens.fetch()

    holder = tokens.holder(provider.token("k", headwater_only=["revenue", "shop_*"], roles=["headwater.produce", 5]))

    assert holder.name == "jwt:ada"
    assert holder.scopes == {"query", "produce"}
    assert holder.only == ("revenue", "shop_*")


def forged(headers: dict[str, Any], key: Any, algorithm: str) -> str:
    return jwt.encode({"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": FAR}, key, algorithm, headers=headers)


def by_public_key(provider: Provider) -> str:
    """HS256 with the public key as the secret: taken by libraries that believe the header. Signed by hand here."""
    import hashlib
    import hmac

    public = provider.keys["one"][0].public_key()
    secret = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    body = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": FAR}
    parts = [json.dumps(each).encode() for each in ({"alg": "HS256", "kid": "one"}, body)]
    text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    seal = base64.urlsafe_b64encode(hmac.new(secret, text, hashlib.sha256).digest()).rstrip(b"=")
    return (text + b"." + seal).decode()


def tampered(provider: Provider) -> str:
    head, body, seal = provider.token().split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    changed = json.dumps({**claims, "scope": "headwater.admin"}).encode()
    return f"{head}.{base64.urlsafe_b64encode(changed).rstrip(b'=').decode()}.{seal}"


BAD = {
    "expired": lambda p: p.token(exp=PAST),
    "no expiry": lambda p: p.token(exp=None),
    "not yet": lambda p: p.token(nbf=FAR - 1),
    "another issuer": lambda p: p.token(iss="https://example.com/evil"),
    "another audience": lambda p: p.token(aud="bank"),
    "no audience": lambda p: p.token(aud=None),
    "no subject": lambda p: p.token(sub=None),
    "another key": lambda _: forged(
        {"kid": "one"}, rsa.generate_private_key(public_exponent=65537, key_size=2048), "RS256"
    ),
    "a key that is not listed": lambda p: p.token(headers={"kid": "two"}),
    "no signature": lambda _: forged({"kid": "one"}, None, "none"),
    "a shared secret": by_public_key,
    "tampered": tampered,
    "no limit that can be read": lambda p: p.token(headwater_only="revenue"),
    "a limit to nothing": lambda p: p.token(headwater_only=[]),
    "a limit to no name": lambda p: p.token(headwater_only=["a b"]),
    "rubbish": lambda _: "a.b.c",
}


@pytest.mark.parametrize("how", BAD)
def test_any_other_token_is_refused(tokens: IdentityTokens, provider: Provider, how: str) -> None:
    with pytest.raises(Unauthenticated, match="the token is not good"):
        tokens.holder(BAD[how](provider))


@pytest.mark.parametrize("scope", [None, 5, {"headwater.admin": True}, "headwater.root query admin"])
def test_a_claim_that_is_no_scope_gives_no_right(tokens: IdentityTokens, provider: Provider, scope: Any) -> None:
    assert tokens.holder(provider.token(scope=scope)).scopes == frozenset()


def test_a_subject_is_not_taken_for_the_key_of_the_same_name(tmp_path: Path, tokens: IdentityTokens) -> None:
    keys = Keys(tmp_path / "keys.json")
    keys.add("ada", ["admin"])

    assert Identities(keys, tokens).keys is keys
    with pytest.raises(InvalidDeclaration):
        keys.add("jwt:ada", ["admin"])


class Published(http.server.BaseHTTPRequestHandler):
    """The provider's pages, over HTTP."""

    def do_GET(self) -> None:
        server: Any = self.server
        server.asked.append(self.path)
        pages = {
            "/.well-known/openid-configuration": {"issuer": server.issuer, "jwks_uri": f"{server.issuer}/keys"},
            "/keys": server.provider.published(),
        }
        found = json.dumps(pages[self.path]).encode()
        self.send_response(200 if server.well else 503)
        self.end_headers()
        self.wfile.write(found)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Any]:
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Published)
    server.issuer, server.asked, server.provider = f"http://127.0.0.1:{server.server_port}", [], Provider()
    server.well = True
    server.provider.add("one")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_a_new_key_of_the_provider_is_found_and_it_is_not_asked_all_the_time(site: Any) -> None:
    clock = ManualClock()
    tokens = IdentityTokens(site.issuer, AUDIENCE, clock=clock)
    identities = Identities(None, tokens)

    def asked(token: str) -> Any:
        return answer(identities.holder(token))

    assert asked(site.provider.token(iss=site.issuer)).name == "jwt:ada"
    site.provider.add("two", "ES256")
    late = site.provider.token("two", iss=site.issuer)
    for _ in range(50):
        with pytest.raises(Unauthenticated, match="does not list"):
            asked(late)
    assert len(site.asked) == 2  # where the keys are, and the keys

    clock.advance(identity_tokens.FETCH_SECONDS_MIN)
    assert asked(late).name == "jwt:ada"
    site.well = False
    clock.advance(identity_tokens.FETCH_SECONDS_MAX)
    assert asked(late).name == "jwt:ada"  # the provider does not answer: its keys stay good


def test_a_provider_that_does_not_answer_is_told(site: Any) -> None:
    site.well = False
    identities = Identities(None, IdentityTokens(site.issuer, AUDIENCE))

    with pytest.raises(Unavailable, match=r"the public keys of http://127.0.0.1:.* cannot be read"):
        answer(identities.holder(site.provider.token()))


def test_a_server_takes_tokens_beside_keys_and_needs_one_of_them(provider: Provider, tmp_path: Path) -> None:
    settings = ServerSettings(
        host="0.0.0.0", jwt_issuer=ISSUER, jwt_audience=AUDIENCE, jwt_keys=listed(provider, tmp_path)
    )
    with hw.App("shop", home=tmp_path / "home") as app:
        app.table("users", "id BIGINT", key="id")
        client = TestClient(create(ServerState(app, settings)), base_url="http://127.0.0.1:8080")

        def status(path: str, token: str | None) -> int:
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
            return int(client.get(path, headers=headers).status_code)

        assert status("/v1/views", None) == 401
        assert status("/v1/views", "hw_guessed") == 401
        assert status("/v1/views", provider.token(exp=PAST)) == 401
        assert status("/v1/views", provider.token()) == 200
        assert status("/v1/topics", provider.token()) == 403
        assert status("/v1/topics/users", provider.token(scope="headwater.consume", headwater_only=["orders"])) == 403
        assert status("/v1/topics/users", provider.token(scope="headwater.consume", headwater_only=["users"])) == 200


@pytest.mark.parametrize("given", [{"jwt_issuer": ISSUER}, {"jwt_audience": AUDIENCE}, {"jwt_keys": "keys.json"}])
def test_half_of_the_settings_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(InvalidDeclaration, match="an issuer and an audience"):
        ServerSettings(**given)  # type: ignore[arg-type]
