"""Durations that users give are texts, seconds or a timedelta, wherever they are given."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest

import headwater as hw
from headwater.errors import InvalidDeclaration


@pytest.mark.parametrize(
    "given",
    [
        lambda app: app.run(timeout="soon"),
        lambda app: app.capture(timeout="soon"),
        lambda app: app.sql("SELECT 1", timeout="soon"),
        lambda app: app.get_view("one").to_arrow(timeout="soon"),
        lambda app: list(app.get_view("one").rows(timeout="soon")),
        lambda app: app.get_view("one").changes(timeout="soon"),
        lambda app: app.attach("crm", "sqlite:///crm.db", timeout="soon"),
        lambda _: hw.sinks.Webhook("https://example.com", timeout="soon"),
        lambda _: hw.sinks.Email("mail.example.com", sender="a@example.com", to=[], timeout="soon"),
    ],
)
def test_a_timeout_that_is_no_duration_is_refused(tmp_path: Path, given: Callable[[hw.App], object]) -> None:
    with hw.App("shop", home=tmp_path / "home") as app:
        app.view("one", "SELECT 1 AS one")

        with pytest.raises(InvalidDeclaration, match="timeout cannot be 'soon'"):
            given(app)


@pytest.mark.parametrize("timeout", [90, 90.0, "90 seconds", "1m 30s", dt.timedelta(minutes=1.5)])
def test_a_timeout_is_a_number_of_seconds_a_text_or_a_timedelta(tmp_path: Path, timeout: float) -> None:
    with hw.App("shop", home=tmp_path / "home") as app:
        assert app.attach("crm", "sqlite:///crm.db", timeout=timeout).timeout == 90


def test_a_signature_is_checked_with_a_tolerance_that_is_a_text() -> None:
    signature = hw.inlets.Signature.slack("secret", tolerance="1 minute")
    headers = {"x-slack-signature": signature.sign(b"{}", timestamp="1000"), "x-slack-request-timestamp": "1000"}

    signature.check(headers, b"{}", now=1059.0)
    with pytest.raises(hw.errors.MessageRefused, match="signed 61 s ago, 60 are allowed"):
        signature.check(headers, b"{}", now=1061.0)
