"""A process that dies inside a tick, and comes back.

What it is: ``Points`` is the disk that crashes, with the commits as boundaries too: the manifest's and the serving
store's, and each change of an object where an app's state is on an object store; ``restarted`` lets an app forget
everything that it has in memory.
Invariants: after the crash nothing is written any more; what a restart keeps is Spark and the compiled views, neither
of which knows anything about ticks.
Not here: real processes (``view_runner.py``).
Read next: ``testing/crashing_disk.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headwater as hw
from headwater.log.storage.files import Files
from headwater.objects.folder_store import FolderStore
from headwater.objects.s3_store import S3ObjectStore
from headwater.testing import Crash, CrashingFiles
from headwater.views.runtime import AppRuntime
from headwater.views.serving.serving_store import ServingStore
from headwater.views.state.manifest import Manifests
from headwater.views.state.remote.store_manifests import StoreManifests

COMMITS = tuple(f"{what}: {when}" for what in ("manifest.commit", "serving.apply") for when in ("before", "after"))
# Of an app whose state is on an object store: the objects that a tick writes, and the copy in the catalog.
REQUESTS = tuple(f"{what}: {when}" for what in ("object.put", "object.create") for when in ("before", "after"))
COPIED = "copy: after"


class Points(CrashingFiles):
    """Dies at the ``crash_at``-th boundary, or at the first one with the label ``crash_on``."""

    def __init__(self, *, crash_at: int | None = None, crash_on: str | None = None, power_cut: bool = False) -> None:
        super().__init__(crash_at=crash_at, power_cut=power_cut)
        self.crash_on = crash_on

    def reach(self, label: str) -> None:
        """Pass a place that is none of a file's."""
        with self._lock:
            if label == self.crash_on:
                self.crash_at = len(self.boundaries)
            self._boundary(label)


def watch_commits(monkeypatch: pytest.MonkeyPatch, at: Callable[[], Points | None]) -> None:
    """Make the commits of the manifest and of the serving store boundaries of ``at()``, while there is one."""

    def watched(method: Callable[..., Any], label: str) -> Callable[..., Any]:
        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            points = at()
            if points is not None:
                points.reach(f"{label}: before")
            result = method(self, *arguments, **options)
            if points is not None:
                points.reach(f"{label}: after")
            return result

        return call

    for kind in (Manifests, StoreManifests):
        monkeypatch.setattr(kind, "commit", watched(kind.commit, "manifest.commit"))
    monkeypatch.setattr(StoreManifests, "_copy_own", watched(StoreManifests._copy_own, "copy"))
    for store in (FolderStore, S3ObjectStore):
        for change in ("create", "put", "delete"):
            monkeypatch.setattr(store, change, watched(getattr(store, change), f"object.{change}"))
    monkeypatch.setattr(ServingStore, "apply", watched(ServingStore.apply, "serving.apply"))


class Mortal:
    """An app whose ticks can be killed."""

    def __init__(self, app: hw.App, monkeypatch: pytest.MonkeyPatch) -> None:
        self.app = app
        self.points: Points | None = None
        self.deaths: list[str] = []
        self._prepared = app._runtime.prepared
        watch_commits(monkeypatch, lambda: self.points)

    def dies(self, points: Points, work: Callable[[hw.App], Any] = hw.App.tick) -> bool:
        """One tick (or other work) of a new process that dies at the points; False when it got through alive."""
        self._restart(points)
        self.points = points
        try:
            work(self.app)
        except Crash:
            self.deaths.append(points.boundaries[-1])
            return True
        finally:
            self.points = None
            self._restart(Files())
        return False

    def _restart(self, files: Files) -> None:
        """Forget the engine with all that it has in memory."""
        state = self.app._runtime.state
        self.app._stop_runtime()
        self.app.log.files = files
        views = [view.declared for view in self.app.views]
        runtime = AppRuntime(self.app.name, self.app.log, views, {}, state=state)
        runtime._prepared = self._prepared
        self.app._made_runtime = runtime
