"""What ``headwater init`` writes works as it is."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli.main import app

pytestmark = pytest.mark.usefixtures("spark")


def test_the_app_that_init_writes_shows_its_view(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert CliRunner().invoke(app, ["init", str(tmp_path)]).exit_code == 0

    runpy.run_path(str(tmp_path / "app.py"), run_name="__main__")

    assert sorted(capsys.readouterr().out.splitlines()) == [
        "{'country': 'DE', 'revenue': 14.75, 'orders': 2}",
        "{'country': 'FR', 'revenue': 20.0, 'orders': 1}",
    ]
