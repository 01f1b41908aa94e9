"""The guard: checks that every request passes before its route.

What it is: ASGI middleware that checks host and origin, key, request rate and body size, and puts the key's holder into
``scope["state"]``; routes require scopes with ``needs``, which also compares the name in the path with the names that a
key is limited to.
Invariants: a refused request has changed nothing and was not read beyond its limit. A page of another site can neither
read nor write through its visitor's browser, with or without keys. Memory for callers is bounded. A key that is limited
to names is refused wherever a request is about more than one name, unless the route compares the names by itself.
Not here: the keys (``keys.py``), limits of single routes (``query_places.py``, ``server/realtime/broker.py``).
Read next: ``keys.py``, ``docs/server.md``.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from fastapi import Depends
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send

from headwater.errors import Forbidden, HeadwaterError, TooLarge, TooMany, Unauthenticated
from headwater.log.maintenance.audit_trail import is_of_trail
from headwater.server.http.answers import error_answer
from headwater.server.http.keys import Holder
from headwater.server.http.query_places import ANYBODY
from headwater.server.server_settings import ServerSettings, is_loopback

if TYPE_CHECKING:
    from headwater.server.server_state import ServerState

COOKIE = "headwater_key"
CALLERS_MAX = 10_000
NO_KEY = Holder("no key", frozenset())
EVERYBODY = Holder("everybody", frozenset({"admin"}))  # of a server without keys
NAMED_BY = ("topic", "table", "view", "name", "sink")  # parameters of paths
WEBSOCKET_REFUSED = 4000  # and the HTTP status: 4401, 4403, 4429

ASGI = Callable[[Scope, Receive, Send], Awaitable[None]]


class Guard:
    """The middleware."""

    def __init__(self, inner: ASGI, state: ServerState) -> None:
        self._inner = inner
        self._state = state
        self._settings = state.settings
        self._hosts = _hosts(state.settings)
        self._buckets = Buckets(state.settings.requests_per_second, state.settings.request_burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._inner(scope, receive, send)
            return
        request = HTTPConnection(scope)
        origin = request.headers.get("origin")
        allowed = origin in self._settings.origins
        if allowed and scope["type"] == "http":
            assert origin is not None
            if scope["method"] == "OPTIONS":
                await _preflight(send, origin)
                return
            send = _with_origin(send, origin)
        try:
            self._check_site(request, origin, allowed=allowed)
            holder = await self._holder(request)
            scope.setdefault("state", {}).update(holder=holder, still=partial(self._still, request, holder))
            if holder is NO_KEY and _asks_for_key(scope["path"]):
                raise _no_key()  # before its body is read
            self._check_length(request)
        except HeadwaterError as error:
            await _refuse(error, scope, receive, send)
            return
        await self._inner(scope, self._bounded(receive), _safe(send))

    # Where from

    def _check_site(self, request: HTTPConnection, origin: str | None, *, allowed: bool) -> None:
        host = request.headers.get("host", "")
        if self._hosts is not None and _name(host) not in self._hosts:
            # A page whose name was pointed at 127.0.0.1 (DNS rebinding) comes with its own name.
            raise Forbidden(f"this server is not {host!r}", hint="Use the address that it listens on.")
        if origin is not None and not allowed and urlsplit(origin).netloc.lower() != host.lower():
            raise Forbidden(
                f"pages of {origin} may not call this server",
                hint="Start the server with --origin to allow this site.",
                origin=origin,
            )

    # Who

    async def _holder(self, request: HTTPConnection) -> Holder:
        identities = self._state.identities
        address = request.client.host if request.client is not None else ""
        if identities is None:
            self._buckets.take(address)
            return EVERYBODY
        given = key_of(request)
        if given is None:
            self._buckets.take(address)
            return NO_KEY
        try:
            holder = await identities.holder(given)
        except HeadwaterError:
            self._buckets.take(address)
            raise
        # A wrong key counts for its address, so that guessing is slow.
        self._buckets.take(address if holder is None else f"key:{holder.name}")
        if holder is None:
            raise Unauthenticated("unknown key", hint="It may have been removed: headwater key ls shows the names.")
        return holder

    async def _still(self, request: HTTPConnection, holder: Holder) -> bool:
        """Whether the request would have the same rights if it came now: one that lasts is asked again and again."""
        identities = self._state.identities
        if identities is None or holder is NO_KEY:
            return True
        try:
            return await identities.holder(key_of(request) or "") == holder
        except HeadwaterError:  # it has ended, or what it is good for cannot be put on record
            return False

    # How much

    def _check_length(self, request: HTTPConnection) -> None:
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > self._settings.body_bytes_max:
            raise self._too_large()

    def _too_large(self) -> TooLarge:
        limit = self._settings.body_bytes_max
        return TooLarge(f"the body exceeds {limit:,} bytes", hint="Send it in parts.", bytes_max=limit)

    def _bounded(self, receive: Receive) -> Receive:
        """Enforce the limit for chunked bodies, which do not state their length."""
        taken = 0

        async def bounded() -> Any:
            nonlocal taken
            message = await receive()
            if message["type"] == "http.request":
                taken += len(message.get("body", b""))
                if taken > self._settings.body_bytes_max:
                    raise self._too_large()
            return message

        return bounded


class Buckets:
    """Token buckets: a rate limit for each caller.

    >>> buckets = Buckets(rate=1.0, burst=2)
    >>> buckets.take("a"); buckets.take("a")
    >>> buckets.take("a")
    Traceback (most recent call last):
        ...
    headwater.errors.TooMany: too many requests: the limit is 1 a second
      Hint: Wait a moment; send more rows in one request.
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> None:
        """Count one request; ``TooMany`` when the bucket is empty."""
        now = time.monotonic()
        left, at = self._left.pop(caller, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        self._left[caller] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > CALLERS_MAX:
            self._left.popitem(last=False)
        if left < 1:
            raise TooMany(
                f"too many requests: the limit is {self._rate:g} a second",
                hint="Wait a moment; send more rows in one request.",
                requests_per_second=self._rate,
            )


def needs(scope: str, *, about: str = "name") -> Callable[[HTTPConnection], Awaitable[None]]:
    """A route's dependency: the caller's key has this scope, for what the request is about.

    ``about``: ``name``, the topic, view or other thing that the path names; ``all``, more than one thing; ``own``, what
    the route compares by itself (``check_name_of``).
    """

    # async, because FastAPI runs other dependencies in a thread.
    async def check(request: HTTPConnection) -> None:
        holder: Holder = request.scope["state"]["holder"]
        if holder is NO_KEY:
            raise _no_key()
        if not holder.may(scope):
            raise Forbidden(
                f'key "{holder.name}" lacks the scope {scope}',
                detail=f"It has: {', '.join(sorted(holder.scopes))}.",
                hint=f"Make a key with it: headwater key add NAME --scope {scope} --key-file FILE",
                scope=scope,
            )
        topic = request.path_params.get("topic")
        if topic is not None and is_of_trail(topic) and not holder.may("admin"):
            raise Forbidden(
                f'"{topic}" is for keys with the scope admin', hint="On the machine: headwater audit ls.", topic=topic
            )
        if holder.only and about != "own":
            named = next((request.path_params[each] for each in NAMED_BY if each in request.path_params), None)
            check_name_of(holder, named if about == "name" else None)

    return check


def _asks_for_key(path: str) -> bool:
    """Whether all that is at this path asks for a key: everything but the pages, the health and the session."""
    return path == "/metrics" or (path.startswith("/v1/") and path != "/v1/session")


def _no_key() -> Unauthenticated:
    return Unauthenticated("this server requires a key", hint="Send it: Authorization: Bearer hw_…, or X-API-Key: hw_…")


def check_name_of(holder: Holder, name: str | None) -> None:
    """Refuse a name that the key is not good for; None: the request is about more than one."""
    if name is None and holder.only:
        said = "this request is about more than that"
    elif name is not None and not holder.may_touch(name):
        said = f'"{name}" is not among them'
    else:
        return
    raise Forbidden(
        f'key "{holder.name}" is limited to {", ".join(holder.only)}: {said}',
        hint="Make another key: headwater key add NAME --scope … --only … --key-file FILE",
    )


async def _caller(request: HTTPConnection) -> str:
    """The holder of the query slots that a request uses; without keys all callers share them."""
    holder: Holder = request.scope["state"]["holder"]
    return ANYBODY if holder is EVERYBODY else holder.name


Caller = Annotated[str, Depends(_caller)]


def key_of(request: HTTPConnection) -> str | None:
    """The request's key, from a header or the dashboard's cookie."""
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and given.strip():
        return given.strip()
    header = request.headers.get("x-api-key")
    if header:
        return header
    try:
        cookie = SimpleCookie(request.headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return cookie.value if cookie is not None else None


def _hosts(settings: ServerSettings) -> frozenset[str] | None:
    """The allowed host names of a server on loopback; None: any, because it has keys."""
    if not is_loopback(settings.host):
        return None
    return frozenset({"localhost", "127.0.0.1", "::1", settings.host.strip("[]").lower()})


def _name(host: str) -> str:
    """The host without its port.

    >>> _name("127.0.0.1:8080"), _name("[::1]:8080"), _name("localhost")
    ('127.0.0.1', '::1', 'localhost')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


async def _refuse(error: HeadwaterError, scope: Scope, receive: Receive, send: Send) -> None:
    answer = error_answer(error)
    if scope["type"] == "http":
        await answer(scope, receive, send)
        return
    await receive()  # websocket.connect
    await send(
        {"type": "websocket.close", "code": WEBSOCKET_REFUSED + answer.status_code, "reason": error.message[:120]}
    )


async def _preflight(send: Send, origin: str) -> None:
    headers = {
        "access-control-allow-origin": origin,
        "vary": "origin",
        "access-control-max-age": "600",
        "access-control-allow-methods": "GET, POST, DELETE",
        "access-control-allow-headers": "authorization, content-type, x-api-key, last-event-id, "
        "headwater-producer, headwater-sequence",
    }
    listed = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 204, "headers": listed})
    await send({"type": "http.response.body", "body": b""})


def _with_origin(send: Send, origin: str) -> Send:
    async def sent(message: Any) -> None:
        if message["type"] == "http.response.start":
            own = [(b"access-control-allow-origin", origin.encode("latin-1", "replace")), (b"vary", b"origin")]
            message = {**message, "headers": [*message.get("headers", ()), *own]}
        await send(message)

    return sent


SAFE_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (
        b"content-security-policy",
        b"default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
]


def _safe(send: Send) -> Send:
    async def sent(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *SAFE_HEADERS]}
        await send(message)

    return sent
