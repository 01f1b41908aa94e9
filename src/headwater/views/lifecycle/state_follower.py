"""State follower: the copies that a machine has of an app whose state is on a store, while another one runs it.

What it is: ``StateFollower.follow`` brings the files of runs that the last manifest lists to this machine, and the
changes of the ticks since to its serving store.
Invariants: it reads what was committed, takes nothing over, and writes nothing to the store. What it could not bring
is brought when it is needed. The serving store here gets each tick once and in order, so readers on this machine see
whole ticks, each under its number.
Not here: the manifests, which ``active_process.py`` follows; the cache (``views/state/remote/run_cache.py``).
Read next: ``standby.py``, ``views/serving/publish.py``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError
from headwater.views.serving.publish import Publisher
from headwater.views.state.manifest_entries import folder_name
from headwater.views.state.remote.run_cache import RunCache
from headwater.views.state.run import Run

if TYPE_CHECKING:
    from headwater.views.runtime import AppRuntime
    from headwater.views.state.manifest import Manifest

logger = logging.getLogger("headwater.views")


class StateFollower:
    """The copies of one app on this machine."""

    def __init__(self, runtime: AppRuntime) -> None:
        self._runtime = runtime
        self._publisher: Publisher | None = None
        self._brought: set[tuple[str, str]] = set()  # runs that are here, by folder and name
        self._tick = 0

    def follow(self) -> None:
        """Bring what was committed since; where the state is in the home there is nothing to bring."""
        runtime = self._runtime
        manifest = runtime.manifests.current()
        if runtime.state is None or manifest.tick == self._tick:
            return
        try:
            self._bring(manifest)
            if self._publisher is None:
                self._publisher = Publisher(
                    runtime.folder, runtime.manifests, runtime.prepared, runtime.log, runtime.spark
                )
            self._publisher.catch_up(manifest, runtime.manifests.epoch())
            self._tick = manifest.tick
        except HeadwaterError as error:  # the store or the log is away for a moment: tried again, or done when called
            logger.warning("standing by, not at tick %d yet: %s", manifest.tick, error.message)

    def _bring(self, manifest: Manifest) -> None:
        runtime = self._runtime
        cache = RunCache.of(runtime.manifests.catalog, runtime.name, runtime.log.local.files)
        if cache is None:
            return
        listed: set[tuple[str, str]] = set()
        for name, entry in manifest.relations.items():
            folder = folder_name(name, entry["identity"])
            for run in (Run.from_json(each) for each in entry["runs"]):
                listed.add((folder, run.name))
                if run.files and (folder, run.name) not in self._brought:
                    cache.bring(runtime.folder / folder, run)
        self._brought = listed

    def close(self) -> None:
        """Close the serving store: the engine of this process opens it for itself."""
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None
