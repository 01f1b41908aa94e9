"""Server settings: address and limits.

What it is: ``ServerSettings``, frozen and validated.
Invariants: a server that listens beyond loopback requires keys. Every limit has a value.
Not here: the keys (``server/http/keys.py``); enforcing the limits (``server/http/guard.py``,
``server/http/connections.py``, ``server/queries/``, ``server/realtime/broker.py``).
Read next: ``server/http/guard.py``, ``docs/server.md``.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, fields
from pathlib import Path

from headwater.errors import InvalidDeclaration


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """The settings of one server.

    >>> ServerSettings().port
    8080
    >>> ServerSettings(host="0.0.0.0")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: a server on 0.0.0.0 needs keys
      Without keys everyone who reaches it can read and write everything.
      Hint: Make one: headwater key add me --scope admin --key-file keys.json; then give --key-file keys.json. Or stay \
on 127.0.0.1, behind a proxy that asks.
    """

    host: str = "127.0.0.1"
    port: int = 8080  # 0: any that is free
    key_file: Path | None = None
    jwt_issuer: str | None = None  # whose tokens (JWT) are taken, as in "https://example.com"
    jwt_audience: str | None = None  # what they must be for
    jwt_keys: str | None = None  # a file or an address of the issuer's public keys; None: it is asked where they are
    tls_certificate: Path | None = None  # PEM, with the chain; None: plain HTTP
    tls_key: Path | None = None  # PEM; None: it is in the file of the certificate
    origins: tuple[str, ...] = ()  # pages of other sites that may call, as in "https://example.com"
    body_bytes_max: int = 16 << 20
    requests_per_second: float = 1000.0  # of one key, or of one address without
    request_burst: int = 2000
    query_seconds_max: float = 30.0
    query_rows_max: int = 10_000
    query_bytes_max: int = 16 << 20  # of an answer as it is sent, and of each value that a query makes
    query_memory_bytes: int = 256 << 20  # of a process that runs queries of the store, beyond what it needs itself
    queries_at_once_max: int = 4  # of the store, and as many of Spark
    spark_query_memory_bytes: int = 1 << 30  # Java's heap, for all queries of Spark together
    command_seconds_max: float = 10.0  # of a command to an aggregate
    answers_bytes_max: int = 256 << 20  # of large answers that wait for their readers
    wait_seconds_max: float = 30.0  # of a request that waits for something to come
    subscriptions_max: int = 2000
    subscription_queue_max: int = 256  # messages that wait for one subscriber
    send_seconds_max: float = 30.0  # for a subscriber to take one message
    members_max: int = 1000  # consumers of groups that are held for clients
    connections_max: int | None = None  # None: a quarter of the files that the process may have open
    head_seconds_max: float = 10.0  # for the head of a request to come, from a connection's first moment on
    body_seconds_max: float = 30.0  # for its body; a large one may take longer while it keeps coming
    idle_seconds_max: float = 30.0  # between two requests of a connection
    stalled_seconds_max: float = 60.0  # rows wait, and no tick comes: see server/engine/watchdog.py

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, (int, float)) and field.name != "port" and value <= 0:
                raise InvalidDeclaration(f"{field.name} cannot be {value!r}", hint="Use a number above zero.")
        if not 0 <= self.port <= 65535:
            raise InvalidDeclaration(f"port cannot be {self.port}", hint="Use 0 to 65535.")
        if self.tls_key is not None and self.tls_certificate is None:
            raise InvalidDeclaration(
                "a TLS key without its certificate", hint="Give both: --tls-certificate cert.pem --tls-key key.pem"
            )
        if (self.jwt_issuer is None) != (self.jwt_audience is None) or (self.jwt_keys and self.jwt_issuer is None):
            raise InvalidDeclaration(
                "tokens need an issuer and an audience",
                hint="Give both: --jwt-issuer https://example.com --jwt-audience shop",
            )
        if self.key_file is None and self.jwt_issuer is None and not is_loopback(self.host):
            raise InvalidDeclaration(
                f"a server on {self.host} needs keys",
                detail="Without keys everyone who reaches it can read and write everything.",
                hint="Make one: headwater key add me --scope admin --key-file keys.json; then give --key-file"
                " keys.json. Or stay on 127.0.0.1, behind a proxy that asks.",
                host=self.host,
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
