"""A real Spark cluster for tests and the demo: a master and workers, each a process on loopback.

What it is: ``SparkCluster``, the standalone cluster of the installed pyspark. Apps reach it by ``url``
(``spark={"spark.master": cluster.url}``); ``executors`` are the processes that run their tasks.
Invariants: every process is stopped by its id; a worker that was killed can be started again, and apps get executors
from it. Heaps are small: master and worker take some 200 MB each, an executor some 300 MB. Workers and executors find
the ``hidden`` folder empty, as those of another machine would: it is behind a mount of their own (``unshare``).
Not here: starting and stopping of one process (``local_server.py``).
Read next: ``local_server.py``, ``docs/scale.md``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from headwater.errors import MissingExtra, Unavailable
from headwater.testing.local_server import LocalServer

EXECUTOR = "CoarseGrainedExecutorBackend"
DAEMON_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"

# A user who is not root is root in a namespace of its own.
UNSHARE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
HIDE = 'mount -t tmpfs tmpfs "$0" && exec "$@"'


class SparkCluster:
    """One master and some workers of one core each.

    >>> with SparkCluster(workers=1) as cluster:
    ...     cluster.url.startswith("spark://127.0.0.1:"), len(cluster.workers)
    (True, 1)
    """

    def __init__(self, *, workers: int = 2, worker_memory: str = "1g", hidden: Path | None = None) -> None:
        self.master = SparkMaster()
        self.workers = [SparkWorker(self.master, worker_memory, hidden) for _ in range(workers)]

    @property
    def url(self) -> str:
        """What an app gives as ``spark.master``."""
        return self.master.url

    def executors(self) -> list[int]:
        """The process ids of the executors that run for apps now."""
        return [pid for worker in self.workers for pid in worker.executors()]

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as starting:
            for daemon in (self.master, *self.workers):
                starting.enter_context(daemon)
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()


class SparkDaemon(LocalServer):
    """A master or a worker: ready when its log says so."""

    says_when_ready: str

    def __init__(self) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="headwater-spark-")))
        self.environment = {
            "SPARK_HOME": str(_spark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "200m",
            "SPARK_DAEMON_JAVA_OPTS": DAEMON_OPTIONS,
        }

    def _check(self) -> None:
        if self.says_when_ready not in self.said():
            raise Unavailable(f"{self.title} is not ready yet")

    def _program(self, name: str) -> list[str]:
        address = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0"]
        return [str(_spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *address]


class SparkMaster(SparkDaemon):
    """The process that knows workers and apps."""

    title = "Spark's master"
    says_when_ready = "New state: ALIVE"

    @property
    def url(self) -> str:
        """What workers and apps are told."""
        return f"spark://127.0.0.1:{self.port}"

    def _command(self) -> list[str]:
        return self._program("master.Master")


class SparkWorker(SparkDaemon):
    """A process that starts executors for apps."""

    title = "Spark's worker"
    says_when_ready = "Successfully registered with master"

    def __init__(self, master: SparkMaster, memory: str, hidden: Path | None = None) -> None:
        super().__init__()
        self._master = master
        self._memory = memory
        self._hidden = hidden  # a folder that it does not see into

    def _command(self) -> list[str]:
        limits = ["--cores", "1", "--memory", self._memory, "--work-dir", str(self.folder / "work")]
        behind = [] if self._hidden is None else [*UNSHARE, "sh", "-c", HIDE, str(self._hidden)]
        return [*behind, *self._program("worker.Worker"), *limits, self._master.url]

    def executors(self) -> list[int]:
        """The process ids of its executors."""
        return [] if self.process is None else [pid for pid in _children(self.process.pid) if _runs_executor(pid)]


def _spark_home() -> Path:
    found = importlib.util.find_spec("pyspark")
    with MissingExtra.raised_for("a Spark cluster", "spark"):
        if found is None or found.origin is None:
            raise ImportError("pyspark")
    return Path(found.origin).parent


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def _runs_executor(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return EXECUTOR.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
