"""The command line as the tests call it: in this process, or as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from headwater.cli.main import app

SOURCE = Path(__file__).parents[2] / "src"


class CommandLine:
    """``headwater --home HOME …``."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __call__(self, *words: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(app, [*words, "--home", str(self.home)], input=stdin)

    def json(self, *words: str, stdin: str | bytes | None = None) -> Any:
        result = self(*words, "--json", stdin=stdin)
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    def error(self, *words: str, stdin: str | bytes | None = None) -> dict[str, Any]:
        """The error that a call must end with, as programs get it; with its exit status."""
        result = self(*words, "--json", stdin=stdin)
        assert result.exit_code != 0
        return {**json.loads(result.stderr), "exit_status": result.exit_code}

    def start(self, *words: str) -> subprocess.Popen[str]:
        """The same as a process, with pipes."""
        return subprocess.Popen(
            [sys.executable, "-m", "headwater.cli.main", "--home", str(self.home), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )


Invoke = Callable[..., Result]
