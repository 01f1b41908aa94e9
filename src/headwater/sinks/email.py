"""Email: notifications by mail.

What it is: ``Email``, a mail server and recipients; one mail for all alerts of a tick.
Invariants: an unsent mail raises: ``Unavailable`` when a retry may help, ``SinkRefused`` when it will not.
Not here: when to send (``alert_sink.py``).
Read next: ``alert_sink.py``.
"""

from __future__ import annotations

import smtplib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Any

from headwater.durations import Duration, to_seconds
from headwater.errors import SinkRefused, Unavailable
from headwater.log.schema.json_lines import json_line

ANSWER_SECONDS_MAX = 30.0
SHOWN_MAX = 50


@dataclass(frozen=True)
class Email:
    """Where mails go: ``Email("mail.example.com", sender="app@example.com", to=["ops@example.com"])``.

    >>> Email("mail.example.com", sender="app@example.com", to=["ops@example.com"]).port
    25
    """

    host: str
    sender: str
    to: Sequence[str]
    port: int = 25
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    starttls: bool = False
    timeout: Duration = ANSWER_SECONDS_MAX

    def __post_init__(self) -> None:
        to_seconds(self.timeout, what="timeout")

    def send(self, alerts: Sequence[Mapping[str, Any]]) -> None:
        """One mail about these alerts, which are of one view."""
        message = self.message(alerts)
        try:
            with smtplib.SMTP(self.host, self.port, timeout=to_seconds(self.timeout)) as server:
                if self.starttls:
                    server.starttls()
                if self.user is not None:
                    server.login(self.user, self.password or "")
                server.send_message(message)
        except (smtplib.SMTPSenderRefused, smtplib.SMTPRecipientsRefused, smtplib.SMTPAuthenticationError) as error:
            raise SinkRefused(
                f"the mail server {self.host} refuses the mail: {error}", hint="Check sender, recipients and password."
            ) from error
        except (OSError, smtplib.SMTPException) as error:
            raise Unavailable(
                f"the mail server {self.host} does not take the mail: {error}", hint="It is retried."
            ) from error

    def message(self, alerts: Sequence[Mapping[str, Any]]) -> EmailMessage:
        """The mail.

        >>> alert = {"app": "shop", "view": "rates", "rule": "rate > 0.05", "key": "DE", "row": {"rate": 0.1}}
        >>> alert["tick"] = 7
        >>> mail = Email("mail.example.com", sender="app@example.com", to=["ops@example.com"]).message([alert])
        >>> mail["Subject"], mail.get_content()
        ('shop: rates: rate > 0.05 (DE)', 'DE: {"rate":0.1}\\n\\nSince tick 7.\\n')
        """
        first = alerts[0]
        message = EmailMessage()
        about = str(first["key"]) if len(alerts) == 1 else f"{len(alerts)} rows"
        subject = f"{first['app']}: {first['view']}: {first['rule']} ({about})"
        message["Subject"] = " ".join(subject.split())
        message["From"] = self.sender
        message["To"] = ", ".join(self.to)
        lines = [f"{alert['key']}: {json_line(alert['row'])}" for alert in alerts[:SHOWN_MAX]]
        if len(alerts) > SHOWN_MAX:
            lines.append(f"… and {len(alerts) - SHOWN_MAX} more")
        message.set_content("\n".join([*lines, "", f"Since tick {first['tick']}."]) + "\n")
        return message

    def __str__(self) -> str:
        return f"mail to {', '.join(self.to)}"
