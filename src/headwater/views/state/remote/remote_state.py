"""Remote state: an app whose manifests and runs are on an object store, and what its runtime needs for that.

What it is: ``RemoteState``, an address and the log that the state is derived from; ``manifests_of`` and
``state_store`` make an app's manifests and state store, on an object store or in the home.
Invariants: making any of these connects to no store.
Not here: the protocol (``commit_log.py``).
Read next: ``store_manifests.py``, ``run_cache.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.log.catalog.catalog import Catalog
from headwater.log.contract import Capability, EventLog
from headwater.objects.object_address import ObjectAddress
from headwater.views.spark.cluster_master import check_shared
from headwater.views.state.manifest import Manifests
from headwater.views.state.remote.run_cache import RunCache
from headwater.views.state.remote.store_manifests import COMMIT_ROWS_BYTES_MAX, StoreManifests
from headwater.views.state.small_runs import SmallRuns
from headwater.views.state.state_store import StateStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class RemoteState:
    """An app's state on an object store; ``log_id`` names the log that it is derived from."""

    address: ObjectAddress
    log_id: str


def manifests_of(catalog: Catalog, app: str, state: RemoteState | None) -> Manifests:
    """The manifests of an app, on an object store or, without a ``state``, in the home."""
    return (
        Manifests(catalog, app) if state is None else StoreManifests(catalog, app, state.address, log_id=state.log_id)
    )


def state_store(
    folder: Path, log: EventLog, spark: SparkSession, manifests: Manifests, state: RemoteState | None
) -> StateStore:
    """The state of an app's relations below a folder, which has copies only where the state is on an object store.

    Executors that need the home, for the embedded log or for the state, are asked whether they see it.
    """
    home, files = Path(log.home).absolute(), log.local.files
    if Capability.NATIVE_FILES in log.capabilities:
        check_shared(spark, home, "the embedded log is in it, whose rows they read")
    elif state is None:
        check_shared(spark, home, "the state of the views is in it, which they read and write")
    if state is None:
        return StateStore(folder, files, spark, SmallRuns(manifests.catalog, manifests.app))
    small = SmallRuns(manifests.catalog, manifests.app, pending_bytes_max=COMMIT_ROWS_BYTES_MAX)
    return StateStore(folder, files, spark, small, RunCache(state.address, files))
