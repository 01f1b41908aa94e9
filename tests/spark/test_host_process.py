"""The process that uses Headwater as a library is left as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.short_lived import SHORT_LIVED

SOURCE = Path(__file__).parents[2] / "src"
PROGRAM = """
import json, logging, os, signal, sys
import headwater as hw

def host():
    root, two = logging.getLogger(), os.fstat(2)
    return [
        str(signal.getsignal(signal.SIGINT)), [root.level, len(root.filters), len(root.handlers)],
        [two.st_dev, two.st_ino],
    ]

app = hw.App("shop", home=sys.argv[1], spark={"spark.master": "local[1]"})
orders = app.topic("orders", "id BIGINT")
app.view("many", "SELECT count(*) AS many FROM orders")
orders.append([{"id": 1}])
before = host()
app.tick()
server = app._runtime.spark.sparkContext._accumulatorServer
redirected = os.path.exists(sys.argv[1] + "/views/shop/spark.log")
print(json.dumps([before, host(), "handle_error" in vars(server), redirected]))
try:
    app.sql("SELECT nothing FROM many")
except hw.HeadwaterError:
    pass
app.close()
"""


@pytest.mark.timeout(300)
def test_a_tick_leaves_the_signal_handler_the_root_logger_and_standard_error_as_they_were(tmp_path: Path) -> None:
    environment = {**os.environ, **SHORT_LIVED, "PYTHONPATH": str(SOURCE), "PYSPARK_PYTHON": sys.executable}

    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "home")], capture_output=True, text=True, env=environment
    )

    assert run.returncode == 0, run.stderr
    before, after, replaced, redirected = json.loads(run.stdout)
    assert after == before
    assert (replaced, redirected) == (False, False)
    assert "Traceback" not in run.stderr
    assert "SQLQueryContextLogger" not in run.stderr
    assert "log level" not in run.stderr
