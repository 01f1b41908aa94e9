"""Times: how far in event time an app is, tick by tick.

What it is: ``EventTimeProgress``, which a manifest keeps (the watermark of each topic and of each view, and the moment
of the newest append that was seen), and ``ViewTime``, what one tick of one view needs of it.
Invariants: the times after a tick follow from those before it and the rows and heartbeats that it took; a view's
watermark is the least of its topics', without those that are idle, and never goes back.
Not here: a topic's watermark (``log/event_time/watermarks.py``); what views do about it (``timed_operators.py``).
Read next: ``timed_operators.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.log.event_time.producer_progress import ProducerProgress
from headwater.log.event_time.watermarks import Watermark
from headwater.log.topic_settings import TopicSettings

RECENT_ROWS = 10_000  # older rows than about so many fade


@dataclass(frozen=True)
class EventTimeProgress:
    """How far an app is in event time."""

    now_us: int = 0
    topics: Mapping[str, Watermark] = field(default_factory=dict)
    views: Mapping[str, int | None] = field(default_factory=dict)
    late: Mapping[str, Mapping[str, Mapping[str, int]]] = field(
        default_factory=dict
    )  # {view: {topic: {producer: rows}}}
    recent: Mapping[str, Mapping[str, list[float]]] = field(default_factory=dict)  # {view: {topic: [late, of rows]}}

    def moved(
        self,
        came: Mapping[str, Mapping[int, ProducerProgress]],
        settings: Mapping[str, TopicSettings],
        reads: Mapping[str, Iterable[str]],
    ) -> EventTimeProgress:
        """After these came. ``reads``: the topics with an event time that each view reads, at any distance."""
        seen = [pace.seen_us for paces in came.values() for pace in paces.values()]
        now_us = max([self.now_us, *seen])
        topics = {
            name: self.topics.get(name, Watermark()).moved(came.get(name, {}), now_us=now_us, settings=of)
            for name, of in settings.items()
        }
        views = {view: self._view(view, topics, names) for view, names in reads.items()}
        return replace(self, now_us=now_us, topics=topics, views=views)

    def with_late(self, view: str, topic: str, rows: int, counts: Mapping[int, int]) -> EventTimeProgress:
        """After a tick took so many rows of a topic of which these, by producer, were late for a view."""
        late = {name: {of: dict(by) for of, by in topics.items()} for name, topics in self.late.items()}
        known = late.setdefault(view, {}).setdefault(topic, {})
        for producer, count in counts.items():
            known[str(producer)] = known.get(str(producer), 0) + count
        recent = {name: dict(topics) for name, topics in self.recent.items()}
        before = recent.setdefault(view, {}).get(topic, [0.0, 0.0])
        fading = min(1.0, RECENT_ROWS / max(1.0, before[1] + rows))
        recent[view][topic] = [before[0] * fading + sum(counts.values()), before[1] * fading + rows]
        return replace(self, late=late, recent=recent)

    def _view(self, view: str, topics: Mapping[str, Watermark], names: Iterable[str]) -> int | None:
        before = self.views.get(view)
        found = [topics[name].at_us for name in names if not topics[name].idle]
        known = [at_us for at_us in found if at_us is not None]
        if not known or len(known) < len(found):
            return before
        return min(known) if before is None else max(before, min(known))

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it."""
        topics = {name: watermark.to_json() for name, watermark in self.topics.items()}
        return {
            "now_us": self.now_us,
            "topics": topics,
            "views": dict(self.views),
            "late": self.late,
            "recent": self.recent,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> EventTimeProgress:
        """The times that ``to_json`` described.

        >>> times = EventTimeProgress(7, {"clicks": Watermark(5)}, {"minutes": 5})
        >>> EventTimeProgress.from_json(times.to_json()) == times
        True
        """
        if not data:
            return EventTimeProgress()
        topics = {name: Watermark.from_json(watermark) for name, watermark in data["topics"].items()}
        return EventTimeProgress(data["now_us"], topics, data["views"], data["late"], data["recent"])


@dataclass(frozen=True)
class ViewTime:
    """One view's watermark before and after a tick, and what follows from it. All in microseconds.

    >>> minutes = ViewTime(before_us=100, after_us=160, horizon_us=30, reach_us=20)
    >>> minutes.cutoff_us, minutes.let_go_us, minutes.lets_go
    (70, 50, True)
    """

    before_us: int | None = None
    after_us: int | None = None
    horizon_us: int | None = None
    reach_us: int | None = None

    @property
    def cutoff_us(self) -> int | None:
        """Rows before this come too late in this tick; None: none does."""
        return None if self.before_us is None or self.horizon_us is None else self.before_us - self.horizon_us

    @property
    def let_go_us(self) -> int | None:
        """What is before this is not needed any more in this tick; None: everything is."""
        cutoff = self.cutoff_us
        return None if cutoff is None or self.reach_us is None else cutoff - self.reach_us

    @property
    def lets_go(self) -> bool:
        """Whether this tick lets go: not each one, for it costs a look at the state."""
        if self.let_go_us is None or self.reach_us is None or self.before_us is None or self.after_us is None:
            return False
        step = max(self.reach_us // 4, 1)
        return self.after_us // step > self.before_us // step
