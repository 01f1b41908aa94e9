"""Plain logs: what processes print for people, in files that do not grow without end.

What it is: ``bounded``, which cuts such a file while its writers go on: Java's ``spark.log``, the ``engine.log`` and
``queries.log`` of a server.
Invariants: a file and the one before it (``NAME.1``) have ``BYTES_MAX`` each, and what came since the last look. Its
writers append (``O_APPEND``), so that they need not know: they go on at the new beginning. What is written in the
moment of the cut may be lost, and nothing else.
Not here: what is said how often (``server/http/log_lines.py``).
Read next: ``views/lifecycle/liveness.py``, ``server/server_state.py``, which look every second.
"""

from __future__ import annotations

import os
from pathlib import Path

from headwater.log.storage.files import Files

BYTES_MAX = 8 << 20


def bounded(path: Path, files: Files, *, bytes_max: int = BYTES_MAX) -> bool:
    """Cut a file that has become too long: its last bytes are ``NAME.1`` then. Whether it was."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return False
    if size <= bytes_max:
        return False
    with open(path, "rb") as text:
        text.seek(size - bytes_max)
        last = text.read(bytes_max)
    before, made = path.with_name(f"{path.name}.1"), path.with_name(f"{path.name}.new")
    fd = files.create(made, label="plain_log.create")
    try:
        files.truncate(fd, 0, label="plain_log.create")
        files.write(fd, [last], label="plain_log.write")
    finally:
        os.close(fd)
    files.rename(made, before, label="plain_log.rename")
    fd = files.create(path, label="plain_log.open")
    try:
        files.truncate(fd, 0, label="plain_log.cut")
    finally:
        os.close(fd)
    return True
