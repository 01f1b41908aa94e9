"""The examples are apps that can be planned as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_can_be_planned_and_has_no_whole_view(example: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headwater.cli.main", "plan", str(example), "--no-types", "--json"]

    run = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True
    )

    assert run.returncode == 0, run.stderr
    kinds = {view["name"]: view["kind"] for view in json.loads(run.stdout)["views"]}
    assert kinds
    assert "whole" not in kinds.values()
