"""Plan record: which plans an app's views keep, written down so that another process can make them ahead.

What it is: a file of the app with the keys of each view's kept plans. The engine writes it; a standby engine reads it
and plans everything before it is called, so that its first tick plans nothing.
Invariants: only keys are kept, never a plan or a row. A key of a view that has changed is of no use and does no harm. A
file that cannot be read or written is as good as none: it only saves time.
Not here: making plans (``plan_cache.py``); the standby (``views/lifecycle/standby.py``).
Read next: ``plan_cache.py``.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.views.spark.plans.plan_cache import CachedQuery, PlanCache, PlanKey

FORMAT = 2  # raised when what is kept changes


class PlanRecord:
    """The keys of the plans that an app's views keep, in a file."""

    def __init__(self, path: Path, version: str) -> None:
        self._path = path
        self._version = f"{FORMAT} {version}"
        self._written = 0  # plans that had been made when the file was written
        self._read: tuple[int, int] | None = None  # the file that was read last: its time and size

    def save(self, caches: Mapping[str, PlanCache]) -> None:
        """Write the keys, when plans have been made since."""
        made = sum(cache.made for cache in caches.values())
        if made == self._written:
            return
        self._written = made
        views = {name: [_as_json(key) for key in cache.kept_keys()] for name, cache in caches.items()}
        with suppress(OSError):
            beside = self._path.with_suffix(f".{os.getpid()}")
            beside.write_text(json.dumps({"version": self._version, "views": views}))
            beside.replace(self._path)

    def read(self) -> dict[str, list[PlanKey]]:
        """The keys of each view; nothing when the file has not changed since the last call."""
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, pa.ArrowException):
            about = self._path.stat()
            if self._read == (about.st_mtime_ns, about.st_size):
                return {}
            self._read = about.st_mtime_ns, about.st_size
            kept = json.loads(self._path.read_text())
            if kept["version"] == self._version:
                return {view: [_from_json(key) for key in keys] for view, keys in kept["views"].items()}
        return {}


def _as_json(key: PlanKey) -> dict[str, Any]:
    leaves = [[name, base64.b64encode(schema.serialize().to_pybytes()).decode()] for name, schema in key.leaves]
    return {
        "sql": key.question.sql,
        "steps": key.question.steps,
        "leaves": leaves,
        "few": key.few,
        "compiled": key.compiled,
        "built": key.built,
        "place": key.place,
    }


def _from_json(kept: Mapping[str, Any]) -> PlanKey:
    leaves = [(name, pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema)))) for name, schema in kept["leaves"]]
    question = CachedQuery(kept["sql"], tuple((name, sql) for name, sql in kept["steps"]))
    few, compiled, built = bool(kept["few"]), bool(kept["compiled"]), tuple(map(str, kept["built"]))
    return PlanKey(question, tuple(leaves), few, compiled, built, kept["place"])
