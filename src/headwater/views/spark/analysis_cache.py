"""Analysis cache: what Spark's analyser answered, kept on disk, so that a restart need not ask again.

What it is: a file of the app with a schema, and a sentence, for each question: a text over tables of these schemas.
Invariants: an answer is found by everything that it depends on: Spark's version, the text, and the schemas of the
tables that the text may mention. Nothing but answers is kept, never an error. A file that cannot be read or written is
as good as none: it only saves time.
Not here: what is asked (``views/stages/stage_schemas.py``).
Read next: ``views/stages/stage_schemas.py``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

FORMAT = 1  # raised when what is kept, or how a question is put, changes


class AnalysisCache:
    """The answers of one app. ``path`` None: they live as long as the process."""

    def __init__(self, path: Path | None, version: str) -> None:
        self._path = path
        self._version = f"{FORMAT} {version}"
        self._known: dict[str, list[str]] = {}
        self._used: dict[str, list[str]] = {}
        if path is not None:
            with suppress(OSError, ValueError):
                self._known = dict(json.loads(path.read_text())["answers"])

    def key(self, text: str, tables: Mapping[str, pa.Schema]) -> str:
        """What an answer goes by."""
        parts = [self._version, text]
        parts += [f"{name} {schema.to_string(show_schema_metadata=False)}" for name, schema in sorted(tables.items())]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def find(self, key: str) -> tuple[pa.Schema, str] | None:
        """The schema and the sentence of an answer."""
        found = self._known.get(key)
        if found is None:
            return None
        self._used[key] = found
        schema, sentence = found
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema))), sentence

    def keep(self, key: str, schema: pa.Schema, sentence: str = "") -> None:
        """Remember an answer."""
        answer = [base64.b64encode(schema.serialize().to_pybytes()).decode(), sentence]
        self._known[key] = self._used[key] = answer

    def save(self, *, complete: bool = True) -> None:
        """Write the answers that were asked for; others, of views that have changed, are let go, unless not all views
        came to ask (not ``complete``)."""
        if self._path is None:
            return
        kept = self._used if complete else self._known
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside = self._path.with_suffix(f".{os.getpid()}")
            beside.write_text(json.dumps({"answers": kept}))
            beside.replace(self._path)
