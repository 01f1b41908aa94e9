"""The privacy map: where personal data of an app is, what for, and who gets it.

What it is: ``privacy_map``, a line for each personal column of each topic and view; ``CarriedTo``, a sink as far as the
map tells of it.
Invariants: what ``PersonalData`` finds is in it, and nothing else. It reads declarations alone, no rows, and starts no
Spark.
Not here: marks (``personal_data.py``), printing (``cli/upkeep/privacy_commands.py``).
Read next: ``personal_data.py``; ``docs/privacy.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.durations import to_text
from headwater.log.contract import Capability
from headwater.log.erasure.purposes import FOREVER, Purposes
from headwater.log.schema.normalization import WEIGHT
from headwater.views.privacy.personal_data import PersonalData, PersonalMark, PrivacyRights

if TYPE_CHECKING:
    from headwater.log.contract import EventLog
    from headwater.views.view import View

ANY_COLUMN = "*"  # of a view whose columns Spark alone knows


@dataclass(frozen=True)
class CarriedTo:
    """A sink, the view that it carries (None: every view that is served), and whether it gets masked values."""

    sink: str
    view: str | None
    masked: bool = False


@dataclass(frozen=True)
class PersonalPlace:
    """A personal column in one place."""

    relation: str
    kind: str  # topic or view
    column: str
    subjects: tuple[str, ...]
    purposes: tuple[str, ...]
    mask: str | None  # for readers without the right
    counted: bool  # it only counts rows of people
    comes_from: tuple[str, ...]
    served: bool = False
    groups: tuple[str, ...] = ()  # of readers of the topic
    sinks: tuple[str, ...] = ()
    masked_sinks: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()  # how long its purposes keep it, of those that are declared

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def privacy_map(
    data: PersonalData, log: EventLog, views: Iterable[View], sinks: Iterable[CarriedTo]
) -> list[PersonalPlace]:
    """Every personal column of topics, and of views over them, in the order of their declaration."""
    marks, carried = data.every(), list(sinks)
    found: list[PersonalPlace] = []
    for topic in log.topics():
        if topic.name in marks:
            groups = tuple(sorted(group.name for group in topic.groups()))
            for name in topic.schema.names:
                mark = marks[topic.name].mark(name)
                if mark is not None and name != WEIGHT:
                    found.append(replace(_place(topic.name, "topic", name, mark), groups=groups))
    for view in views:
        if view.name in marks:
            of_view = marks[view.name]
            plan = view.plan
            names = [column.name for column in plan.columns] if plan is not None and of_view.named else []
            names = names or [*of_view.columns, *([ANY_COLUMN] if of_view.rest is not None else [])]
            served = view.declared.serve
            own = [each for each in carried if each.view == view.name or (each.view is None and served)]
            sinks_of = {masked: tuple(each.sink for each in own if each.masked == masked) for masked in (False, True)}
            for name in names:
                mark = of_view.mark(name)
                if mark is not None:
                    place = _place(view.name, "view", name, mark)
                    found.append(replace(place, served=served, sinks=sinks_of[False], masked_sinks=sinks_of[True]))
    keeps = _keeps(log) if found else {}
    return [replace(each, keep=tuple(keeps[name] for name in each.purposes if name in keeps)) for each in found]


def _keeps(log: EventLog) -> dict[str, str]:
    """How long declared purposes are kept, for people."""
    if Capability.NATIVE_FILES not in log.capabilities:
        return {}
    known = Purposes(log.local.catalog).all().values()
    return {each.name: f"{each.name} {FOREVER if each.keep_us is None else to_text(each.keep_us)}" for each in known}


def _place(relation: str, kind: str, column: str, mark: PersonalMark) -> PersonalPlace:
    return PersonalPlace(
        relation,
        kind,
        column,
        tuple(mark.subjects),
        tuple(mark.purposes),
        mark.mask(PrivacyRights()),
        mark.counted,
        tuple(sorted({f"{origin.relation}.{origin.column}" for origin in mark.origins})),
    )
