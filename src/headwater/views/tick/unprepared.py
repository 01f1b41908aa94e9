"""Unprepared views: Spark can make nothing of their queries, in an app that ran before.

What it is: ``Unprepared``, one of them; ``may_wait``, whether a view's failure is such a one; ``pauses``, how they
stand in the manifest; ``carried``, what a tick takes over from the one before for their sake.
Invariants: they are paused, with whatever reads them, and keep what they showed at their last good tick, if they had
one; the others run. There is nothing to resume: a start that can prepare them again fills them anew.
Not here: views that fail over rows (``pausing.py``), preparing (``prepare.py``).
Read next: ``prepare.py``, ``docs/failures.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError, InvalidDeclaration, InvalidView
from headwater.views.compiler.whole_query import Read, mentioned
from headwater.views.tick.pausing import PAUSE, Pause, as_data, is_its_own, refused

if TYPE_CHECKING:
    from headwater.views.state.manifest import Manifest, RelationEntry, ViewEntry
    from headwater.views.view_declaration import ViewDeclaration

NO_QUERY = ""  # no fingerprint is that: whatever query comes is another one


@dataclass(frozen=True)
class Unprepared:
    """A view that cannot be prepared: by itself, or because it reads one."""

    declared: ViewDeclaration
    because: tuple[str, ...]
    error: HeadwaterError

    @staticmethod
    def reading(declared: ViewDeclaration, others: Mapping[str, Unprepared], read: Read) -> Unprepared | None:
        """The same of a view that reads some of these; None when it reads none."""
        if not others:
            return None
        reads = declared.inputs if declared.sql is None else mentioned(declared.sql, read)
        above = [others[name] for name in others if name.lower() in {each.lower() for each in reads}]
        because = tuple(dict.fromkeys(root for each in above for root in each.because))
        return Unprepared(declared, because, above[0].error) if above else None


def may_wait(error: HeadwaterError, declared: ViewDeclaration) -> bool:
    """Whether the failure is the query's own, and its policy is to pause."""
    refused_by_us = isinstance(error, InvalidDeclaration | InvalidView)
    return declared.on_error == PAUSE and (refused_by_us or is_its_own(error, declared))


def pauses(manifest: Manifest, views: Mapping[str, Unprepared], now_us: int) -> dict[str, Pause]:
    """Their pauses; of those that were paused before, with what they held then."""
    found = {}
    for name, view in views.items():
        known = manifest.paused.get(name)
        has = name in manifest.views
        held = (
            Pause.from_json(known)
            if known is not None
            else Pause(
                manifest.tick if has else 0,
                now_us,
                manifest.frontier if has else {},
                manifest.frontier,
                NO_QUERY,
                view.because,
                {},
                manifest.aside,
            )
        )
        error = as_data(view.error, view.declared)
        found[name] = replace(held, fingerprint=NO_QUERY, because=view.because, error=error)
    return found


def is_told(manifest: Manifest, waiting: Mapping[str, Pause]) -> bool:
    """Whether the manifest says of each of them that it is paused, and why."""
    known = manifest.paused
    return all(name in known and known[name]["error"] == pause.to_json()["error"] for name, pause in waiting.items())


def carried(manifest: Manifest, waiting: Mapping[str, Pause]) -> tuple[dict[str, ViewEntry], dict[str, RelationEntry]]:
    """What a manifest has of them: their entries, and the relations that are theirs."""
    views = {name: manifest.views[name] for name in waiting if name in manifest.views}
    relations = {
        relation: entry for relation, entry in manifest.relations.items() if relation.partition("$")[0] in waiting
    }
    return views, relations


def refuse(name: str, views: Mapping[str, Unprepared], manifest: Manifest) -> None:
    """Refuse whoever wants such a view to be computed."""
    if name in views:
        raise refused(name, pauses(manifest, {name: views[name]}, manifest.committed_us)[name])
