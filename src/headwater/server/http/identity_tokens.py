"""Identity tokens: JWTs that an identity provider has signed (OpenID Connect), in place of keys of ours.

What it is: ``IdentityTokens`` verifies a token with the provider's public keys, and says who its holder is and which
rights it gives; ``Identities`` takes a request's key or token, whichever it is.
Invariants: only signatures by public keys count (never ``none`` or a shared secret); issuer, audience, expiry and
subject must be there and fit; a claim that cannot be read refuses the token, it is never taken for no limit. The
provider's keys are fetched outside the event loop, and at most once in ``FETCH_SECONDS_MIN``, whatever comes. Its old
keys stay good while it does not answer.
Not here: our own keys (``keys.py``), scopes of routes (``guard.py``).
Read next: ``guard.py``, ``docs/server.md``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headwater.clock import Clock
from headwater.errors import InvalidDeclaration, MissingExtra, Unauthenticated, Unavailable
from headwater.server.http.keys import CLAIM_LENGTH_MAX, CLAIM_VALUES_MAX, NAME_PATTERN, PREFIX, SCOPES, Holder, Keys
from headwater.server.server_settings import ServerSettings, is_loopback

logger = logging.getLogger("headwater.server")

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
DISCOVERY = "/.well-known/openid-configuration"
SCOPE_CLAIMS = ("scope", "scp", "roles", "permissions")
SCOPE_PREFIX = "headwater."
ONLY_CLAIM, PURPOSES_CLAIM = "headwater_only", "headwater_purposes"
LEEWAY_S = 30  # for clocks that differ
FETCH_SECONDS_MIN = 30.0
FETCH_SECONDS_MAX = 900.0  # keys that the provider has taken back are good for so long
ANSWER_SECONDS_MAX = 5.0
ANSWER_BYTES_MAX = 1 << 20


class Identities:
    """Who comes with a key or a token."""

    def __init__(self, keys: Keys | None, tokens: IdentityTokens | None) -> None:
        self.keys = keys
        self.tokens = tokens

    @staticmethod
    def of(settings: ServerSettings) -> Identities | None:
        """What a server asks for; None: nothing."""
        keys = None if settings.key_file is None else Keys(settings.key_file)
        tokens = None
        if settings.jwt_issuer is not None:
            assert settings.jwt_audience is not None
            tokens = IdentityTokens(settings.jwt_issuer, settings.jwt_audience, settings.jwt_keys)
        return None if keys is None and tokens is None else Identities(keys, tokens)

    async def holder(self, given: str) -> Holder | None:
        """The holder; None when it is unknown, ``Unauthenticated`` with the reason when it is no longer good."""
        if self.tokens is not None and given.count(".") == 2 and not given.startswith(PREFIX):
            if self.tokens.wants_keys(given):
                await asyncio.to_thread(self.tokens.fetch)
            return self.tokens.holder(given)
        return None if self.keys is None else self.keys.holder(given)


class IdentityTokens:
    """The tokens of one provider. ``keys_from`` is a file or an address of its public keys (JWKS); None: it is asked.

    >>> IdentityTokens("https://example.com", "shop", "http://example.com/keys")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: public keys cannot be trusted that come from http://example.com/keys
      Hint: Give an https address, or a file.
    """

    def __init__(self, issuer: str, audience: str, keys_from: str | None = None, clock: Clock | None = None) -> None:
        with MissingExtra.raised_for("tokens of an identity provider", "jwt"):
            import jwt
        self._jwt = jwt
        self.issuer = issuer
        self.audience = audience
        self.keys_from = keys_from
        self._clock = clock or Clock()
        self._lock = threading.Lock()
        self._keys: dict[str | None, Any] = {}
        self._fetched_at: float | None = None
        self._problem = "they were not fetched yet"
        address = keys_from if keys_from is not None else issuer
        if keys_from is None or "://" in keys_from:
            parts = urlsplit(address)
            if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
                raise InvalidDeclaration(
                    f"public keys cannot be trusted that come from {address}", hint="Give an https address, or a file."
                )

    def wants_keys(self, token: str) -> bool:
        """Whether the provider should be asked before this token is judged."""
        if self._fetched_at is None:
            return True
        age = self._clock.monotonic() - self._fetched_at
        return age >= FETCH_SECONDS_MAX or (age >= FETCH_SECONDS_MIN and self._key_id(token) not in self._keys)

    def fetch(self) -> None:
        """Ask for the provider's public keys."""
        with self._lock:
            now = self._clock.monotonic()
            if self._fetched_at is not None and now - self._fetched_at < FETCH_SECONDS_MIN:
                return  # another request has just done it
            self._fetched_at = now
            try:
                found = self._jwt.PyJWKSet.from_dict(self._read())
                self._keys = {each.key_id: each for each in found.keys}
            except (OSError, ValueError, KeyError, AttributeError, self._jwt.PyJWTError) as error:
                self._problem = str(error) or type(error).__name__
                logger.warning("the public keys of %s cannot be read: %s", self.issuer, self._problem)

    def holder(self, token: str) -> Holder:
        """Who a token is of, and what it is good for."""
        if not self._keys:
            raise Unavailable(
                f"tokens cannot be judged: the public keys of {self.issuer} cannot be read",
                detail=self._problem,
                hint="Check --jwt-issuer and --jwt-keys. They are tried again.",
            )
        key = self._keys.get(self._key_id(token))
        if key is None:
            raise _refused(f"it is signed by a key that {self.issuer} does not list")
        try:
            claims = self._jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=self.audience,
                issuer=self.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except self._jwt.PyJWTError as error:
            raise _refused(str(error)) from error
        return Holder(f"jwt:{claims['sub']}", _scopes(claims), _only(claims), _purposes(claims), _values(claims))

    def _key_id(self, token: str) -> str | None:
        try:
            found = self._jwt.get_unverified_header(token).get("kid")
        except self._jwt.PyJWTError:
            return None
        return found if isinstance(found, str) else None

    def _read(self) -> dict[str, Any]:
        if self.keys_from is not None and "://" not in self.keys_from:
            return dict(json.loads(Path(self.keys_from).read_text(encoding="utf-8")))
        address = self.keys_from
        if address is None:
            described = _fetched(self.issuer.rstrip("/") + DISCOVERY)
            if described.get("issuer") != self.issuer:
                raise ValueError(f"its description is of the issuer {described.get('issuer')!r}")
            address = str(described["jwks_uri"])
        return _fetched(address)


def _fetched(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(address, timeout=ANSWER_SECONDS_MAX) as answer:
        return dict(json.loads(answer.read(ANSWER_BYTES_MAX)))


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """The scopes that a token gives: the words ``headwater.query`` and so on in one of its usual claims.

    >>> sorted(_scopes({"scope": "openid headwater.query headwater.root", "roles": ["headwater.produce"]}))
    ['produce', 'query']
    """
    words: list[Any] = []
    for name in SCOPE_CLAIMS:
        value = claims.get(name)
        words += value.split() if isinstance(value, str) else value if isinstance(value, list) else []
    return frozenset(scope for scope in SCOPES if SCOPE_PREFIX + scope in words)


def _only(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """The names that a token is limited to."""
    if ONLY_CLAIM not in claims:
        return ()
    names = claims[ONLY_CLAIM]
    if (
        not isinstance(names, list)
        or not names
        or not all(isinstance(n, str) and NAME_PATTERN.fullmatch(n) for n in names)
    ):
        raise _refused(f"its claim {ONLY_CLAIM} is no list of names")
    return tuple(names)


def _purposes(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """The purposes whose personal columns a token's holder sees.

    >>> _purposes({"headwater_purposes": ["billing"]}), _purposes({})
    (('billing',), ())
    """
    named = claims.get(PURPOSES_CLAIM, [])
    if not isinstance(named, list) or not all(isinstance(purpose, str) for purpose in named):
        raise _refused(f"its claim {PURPOSES_CLAIM} is no list of purposes")
    return tuple(named)


def _values(claims: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """What a token says of its holder, by which rows are told apart: texts, whole numbers, and lists of them.

    >>> sorted(_values({"tenant": "acme", "teams": [7, "b"], "ok": True, "address": {"city": "Rome"}}))
    [('teams', '7'), ('teams', 'b'), ('tenant', 'acme')]
    """
    found = set()
    for name, given in claims.items():
        for value in (given if isinstance(given, list) else [given])[:CLAIM_VALUES_MAX]:
            text = str(value) if type(value) in (str, int) else ""
            if text and len(text) <= CLAIM_LENGTH_MAX and text.isprintable():
                found.add((name, text))
    return frozenset(found)


def _refused(why: str) -> Unauthenticated:
    return Unauthenticated(f"the token is not good: {why}", hint="Get a new one from your identity provider.")
