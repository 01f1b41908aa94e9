"""schemathesis against the OpenAPI: whatever is sent, no answer is an unexpected error of the server.

What it is: requests made from the schema, right ones and wrong ones, against a real process.
Invariants: 503 and 504 are said on purpose (no engine, a time limit); 500 never is. After it all the home is sound.
Not here: streams, which never end (``test_subscriptions.py``).
Read next: ``docs/server.md``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from headwater.log.home import Log
from tests.services.server.conftest import declared
from tests.services.server.processes import ServerProcess
from tests.services.server.ticks_by_hand import HandTicks

EXAMPLES = 6 * int(os.environ.get("HEADWATER_THOROUGH", "1"))
# Names that are there, so that requests get further than to the look for a name.
SETTINGS = """
[parameters]
"path.topic" = "orders"
"path.table" = "orders"
"path.view" = "revenue"
"path.group" = "billing"
"path.sink" = "revenue.search"
"path.id" = "CONSUMER"

[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "503", "504"]
"""


def schemathesis(address: str, folder: Path, consumer: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("schemathesis", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert program is not None
    (folder / "schemathesis.toml").write_text(SETTINGS.replace("CONSUMER", consumer))
    command = [
        program,
        "--config-file",
        str(folder / "schemathesis.toml"),
        "run",
        f"{address}/openapi.json",
        "--checks",
        "not_a_server_error",
        "--phases",
        "examples,coverage,fuzzing",
        "--max-examples",
        str(EXAMPLES),
        "--exclude-path-regex",
        "subscribe|/v1/events",
        "--seed",
        "7",
        "--no-color",
        "--workers",
        "1",  # in two threads ast.parse of Python 3.11 fails now and then
        "--suppress-health-check",
        "all",
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=900)


def test_no_request_that_the_schema_allows_or_forbids_is_an_unexpected_error(tmp_path: Path) -> None:
    with declared(tmp_path / "home") as log:
        ticks = HandTicks(log)
        ticks.commit({"DE": 1})
        log.get_topic("orders").append([{"order_id": 1, "country": "DE", "amount": 1}])
        server = ServerProcess(log.home, "--wait-timeout", "10ms", "--query-timeout", "500ms", "--rate", "100000")

        joined = server.post("/v1/topics/orders/groups/held/consumers", {"session_timeout": 3600}, status=201)

        run = schemathesis(server.address, tmp_path, joined["consumer"])

        assert run.returncode == 0, (
            run.stdout[-6000:] + run.stderr[-2000:] + (tmp_path / "server.err").read_text(errors="replace")[-3000:]
        )
        made = log.catalog.read("SELECT seq FROM sqlite_sequence WHERE name = 'groups'")
        assert made[0]["seq"] > 1, "some of it was let in; a group may have been deleted since"
        server.stop()
        assert "Traceback" not in (tmp_path / "server.err").read_text(errors="replace")
        ticks.close()
    with Log(tmp_path / "home", maintenance_interval=None) as log:
        assert log.check().problems == ()
