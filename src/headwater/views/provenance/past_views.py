"""Past views: the views of an app with the queries that they had at a tick.

What it is: ``views_at`` prepares a view and the views below it as a manifest lists them; ``manifest_at`` finds the
manifest of a tick that history still covers.
Invariants: a view is taken only with the fingerprint that the manifest has, so that its stages are those whose state
the manifest lists. Nothing is written.
Not here: reading what they hold (``relation_rows.py``); going on with older queries (``views/lifecycle/migration.py``).
Read next: ``why.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError, Misuse, NotYetCovered, OffsetOutOfRange, UnknownView
from headwater.log.contract import EventLog
from headwater.views.compiler.whole_query import mentioned
from headwater.views.event_time.timing import Timing
from headwater.views.spark.spark_parser import reader
from headwater.views.state.manifest import Manifest, Manifests
from headwater.views.tick.pausing import paused_in
from headwater.views.tick.prepare import Prepared, PreparedView, prepare
from headwater.views.view_declaration import ViewDeclaration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def manifest_at(manifests: Manifests, view: str, tick: int | None) -> Manifest:
    """The manifest that a view stands at now, or stood at after a tick."""
    now = manifests.current()
    if tick is None and view not in now.views:
        known = ", ".join(sorted(now.views)) or "none yet"
        if now.tick:
            raise UnknownView(f'no tick has computed a view "{view}"', hint=f"There are: {known}.", view=view)
        raise NotYetCovered(
            f'view "{view}" has no rows yet: no tick has computed it',
            hint="Advance the app: app.tick(), or headwater run APP.py.",
            view=view,
        )
    wanted = now.tick if tick is None else tick
    found = now if wanted == now.tick else manifests.at(wanted)
    if found is None or view not in found.views:
        kept = manifests.kept()
        span = f"ticks {kept[0][0]} to {kept[-1][0]}" if kept else "no tick yet"
        raise OffsetOutOfRange(
            f'the history of view "{view}" at tick {wanted} is not kept',
            detail=f"Kept are {span}.",
            hint="Ask for a tick that is kept.",
            view=view,
        )
    pause = paused_in(found).get(view)
    if pause is None:
        return found
    return manifests.at(pause.tick) or replace(found, frontier=pause.frontier, aside=pause.aside, tick=pause.tick)


def views_at(
    view: str,
    manifest: Manifest,
    prepared: Prepared | None,
    declared: Iterable[ViewDeclaration],
    log: EventLog,
    spark: SparkSession,
    scratch: Path,
) -> dict[str, PreparedView]:
    """A view and those below it, each behind those that it reads, as a manifest has them."""
    known = {each.name: each for each in declared}
    needed = _needed(view, manifest, known, spark)
    same = {} if prepared is None else prepared.views
    if all(name in same and _is_of(same[name], manifest) for name in needed):
        return {name: each for name, each in same.items() if name in needed}
    older = []
    for name in (name for name in manifest.views if name in needed):
        about = manifest.views[name]
        given = known.get(name) or ViewDeclaration(name, about["sql"], f"tick {manifest.tick}")
        older.append(replace(given, sql=about["sql"], timing=Timing(**about.get("timing", {}))))
    try:
        found = prepare(older, log, spark, scratch).views
    except HeadwaterError as error:
        raise _changed(view, manifest, str(error)) from error
    other = next((name for name, each in found.items() if not _is_of(each, manifest)), None)
    if other is not None:
        raise _changed(view, manifest, f'"{other}", or a topic that it reads, is another one since.')
    return dict(found)


def _is_of(view: PreparedView, manifest: Manifest) -> bool:
    about = manifest.views.get(view.name)
    return about is not None and about["fingerprint"] == view.fingerprint


def _needed(view: str, manifest: Manifest, known: Mapping[str, ViewDeclaration], spark: SparkSession) -> set[str]:
    """A view and all below it."""
    found: set[str] = set()
    waiting = [view]
    by_lower = {name.lower(): name for name in manifest.views}
    read = reader(lambda: spark)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        sql = manifest.views[name]["sql"]
        if sql is None and (name not in known or known[name].function is None):
            raise Misuse(
                f'view "{name}" is a function, which only the app\'s file has',
                hint="Name the file: headwater why VIEW KEY --file APP.py.",
                view=name,
            )
        names = known[name].inputs if sql is None else mentioned(sql, read)
        waiting += [by_lower[each.lower()] for each in names if each.lower() in by_lower]
    return found


def _changed(view: str, manifest: Manifest, detail: str) -> Misuse:
    return Misuse(
        f'view "{view}" cannot be explained as it was at tick {manifest.tick}',
        detail=detail,
        hint="Ask for a tick since its last change.",
        view=view,
        tick=manifest.tick,
    )
