"""Inlets under a running app: what comes in is in the views."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import headwater as hw
from headwater.app import App
from headwater.inlets.statsd.statsd_inlet import StatsdInlet


@pytest.mark.usefixtures("spark")
def test_an_app_that_runs_takes_messages_and_keeps_its_views(tmp_path: Path) -> None:
    with App("metrics", home=tmp_path / "home") as app:
        inlet = app.inlet("statsd", hw.inlets.StatsD("samples", port=0))
        assert isinstance(inlet, StatsdInlet)
        app.view("hits", "SELECT metric, sum(value) AS hits FROM samples GROUP BY metric")

        app.start()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"hits:1|c\nhits:2|c", inlet.bound)
        inlet.settle(2)
        token = hw.Token({"samples": app.get_topic("samples").end_offsets()})
        found = app.sql("SELECT * FROM hits", at_least=token, timeout=60).to_pylist()
        app.stop()

        assert found == [{"metric": "hits", "hits": 3.0}]
        assert not inlet.running
