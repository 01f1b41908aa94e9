"""The server's packages are optional, and the server itself needs no Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headwater.errors import MissingExtra
from headwater.server import required

SOURCE = Path(__file__).parents[3] / "src"


@pytest.mark.parametrize("package", ["fastapi", "uvicorn", "websockets"])
def test_a_missing_package_is_told_with_the_install_line(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(MissingExtra, match=f"needs the package {package}") as told:
        required()

    assert told.value.hint == 'pip install "headwater[server]"'


def run(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, env={"PYTHONPATH": str(SOURCE)}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_whole_server_is_made_without_spark(tmp_path: Path) -> None:
    code = """
import sys, headwater as hw
from headwater.server.application import create
from headwater.server.server_state import ServerState
app = hw.App("shop", home="home")
app.table("users", "id BIGINT, country STRING", key="id")
app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
app.sink("countries", hw.sinks.SQLite("copy.db"))
state = ServerState(app)
create(state).openapi()
state.status.read()
print(sorted({name.split(".")[0] for name in sys.modules} & {"pyspark", "py4j", "pandas"}))
"""
    assert run(code, tmp_path) == "[]"


def test_the_command_line_imports_no_server_until_it_serves(tmp_path: Path) -> None:
    code = """
import sys, headwater.cli.main
print(sorted({name.split(".")[0] for name in sys.modules} & {"fastapi", "starlette", "uvicorn", "pydantic"}))
"""
    assert run(code, tmp_path) == "[]"
