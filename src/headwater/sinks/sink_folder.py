"""Sink folder: a directory of one sink, with a progress file.

What it is: ``SinkFolder`` locks the directory, reads the progress file, and replaces it atomically.
Invariants: the file is the old or the new one, whole and synced, also after a power cut; a folder belongs to the sink
that it names.
Not here: the contents (``parquet_sink.py``, ``search_sink.py``).
Read next: ``parquet_sink.py``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.errors import SinkRefused
from headwater.log.storage.files import Files
from headwater.log.storage.locks import FileLock


class SinkFolder:
    """One directory. ``name`` is that of the file that says what counts.

    >>> import tempfile
    >>> folder = SinkFolder(Path(tempfile.mkdtemp()), "_progress.json", Files())
    >>> with folder.alone():
    ...     folder.replace({"sink": "shop/revenue/copy", "tick": 7})
    >>> folder.stored("shop/revenue/copy")["tick"]
    7
    """

    def __init__(self, path: Path, name: str, files: Files) -> None:
        self.path = path
        self.name = name
        self._files = files

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the directory."""
        self._files.make_dir(self.path, label="sink.make_directory")
        lock = FileLock(self.path / "_lock")
        try:
            with lock:
                yield
        finally:
            lock.close()

    def stored(self, identity: str) -> Any:
        """The content of the file; None without one. Refused when the directory is another sink's."""
        found = read_about(self.path / self.name)
        if found is not None and found["sink"] != identity:
            raise SinkRefused(
                f"the folder {self.path} is that of sink {found['sink']}", hint="Give each sink its own folder."
            )
        return found

    def replace(self, about: Mapping[str, Any]) -> None:
        """Put another file in its place, durably."""
        path = self.path / self.name
        temporary = path.with_name(f"{self.name}.tmp")
        fd = self._files.create(temporary, label="sink.create_progress")
        try:
            self._files.truncate(fd, 0, label="sink.empty_progress")
            self._files.write(fd, [json.dumps(about, indent=1).encode()], label="sink.write_progress")
            self._files.sync(fd, label="sink.sync_progress")
        finally:
            os.close(fd)
        self._files.rename(temporary, path, label="sink.rename_progress")
        self._files.sync_dir(self.path, label="sink.sync_directory")


def read_about(path: Path) -> Any:
    """The contents of a progress file, for readers; None when there is none."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
