"""The examples are apps that can be planned as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing.postgres_server import PostgresServer

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """The database of examples/shop_live.py, which asks it for columns."""
    with PostgresServer() as server:
        server.execute((ROOT / "examples" / "shop_live.sql").read_text(encoding="utf-8"))
        yield server.dsn


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_can_be_planned_and_has_no_whole_view(example: Path, database: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headwater.cli.main", "plan", str(example), "--no-types", "--json"]

    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SHOP_DATABASE": database}

    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    assert run.returncode == 0, run.stderr
    kinds = {view["name"]: view["kind"] for view in json.loads(run.stdout)["views"]}
    assert kinds
    assert "whole" not in kinds.values()
