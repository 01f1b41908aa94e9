"""The folder of a home: what makes a directory one, and whether this version can work with it.

What it is: ``prepare``, which makes the folder if it may, and checks its format and its catalog's file.
Invariants: a home of a newer format is refused unchanged; a directory with other content is not turned into a home; a
catalog that is missing beside segments is an error, since SQLite would make an empty one.
Not here: what is in it (``log/home.py``). Read next: ``docs/internals/files.md``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from headwater.errors import CorruptCatalog, InvalidDeclaration, NewerFormat
from headwater.log.commits.commit_records import FOLDER as COMMITS
from headwater.log.storage.files import Files

FORMAT = 2
FORMAT_FILE = "headwater.json"
TOPICS = "topics"


def prepare(home: Path, files: Files, *, create: bool) -> bool:
    """Make sure that the directory is a home we can work with; returns whether it is read-only."""
    marker = home / FORMAT_FILE
    if not marker.exists():
        if home.exists() and not home.is_dir():
            raise InvalidDeclaration(f"{home} is a file, not a directory", hint="Give a directory as the home.")
        if not create:
            raise InvalidDeclaration(f"there is no Headwater home at {home}", hint="Give its path with --home.")
        others = _foreign_names(home)
        if others:
            raise InvalidDeclaration(
                f"{home} is not a Headwater home, and not empty (it holds {sorted(others)[0]!r})",
                hint="Give an empty or a new directory.",
            )
        try:
            make_home(home, marker, files)
        except OSError as error:
            raise InvalidDeclaration(
                f"no home can be made at {home}: {(error.strerror or str(error)).lower()}",
                hint="Give a directory that can be made.",
            ) from error
    _check_format(home, marker)
    _check_catalog(home)
    return not os.access(home, os.W_OK) or _on_read_only_disk(home)


def _foreign_names(home: Path) -> list[str]:
    """The names in a directory that do not belong to a home, complete or being created."""
    if not home.exists():
        return []
    names = [path.name for path in home.iterdir() if not path.name.startswith(FORMAT_FILE)]
    return [name for name in names if name not in (TOPICS, COMMITS) or any((home / name).iterdir())]


def make_home(home: Path, marker: Path, files: Files) -> None:
    """Make a directory a home: its folders, and last the file that says so."""
    for folder in (TOPICS, COMMITS):
        files.make_dir(home / folder, label="home.make_directory")
    temporary = marker.with_name(f"{FORMAT_FILE}.{os.getpid()}.tmp")
    fd = files.create(temporary, label="home.create_marker")
    try:
        files.truncate(fd, 0, label="home.empty_marker")  # a process of the same number may have died here
        text = json.dumps({"format": FORMAT, "what": "a Headwater home; see docs/internals/files.md"}) + "\n"
        files.write(fd, [text.encode()], label="home.write_marker")
        files.sync(fd, label="home.sync_marker")
    finally:
        os.close(fd)
    files.rename(temporary, marker, label="home.rename_marker")
    files.sync_dir(home, label="home.sync_directory")


def _check_format(home: Path, marker: Path) -> None:
    try:
        found = json.loads(marker.read_text())["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptCatalog(
            f"{marker} is damaged", hint=f'Restore it from a backup, or write {{"format": {FORMAT}}} into it.'
        ) from error
    if not isinstance(found, int) or found > FORMAT:
        raise NewerFormat(
            f"the home {home} has format {found}; this Headwater knows formats up to {FORMAT}",
            detail="It was written by a newer version. Nothing was changed.",
            hint="Upgrade: pip install --upgrade headwater",
            format=found,
        )


def _check_catalog(home: Path) -> None:
    """Refuse a missing or empty catalog: SQLite would create a new one, and all topics would be gone in silence."""
    catalog = home / "catalog.sqlite"
    if _is_written(catalog):
        return
    topics = sorted(path.name for path in (home / "topics").iterdir()) if (home / "topics").exists() else []
    # Asked again: another process may have made the catalog, and its first topic, meanwhile.
    if topics and not _is_written(catalog):
        raise CorruptCatalog(
            f"the catalog {catalog} is {'empty' if catalog.exists() else 'missing'}",
            detail=f"There are segments of {len(topics)} topics ({topics[0]}, …); they are untouched.",
            hint="Stop all processes on this home and restore catalog.sqlite from a backup.",
        )


def _is_written(catalog: Path) -> bool:
    return catalog.exists() and catalog.stat().st_size > 0


def _on_read_only_disk(home: Path) -> bool:
    return bool(os.statvfs(home).f_flag & os.ST_RDONLY)
