"""Java's archive of classes: from the second start on, Spark is there in half of the time.

What it is: ``options`` gives the driver's Java the archive of the classes that Spark needs; where there is none yet, it
lets Java write one when it ends, which takes some seconds in the background, once.
Invariants: an archive is of one Java and one PySpark, and Java by itself goes on without one that does not fit. Java
writes the first bytes of an archive last, so one that begins right is whole: the next start gives it its name.
An archive that was not used for 30 days is removed.
Whatever is in the way (a home that cannot be written, settings that an archive cannot have), Spark starts as it would
without. ``HEADWATER_JAVA_ARCHIVE=off`` turns all of it off.
Not here: starting Spark (``spark_session.py``).
Read next: ``docs/operations.md``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from pathlib import Path

VARIABLE = "HEADWATER_JAVA_ARCHIVE"
BEGINNINGS = (bytes.fromhex("a8ab0bf0"), bytes.fromhex("f00baba8"))  # of an archive that is whole
LEFT_BEHIND_S = 600.0  # Java writes for some seconds; what is older was never finished
UNUSED_S = 30 * 86_400.0
QUIET = "-Xlog:cds*=off"
# With one of these the classes may come from elsewhere than PySpark's own folder.
UNUSUAL = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR")


def options() -> str:
    """What to add to Java's options: to read an archive, to write one, or nothing."""
    try:
        archive = _path()
        if archive is None:
            return ""
        archive.parent.mkdir(parents=True, exist_ok=True)
        _take_finished(archive)
        _remove_unused(archive)
        if archive.exists():
            os.utime(archive)  # it is used
            return f"-XX:SharedArchiveFile={archive} {QUIET}"
        return f"-XX:ArchiveClassesAtExit={_unfinished(archive, os.getpid())} {QUIET}"
    except OSError:  # it would only have been faster
        return ""


def folder() -> Path:
    """Where archives are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwater"


def _path() -> Path | None:
    """The archive's name for this Java and this PySpark; None where there can be none."""
    home, java = _spark_home(), _java()
    unusual = any(os.environ.get(name) for name in UNUSUAL) or (home / "conf").exists()
    if os.environ.get(VARIABLE) == "off" or os.name == "nt" or java is None or unusual:
        return None
    jars, release = (home / "jars").stat(), java.stat()
    parts = (java, release.st_mtime_ns, release.st_size, home, jars.st_mtime_ns)
    name = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    path = folder() / f"spark-{name}.jsa"
    # Spark takes its options apart at blanks and quotes.
    return path if str(path).isprintable() and not set(str(path)) & set(" \t'\"\\,%") else None


def _spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent.resolve()


def _java() -> Path | None:
    """The Java that Spark's scripts take."""
    home = os.environ.get("JAVA_HOME")
    found = Path(home) / "bin" / "java" if home else shutil.which("java")
    return Path(found).resolve() if found is not None and Path(found).exists() else None


def _unfinished(archive: Path, process: int | str) -> Path:
    return archive.with_name(f"{archive.stem}.{process}.new")


def _take_finished(archive: Path) -> None:
    """Give an archive that was written its name; remove one that never was finished."""
    for written in archive.parent.glob(_unfinished(archive, "*").name):
        with contextlib.suppress(FileNotFoundError):  # another start has just done it
            if _is_whole(written):
                os.replace(written, archive)
            elif time.time() - written.stat().st_mtime > LEFT_BEHIND_S:
                written.unlink()


def _remove_unused(archive: Path) -> None:
    """Remove archives of a Java or a PySpark that has not been started for long: each has some 180 MB."""
    for other in archive.parent.glob("spark-*.jsa"):
        with contextlib.suppress(OSError):
            if other != archive and time.time() - other.stat().st_mtime > UNUSED_S:
                other.unlink()


def _is_whole(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) in BEGINNINGS
