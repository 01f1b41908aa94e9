"""Explanations: why a row is so, asked of an app at work.

What it is: ``explained`` finds the manifest of the tick, the views as they were, and walks down (``why.py``).
Invariants: nothing is changed and no app is taken over, in the process that runs it and in any other.
Not here: the walk (``why.py``).
Read next: ``past_views.py``, ``why.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from headwater.views.provenance.past_views import manifest_at, views_at
from headwater.views.provenance.provenance import Provenance
from headwater.views.provenance.why import wanted_values, why
from headwater.views.serving.snapshot import RelationSnapshot
from headwater.views.tick.prepare import Prepared

if TYPE_CHECKING:
    from headwater.views.runtime import AppRuntime

# A process without the app's file prepares the views that it explains; it is asked again about the same ones.
_prepared: WeakKeyDictionary[AppRuntime, Prepared] = WeakKeyDictionary()


def explained(
    runtime: AppRuntime,
    view: str,
    key: Sequence[Any],
    columns: Mapping[str, Any],
    *,
    at_tick: int | None,
    limit: int,
    as_text: bool = False,
) -> Provenance:
    """The input events behind the row of a view with this key, or with these values in some columns."""
    with runtime.mapped_errors():
        manifest = manifest_at(runtime.manifests, view, at_tick)
        wanted = wanted_values(view, manifest.views[view], key, columns, as_text=as_text)
        contents = RelationSnapshot(runtime.log, runtime.folder, manifest, runtime.spark)
        known = runtime.prepared if runtime.declared else _prepared.get(runtime)
        scratch = runtime.scratch / "why"
        views = views_at(view, manifest, known, runtime.declared, runtime.log, runtime.spark, scratch)
        if not runtime.declared:
            _prepared[runtime] = Prepared(views, {}, runtime.log.clock, 1, runtime.log)
        queries = tuple((name, manifest.views[name]["sql"]) for name in reversed(list(views)))
        return replace(why(view, wanted, views, contents, limit=limit), queries=queries)
