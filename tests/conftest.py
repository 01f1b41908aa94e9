"""How the tests are shared out between the processes.

What it is: by file, and some folders whole, because their files share something that takes long to start. Every third
process prefers the files that keep one Spark busy, the others prefer those that mostly wait for servers and processes:
so that a core is seldom idle, and the second Spark is started late or never. The longest files come first, so that no
process waits for another in the end.
Invariants: the order within a file stays; a file that is not named here comes after those that are. A process whose
kind has run out takes of the other. Temporary files are in memory where the system has room for them: on disk the same
tests take a quarter more processor time. They go with the run; what a failed test wrote stays until the next one.
Not here: fixtures (each folder has its own).
Read next: ``Makefile``, target ``test``.
"""

from __future__ import annotations

import atexit
import functools
import gc
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.testing
from xdist.scheduler import LoadFileScheduling

from headwater.app_declarations import AppDeclarations
from headwater.demo.demo_command import SHORT_LIVED
from headwater.views.compiler import compile as compiling
from headwater.views.state.remote import executor_files
from tests.seeds import steady

os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT_LIVED)  # an engine's first tick takes 9 s of Java's time in place of 15
steady()
compiling.STRICT = True  # what the compiler trips over is an error here, not a view that is computed whole
# A call of the command line in this process takes 4 ms, and 54 more if typer reads the signatures of all verbs again.
typer.testing._get_command = functools.cache(typer.testing._get_command)  # type: ignore[attr-defined]

MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 6 << 30
FOLDER = "hw-"  # and the process's number; short, since the paths of sockets are limited

# Apps that are served, each in a home.
collect_ignore = [
    "browser/shop_app.py",
    "services/server/bank_app.py",
    "services/server/news_app.py",
    "services/server/shop_app.py",
    "services/server/shared_shop_app.py",
    "services/server/transfer_app.py",
    "spark/people_app.py",
    "spark/tenants_app.py",
]
# Files that one process runs: they share a browser, a Spark, a MariaDB, or a Kafka with a PostgreSQL and a Redis.
TOGETHER = {
    "tests/browser/": "browser",
    "tests/services/captures/": "captures",
    "tests/services/federation/": "tests/services/federation/",
    "tests/services/sinks/": "sinks",
    "tests/services/test_kafka_": "sinks",
    "tests/services/test_log_conformance": "sinks",
}
SPARK = (  # they share the process's own Spark
    "tests/spark/",
    "tests/crash/test_views_",
    "tests/crash/test_late_commits",
    "tests/crash/test_searches_",
    "tests/crash/test_transfers_",
    "tests/services/federation/",
    "src/headwater/app",
    "src/headwater/sinks/",
    "src/headwater/views/",
)
LONGEST_FIRST = (
    "services/cluster",
    "services/test_demo.py",
    "unit/docs/test_docs.py",
    "services/server/test_machines.py",
    "spark/test_paused_views.py",
    "services/server/test_hostile_spark.py",
    "services/sinks/test_conformance.py",
    "services/server/test_engine.py",
    "crash/test_every_boundary.py",
    "services/captures/test_conformance.py",
    "services/test_kafka_views.py",
    "spark/test_leading_views.py",
    "crash/test_capture_torture.py",
    "spark/test_why.py",
    "spark/test_views_as_of.py",
    "spark/test_source_stream.py",
    "crash/test_transfers_survive_kill.py",
    "crash/test_kill_nine.py",
    "crash/test_tail_damage.py",
    "spark/test_timed_views.py",
    "services/test_object_stores.py",
    "crash/test_views_survive_kill.py",
    "spark/test_tpch.py",
    "services/sinks/test_killed.py",
    "spark/test_nexmark.py",
    "spark/test_interrupts.py",
    "spark/test_unequal_joins_on_spark.py",
    "spark/test_windows_equal_batch.py",
    "spark/trouble/test_constructs.py",
    "crash/test_views_on_stores.py",
    "services/server/test_subscriptions.py",
    "services/server/test_watchdog.py",
    "crash/test_views_pause_killed.py",
    "spark/test_class_archive.py",
    "spark",
    "crash",
    "services",
    "browser",  # late: its server and engine run to the end
    "compiler",
)

# The views' suites over state on an object store: tests/spark, tests/crash. "executors": as on a cluster, where large
# ticks read and write it without the driver's disk.
STATE = os.environ.get("HEADWATER_TEST_STATE")
if STATE in ("folder", "executors"):
    declared_here = AppDeclarations.__init__

    def declared_on_a_store(self: AppDeclarations, name: str, home: Any = None, **options: Any) -> None:
        place = Path(home if home is not None else f"./{name}-data").absolute()
        options.setdefault("state", f"file://{place.parent}/{place.name}-state/{name}")
        declared_here(self, name, home, **options)

    AppDeclarations.__init__ = declared_on_a_store  # type: ignore[method-assign]
if STATE == "executors":
    executor_files.on_cluster = lambda _: True


def pytest_configure(config: pytest.Config) -> None:
    """Before any test, in the process that starts the others: they have its environment."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job: what tests start would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput") or "TMPDIR" in os.environ or not MEMORY.is_dir():
        return
    for left in MEMORY.glob(f"{FOLDER}*"):
        if not Path("/proc", left.name.removeprefix(FOLDER)).exists():
            shutil.rmtree(left, ignore_errors=True)
    if shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN:
        folder = MEMORY / f"{FOLDER}{os.getpid()}"
        folder.mkdir(exist_ok=True)
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        atexit.register(_forget, folder)  # so early that libraries clean up before


class Sharing(LoadFileScheduling):
    """By file, but some folders whole; those of Spark to every third process first."""

    def _split_scope(self, nodeid: str) -> str:
        of_group = (group for files, group in TOGETHER.items() if nodeid.startswith(files))
        return next(of_group, super()._split_scope(nodeid))

    def _assign_work_unit(self, node: Any) -> None:
        wants_spark = int(node.gateway.id.removeprefix("gw")) % 3 == 0
        preferred = next((scope for scope in self.workqueue if scope.startswith(SPARK) == wants_spark), None)
        if preferred is not None:
            self.workqueue.move_to_end(preferred, last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return Sharing(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the collector of garbage away from what stays to the end: five thousand tests, and the modules they are in.

    It looked through them again and again, a third of the time that collecting took, and then once for each large tick
    (``views/tick/exchange.py``).
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _rank(item.path))


def pytest_unconfigure() -> None:
    gc.unfreeze()  # some libraries complain of objects that outlive them


def _forget(folder: Path) -> None:
    """Remove what is in memory, but for files of failed tests."""
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.name.startswith("pytest-of-"):
            shutil.rmtree(entry, ignore_errors=True)
    if not any(folder.glob("pytest-of-*/pytest-*/*/*")):
        shutil.rmtree(folder, ignore_errors=True)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Which files take longest, so that ``LONGEST_FIRST`` can be kept right."""
    took: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            took[getattr(report, "nodeid", "").partition("::")[0]] += getattr(report, "duration", 0.0)
    if len(took) > 1:
        terminalreporter.section("slowest 20 files")
        for name, seconds in took.most_common(20):
            terminalreporter.write_line(f"{seconds:7.1f}s {name}")
        terminalreporter.write_line(f"{sum(took.values()):7.1f}s all files")


def _rank(path: Path) -> int:
    text = path.as_posix()
    return next((rank for rank, name in enumerate(LONGEST_FIRST) if f"tests/{name}" in text), len(LONGEST_FIRST))
