"""Java's archive of classes with a real Java: written at the end of the first Spark, mapped by the second one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.short_lived import SHORT_LIVED

SOURCE = Path(__file__).parents[2] / "src"
START = """
from pathlib import Path
from headwater.views.spark.spark_session import start_session
spark = start_session("archive", {"spark.master": "local[1]"})
process = spark.sparkContext._gateway.proc.pid
print([line.split()[-1] for line in Path(f"/proc/{process}/maps").read_text().splitlines() if ".jsa" in line][-1])
print(spark.range(7).count())
spark.stop()
"""


def started(cache: Path) -> list[str]:
    """The last archive that Spark's Java has in its memory, and an answer of that Spark."""
    environment = {
        **os.environ,
        **SHORT_LIVED,
        "XDG_CACHE_HOME": str(cache),
        "PYTHONPATH": str(SOURCE),
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run([sys.executable, "-c", START], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_second_spark_reads_what_the_first_one_wrote(tmp_path: Path) -> None:
    first = started(tmp_path)
    deadline = time.monotonic() + 200
    while not any(path.read_bytes()[:1] != b"\0" for path in tmp_path.glob("headwater/*.new")):
        assert time.monotonic() < deadline, list(tmp_path.glob("headwater/*"))
        time.sleep(0.1)

    second = started(tmp_path)

    (archive,) = tmp_path.glob("headwater/*.jsa")
    assert first[1] == second[1] == "7"
    assert Path(first[0]) != archive
    assert Path(second[0]) == archive
