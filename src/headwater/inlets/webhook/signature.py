"""Signature: the HMAC check of a webhook's sender.

What it is: ``Signature``, by header, prefix, algorithm and signed text; with presets for GitHub, Stripe, Slack and
Shopify.
Invariants: the comparison takes constant time; a timestamp counts only if it is signed too; no secret appears in a
``repr`` or an error. Several secrets may be valid at once, so one can be rotated without a gap.
Not here: public-key signatures; replays within the tolerance (``inlets/ingest.py``).
Read next: ``webhook_receiver.py``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from headwater.durations import Duration, to_seconds
from headwater.errors import InvalidDeclaration, MessageRefused

TOLERANCE_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The signing scheme of a sender.

    ``header`` holds the signature behind ``prefix``, alone or as one of several elements with commas between.
    ``signed`` is the signed text: ``{body}``, and ``{timestamp}`` where the sender signs one; it comes from
    ``timestamp_header`` (behind ``timestamp_prefix``), in seconds, and may be ``tolerance`` off.

    >>> signature = Signature.github("my secret")
    >>> given = signature.sign(b'{"zen": 1}')
    >>> signature.check({"x-hub-signature-256": given}, b'{"zen": 1}', now=0.0)
    >>> signature.check({"x-hub-signature-256": given}, b'{"zen": 2}', now=0.0)
    Traceback (most recent call last):
        ...
    headwater.errors.MessageRefused: the signature in X-Hub-Signature-256 is not that of this body
      Hint: Sign the bytes as they are sent, with the secret that the inlet was given.
    >>> [scheme("my secret").header for scheme in (Signature.stripe, Signature.slack, Signature.shopify)]
    ['Stripe-Signature', 'X-Slack-Signature', 'X-Shopify-Hmac-Sha256']
    """

    secrets: tuple[str, ...] = field(repr=False)
    header: str = "X-Hub-Signature-256"
    prefix: str = "sha256="
    algorithm: str = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    signed: str = "{body}"
    timestamp_header: str | None = None
    timestamp_prefix: str = ""
    tolerance: Duration = TOLERANCE_S

    def __post_init__(self) -> None:
        if not self.secrets or not all(isinstance(each, str) and each for each in self.secrets):
            raise InvalidDeclaration("a signature needs a secret", hint="Give the one that the sender signs with.")
        if self.algorithm not in hashlib.algorithms_guaranteed or self.algorithm.startswith("shake"):
            raise InvalidDeclaration(
                f"algorithm cannot be {self.algorithm!r}", hint='Use "sha256", "sha1", "sha512", …'
            )
        if self.encoding not in ("hex", "base64"):
            raise InvalidDeclaration(f"encoding cannot be {self.encoding!r}", hint="Use one of: hex, base64.")
        if self.signed.count("{body}") != 1:
            raise InvalidDeclaration(f"signed={self.signed!r} must hold {{body}} once", hint='For example "{body}".')
        if ("{timestamp}" in self.signed) != (self.timestamp_header is not None):
            raise InvalidDeclaration(
                "a timestamp header and a signed {timestamp} need each other",
                hint='Give both: signed="{timestamp}.{body}" and timestamp_header="…".',
            )
        to_seconds(self.tolerance, what="tolerance")

    @staticmethod
    def github(*secrets: str) -> Signature:
        """GitHub's scheme, used by many others."""
        return Signature(secrets=secrets)

    @staticmethod
    def stripe(*secrets: str, tolerance: Duration = TOLERANCE_S) -> Signature:
        """Stripe: ``t=…,v1=…`` in one header."""
        return Signature(
            secrets=secrets,
            header="Stripe-Signature",
            prefix="v1=",
            signed="{timestamp}.{body}",
            timestamp_header="Stripe-Signature",
            timestamp_prefix="t=",
            tolerance=tolerance,
        )

    @staticmethod
    def slack(*secrets: str, tolerance: Duration = TOLERANCE_S) -> Signature:
        """Slack."""
        return Signature(
            secrets=secrets,
            header="X-Slack-Signature",
            prefix="v0=",
            signed="v0:{timestamp}:{body}",
            timestamp_header="X-Slack-Request-Timestamp",
            tolerance=tolerance,
        )

    @staticmethod
    def shopify(*secrets: str) -> Signature:
        """Shopify: base64, without a prefix."""
        return Signature(secrets=secrets, header="X-Shopify-Hmac-Sha256", prefix="", encoding="base64")

    def sign(self, body: bytes, *, timestamp: str = "", secret: str | None = None) -> str:
        """The signature of a body as the sender writes it, with its prefix."""
        before, _, after = self.signed.replace("{timestamp}", timestamp).partition("{body}")
        key = (secret or self.secrets[0]).encode()
        digest = hmac.new(key, before.encode() + body + after.encode(), self.algorithm).digest()
        text = digest.hex() if self.encoding == "hex" else base64.b64encode(digest).decode()
        return self.prefix + text

    def check(self, headers: Mapping[str, str], body: bytes, *, now: float) -> None:
        """Refuse a request that is not signed by one of the secrets. Names of ``headers`` are in lower case."""
        given = _elements(headers.get(self.header.lower(), ""), self.prefix)
        if not given:
            raise MessageRefused(
                f"there is no signature in {self.header}",
                hint=f"It is expected as {self.header}: {self.prefix or '…'}{'…' * bool(self.prefix)}",
                header=self.header,
            )
        timestamp = self._timestamp(headers)
        expected = [self.sign(body, timestamp=timestamp, secret=each).encode() for each in self.secrets]
        # Every pair is compared, so that the time taken reveals nothing.
        matches = [hmac.compare_digest(one.encode("utf-8", "replace"), other) for one in given for other in expected]
        if not any(matches):
            raise MessageRefused(
                f"the signature in {self.header} is not that of this body",
                hint="Sign the bytes as they are sent, with the secret that the inlet was given.",
                header=self.header,
            )
        age = now - float(timestamp) if timestamp else 0.0
        tolerance = to_seconds(self.tolerance)
        if abs(age) > tolerance:
            when = "ago" if age > 0 else "ahead"
            raise MessageRefused(
                f"the request was signed {abs(age):.0f} s {when}, {tolerance:g} are allowed",
                hint="Send it again, or set the clocks.",
                header=self.timestamp_header,
            )

    def _timestamp(self, headers: Mapping[str, str]) -> str:
        if self.timestamp_header is None:
            return ""
        found = _elements(headers.get(self.timestamp_header.lower(), ""), self.timestamp_prefix)
        if len(found) != 1 or not re.fullmatch(r"\d{1,12}", found[0].removeprefix(self.timestamp_prefix)):
            raise MessageRefused(
                f"there is no time in {self.timestamp_header}",
                hint="It is expected in whole seconds since 1970.",
                header=self.timestamp_header,
            )
        return found[0].removeprefix(self.timestamp_prefix)


def _elements(text: str, prefix: str) -> list[str]:
    """The elements of a header that begin with a prefix; a few are enough for any honest sender."""
    found = [part.strip() for part in text.split(",")]
    return [part for part in found if part and part.startswith(prefix)][:8]
