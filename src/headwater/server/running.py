"""Running a server: uvicorn, signals and shutdown.

What it is: ``serve``, which listens until SIGTERM or Ctrl-C.
Invariants: shutdown stops accepting, sends subscribers their resume tokens, and stops the engine after its tick. A
second signal ends it at once.
Not here: routes (``application.py``).
Read next: ``application.py``, ``cli/server/serve_command.py``.
"""

from __future__ import annotations

import asyncio
import functools
import math
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headwater.errors import InvalidDeclaration, Unavailable
from headwater.server.http.connections import ACCEPTED_AT_ONCE, HEAD_BYTES_MAX, bounded

if TYPE_CHECKING:
    from headwater.server.server_settings import ServerSettings
    from headwater.server.server_state import ServerState

ENDING_S = 10  # for requests that are under way
WAITING_MAX = 2048  # connections that wait to be accepted


def serve(state: ServerState, listener: socket.socket, *, on_listening: Callable[[str], None] | None = None) -> None:
    """Serve on a socket that listens, until a signal. ``on_listening`` is called with the address."""
    asyncio.run(_serve(state, listener, on_listening))


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; refused with a sentence when the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named: asyncio sets TCP_NODELAY only then, and without it an answer waits 40 ms for an ACK.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host.strip("[]"), port))
        made.listen(WAITING_MAX)
    except OSError as error:
        made.close()
        raise Unavailable(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="Give another port with --port; 0 is any free one.",
        ) from error
    return made


def address_of(listener: socket.socket, *, tls: bool) -> str:
    """The address for a browser."""
    host, port = listener.getsockname()[:2]
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def check_tls(settings: ServerSettings) -> None:
    """Refuse a certificate or a key that cannot be used, before anything is started."""
    if settings.tls_certificate is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            settings.tls_certificate, settings.tls_key, password=_no_passphrase
        )
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        files = " and ".join(str(each) for each in (settings.tls_certificate, settings.tls_key) if each is not None)
        raise InvalidDeclaration(
            f"TLS cannot be used with {files}: {getattr(error, 'reason', None) or getattr(error, 'strerror', error)}",
            hint="Give PEM files that belong together: the certificate with its chain, and its private key without a"
            " passphrase.",
        ) from error


def _no_passphrase() -> str:
    raise ValueError("the private key has a passphrase")  # OpenSSL would ask for it at the terminal


async def _serve(state: ServerState, listener: socket.socket, on_listening: Callable[[str], None] | None) -> None:
    import uvicorn

    from headwater.server.application import create

    class HttpServer(uvicorn.Server):
        """Leaves signals to us: uvicorn would wait for subscribers, who never end by themselves."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            listener.listen(WAITING_MAX)  # uvicorn has set it to what it takes at once

    settings = state.settings
    config = uvicorn.Config(
        create(state),
        log_config=None,
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=ENDING_S,
        ws_max_size=64 << 10,
        ws_per_message_deflate=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=math.ceil(settings.idle_seconds_max),
        backlog=ACCEPTED_AT_ONCE,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
    )
    config.load()
    config.http_protocol_class = bounded(config.http_protocol_class, settings, state.connections)
    server = HttpServer(config)
    loop = asyncio.get_running_loop()

    def end() -> None:
        server.force_exit = server.should_exit  # the second time
        server.should_exit = True
        state.close_soon()

    if config.is_ssl:  # asyncio's own limit is a minute
        handshake_s = settings.head_seconds_max
        loop.create_server = functools.partial(loop.create_server, ssl_handshake_timeout=handshake_s)  # type: ignore[method-assign]
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    if on_listening is not None:
        announcing = loop.create_task(_announce(server, on_listening, address_of(listener, tls=config.is_ssl)))
    await server.serve(sockets=[listener])
    if on_listening is not None:
        announcing.cancel()


async def _announce(server: Any, on_listening: Callable[[str], None], address: str) -> None:
    while not server.started and not server.should_exit:
        await asyncio.sleep(0.02)
    if server.started:
        on_listening(address)
