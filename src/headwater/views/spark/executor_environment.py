"""The executors' environment: what Python needs on another machine to run an app's tasks, as one archive.

What it is: ``pack`` writes a ZIP archive of this package, of the packages that it and the app need, and of the app's
own modules, from the environment that runs now; ``settings_for`` are the settings that let Spark bring it to every
executor. Nothing is downloaded.
Invariants: the archive holds files of installed distributions as they are, so that executors run the very versions of
the driver, and beside each module what the driver's Python compiled it to; pyspark is not in it, since executors have
their own. The same content gives the same file name, and a complete archive is not written again.
Not here: the session (``spark_session.py``), the command (``cli/views/submit_command.py``).
Read next: ``spark_session.py``.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import struct
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from headwater.errors import InvalidDeclaration

# Executors have Spark's own Python files; the others draw tables and parse commands, which no task does.
LEFT_OUT = frozenset({"pyspark", "py4j", "typer", "rich"})
ALWAYS = ("headwater", "pandas")
FOLDER = "environment"  # what the archive is called in an executor's working directory
NOT_PACKED = frozenset({"__pycache__", "tests", "include"})


def pack(folder: Path, *, packages: Iterable[str] = (), modules: Iterable[Path] = ()) -> Path:
    """Write the archive into ``folder``, unless it is there, and return its path.

    ``packages``: distributions beside Headwater's own, by their names. ``modules``: Python files of the app.
    """
    content = dict(_content([*ALWAYS, *packages], modules))
    path = folder / f"environment-{_fingerprint(content)}.zip"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    writing = path.with_suffix(f".{os.getpid()}.tmp")
    with zipfile.ZipFile(writing, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, file in content.items():
            archive.write(file, name)
            if (compiled := _compiled(file)) is not None:
                archive.writestr(importlib.util.cache_from_source(name), compiled)
    writing.replace(path)
    return path


def settings_for(archive: Path) -> dict[str, str]:
    """The settings with which Spark unpacks the archive beside each executor and puts it on Python's path.

    >>> settings_for(Path("build/environment-1.zip"))["spark.archives"]
    'build/environment-1.zip#environment'
    """
    return {"spark.archives": f"{archive}#{FOLDER}", "spark.executorEnv.PYTHONPATH": FOLDER}


def worker_python() -> str:
    """The interpreter that executors of another machine are asked for: the driver's version, found by its name."""
    return "python{}.{}".format(*sys.version_info[:2])


def neighbours(app_file: Path) -> list[Path]:
    """The modules that are loaded from the folder of an app's file: executors need them where functions use them."""
    folder = app_file.resolve().parent
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return sorted(Path(file) for file in files if file and Path(file).resolve().parent == folder)


def _content(names: Iterable[str], modules: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Every file of the archive: its name there, and where it is."""
    for distribution in _closure(names):
        yield from _files(distribution)
    for module in modules:
        yield module.name, module


def _closure(names: Iterable[str]) -> list[importlib.metadata.Distribution]:
    """The distributions of these names and all that they need."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [(name, True) for name in names]
    while waiting:
        name, needed = waiting.pop()
        key = _normal(name)
        if key in found or key in LEFT_OUT:
            continue
        try:
            found[key] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if needed:
                raise InvalidDeclaration(
                    f'the package "{name}" is not installed here, so it cannot be packed for executors',
                    hint=f"Install it in this environment: pip install {name}",
                ) from None
            continue  # for another system or another version of Python
        for line in found[key].requires or ():
            if "extra ==" not in line:
                waiting.append((re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0], ";" not in line))
    return [found[key] for key in sorted(found)]


def _files(distribution: importlib.metadata.Distribution) -> Iterator[tuple[str, Path]]:
    listed = distribution.files or []
    for file in listed:
        place = Path(str(distribution.locate_file(file)))
        if ".." not in file.parts and file.suffix != ".pth" and not NOT_PACKED & set(file.parts) and place.is_file():
            yield file.as_posix(), place
    # Of an editable install only its description is listed; its files are where they are worked on.
    name = _normal(distribution.metadata["Name"]).replace("-", "_")
    found = importlib.util.find_spec(name)
    for root in (found.submodule_search_locations or ()) if found is not None else ():
        folder = Path(root)
        if not any(file.parts[:2] == (name, "__init__.py") for file in listed):
            for place in sorted(folder.rglob("*")):
                if place.is_file() and not NOT_PACKED & set(place.relative_to(folder).parts):
                    yield f"{name}/{place.relative_to(folder).as_posix()}", place


def _compiled(source: Path) -> bytes | None:
    """What this Python has compiled a module to, marked as valid whatever the time of its source: unpacking changes it.

    Else each executor compiles all that its tasks import.
    """
    if source.suffix != ".py":
        return None
    try:
        found = Path(importlib.util.cache_from_source(str(source))).read_bytes()
    except (OSError, NotImplementedError):  # never imported here, or this Python keeps nothing
        return None
    status = source.stat()
    valid = struct.pack("<III", 0, int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
    if found[:16] != importlib.util.MAGIC_NUMBER + valid:
        return None
    mark = struct.pack("<I", 1) + importlib.util.source_hash(source.read_bytes())  # by hash, and not to be checked
    return importlib.util.MAGIC_NUMBER + mark + found[16:]


def _fingerprint(content: Mapping[str, Path]) -> str:
    lines = [f"{sys.version_info[:2]} {sys.platform}"]
    for name, file in sorted(content.items()):
        status = file.stat()
        lines.append(f"{name} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
