"""``headwater inlet``: inlets of an app's file, run and listed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

import headwater as hw
from headwater.app import App
from headwater.cli.main import app as command_line
from tests.unit.command_line import SOURCE

APP = """
import headwater as hw

app = hw.App("shop", home={home!r})
app.topic("pushes", "repository STRING")
app.inlet("github", hw.inlets.Webhook("pushes", path="/github"))
app.inlet("metrics", hw.inlets.StatsD("samples", port=0))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(APP.format(home=str(tmp_path / "home")))
    return path


def test_inlets_run_without_spark_and_their_counts_add_up_over_runs(file: Path) -> None:
    before = listed(file)
    for _ in range(2):
        with started(file) as process:
            assert process.stdout is not None
            webhook, statsd = (json.loads(process.stdout.readline()) for _ in range(2))
            body, kind = b'{"repository": "headwater"}', {"Content-Type": "application/json"}
            urllib.request.urlopen(urllib.request.Request(webhook["address"], body, kind), timeout=30).close()
            where = urlsplit(statsd["address"])
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(b"hits:1|c\nhits:?|c", (where.hostname or "", where.port or 0))
            process.send_signal(signal.SIGTERM)
            last = [json.loads(line) for line in process.communicate(timeout=60)[0].splitlines()]
        assert process.returncode == 0

    after = {each["inlet"]: each for each in listed(file)}
    assert [each["received"] for each in before] == [0, 0]
    assert [each["ended"] for each in last] == [True, True]
    assert (after["github"]["received"], after["github"]["appended"]) == (2, 2)
    assert (after["metrics"]["received"], after["metrics"]["appended"], after["metrics"]["refused"]) == (4, 2, 2)
    assert after["github"]["address"].endswith("/github")
    assert "http://127.0.0.1" in CliRunner().invoke(command_line, ["inlet", "ls", str(file)]).stdout


def listed(file: Path) -> list[dict[str, Any]]:
    result = CliRunner().invoke(command_line, ["inlet", "ls", str(file), "--json"])
    assert result.exit_code == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def started(file: Path) -> subprocess.Popen[str]:
    # With a pyspark that cannot be imported: inlets need none.
    blocked = file.parent / "blocked" / "pyspark"
    blocked.mkdir(parents=True, exist_ok=True)
    (blocked / "__init__.py").write_text("raise ImportError('no Spark here')\n")
    environment = {**os.environ, "PYTHONPATH": f"{blocked.parent}:{SOURCE}"}
    words = ["inlet", "run", str(file), "--json"]
    return subprocess.Popen(
        [sys.executable, "-m", "headwater.cli.main", *words], stdout=subprocess.PIPE, text=True, env=environment
    )


def test_an_app_without_inlets_is_told_so(tmp_path: Path) -> None:
    file = tmp_path / "empty.py"
    file.write_text(f"import headwater as hw\napp = hw.App('empty', home={str(tmp_path / 'home')!r})\n")

    error = CliRunner().invoke(command_line, ["inlet", "run", str(file), "--json"])

    assert error.exit_code == 2
    assert json.loads(error.stderr)["message"] == 'app "empty" declares no inlet'


def test_declaring_twice_and_finding_none_are_told(tmp_path: Path) -> None:
    with App("shop", home=tmp_path / "home") as app:
        app.inlet("metrics", hw.inlets.StatsD("samples", port=0))
        with pytest.raises(hw.errors.DeclarationConflict, match='inlet "metrics" is declared twice'):
            app.inlet("metrics", hw.inlets.StatsD("samples", port=0))
        with pytest.raises(hw.errors.InvalidDeclaration, match='no inlet "metric" was declared'):
            app.get_inlet("metric")
        with pytest.raises(hw.errors.UnknownTopic):
            app.inlet("hooks", hw.inlets.Webhook("nowhere"))


def test_when_one_cannot_start_none_runs(tmp_path: Path) -> None:
    with App("shop", home=tmp_path / "home") as app:
        taken = app.inlet("first", hw.inlets.StatsD("samples", port=0))
        taken.start()
        app.inlet("second", hw.inlets.StatsD("samples", port=taken.bound[1]))  # type: ignore[attr-defined]
        with pytest.raises(hw.errors.Unavailable, match="cannot listen on"):
            app.inlets.start()

        assert [inlet.running for inlet in app.inlets] == [False, False]
