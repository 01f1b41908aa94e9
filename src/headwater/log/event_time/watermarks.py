"""Watermarks: the event time before which no more rows are expected.

What it is: the watermark of a topic, derived from those of its producers.
Invariants: a watermark never goes back. A producer's watermark is its largest event time less the topic's lateness, or
its heartbeat, whichever is later; a topic's is the least of its *active* producers'. A producer is idle when others
have appended rows for ``idle_ms`` since its last one. The machine's clock is never used.
Not here: event times of rows (``producer_progress.py``), heartbeats (``heartbeats.py``), use in views.
Read next: ``producer_progress.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.clock import format_us
from headwater.log.event_time.producer_progress import NEVER, ProducerProgress, merge_progress
from headwater.log.topic_settings import TopicSettings

PRODUCERS_MAX = 1000  # remembered per topic; beyond it those silent longest are dropped


@dataclass(frozen=True)
class Watermark:
    """The watermark of a topic and the progress of its producers.

    >>> first, second = ProducerProgress(60_000_000, seen_us=1), ProducerProgress(90_000_000, seen_us=1)
    >>> clicks = Watermark().moved({1: first, 2: second},
    ...                            now_us=1, settings=TopicSettings(event_time="at", lateness_ms=5_000))
    >>> clicks.at_us  # the slower of the two, less five seconds
    55000000
    """

    at_us: int | None = None
    idle: bool = False  # none of its producers is active: views do not wait for it
    producers: Mapping[int, ProducerProgress] = field(default_factory=dict)  # 0: anonymous ones

    def moved(self, came: Mapping[int, ProducerProgress], *, now_us: int, settings: TopicSettings) -> Watermark:
        """The watermark after these rows and heartbeats; ``now_us`` is the newest append time seen in any topic."""
        known = merge_progress(self.producers, came)
        if len(known) > PRODUCERS_MAX:
            newest = sorted(known, key=lambda producer: known[producer].seen_us)[-PRODUCERS_MAX:]
            known = {producer: known[producer] for producer in newest}
        active = [progress for progress in known.values() if not is_idle(progress, now_us=now_us, settings=settings)]
        reached = [at for at in (watermark_of(progress, settings) for progress in active) if at is not None]
        at_us = self.at_us
        if active and len(reached) == len(active):
            at_us = max(min(reached), min(reached) if at_us is None else at_us)
        return Watermark(at_us, bool(known) and not active, known)

    def to_json(self) -> dict[str, Any]:
        producers = {str(producer): list(vars(progress).values()) for producer, progress in self.producers.items()}
        return {"at_us": self.at_us, "idle": self.idle, "producers": producers}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Watermark:
        """The watermark that ``to_json`` described.

        >>> there = Watermark(7, producers={3: ProducerProgress(9, seen_us=4)})
        >>> Watermark.from_json(there.to_json()) == there
        True
        """
        producers = {int(producer): ProducerProgress(*progress) for producer, progress in data["producers"].items()}
        return Watermark(data["at_us"], data["idle"], producers)

    def describe(self, names: Mapping[int, str], settings: TopicSettings, now_us: int) -> dict[str, Any]:
        """The watermarks of the topic and of each producer, the slowest first."""
        rows = [
            {
                "producer": names.get(producer, "") or "(no name)",
                "newest": _shown(progress.newest_us),
                "watermark": _shown(watermark_of(progress, settings)),
                "heartbeat": _shown(progress.nothing_before_us),
                "seen": _shown(progress.seen_us),
                "idle": is_idle(progress, now_us=now_us, settings=settings),
            }
            for producer, progress in self.producers.items()
        ]
        rows.sort(key=lambda row: (row["idle"], row["watermark"] or ""))
        return {"watermark": _shown(self.at_us), "idle": self.idle, "producers": rows}


def watermark_of(progress: ProducerProgress, settings: TopicSettings) -> int | None:
    """One producer's watermark; None when it has sent no event time."""
    of_rows = NEVER if progress.newest_us == NEVER else progress.newest_us - settings.lateness_ms * 1000
    found = max(of_rows, progress.nothing_before_us)
    return None if found == NEVER else found


def is_idle(progress: ProducerProgress, *, now_us: int, settings: TopicSettings) -> bool:
    """Whether a producer has been silent for ``idle_ms`` while others were not, so that it holds nothing back."""
    return settings.idle_ms is not None and now_us - progress.seen_us > settings.idle_ms * 1000


def _shown(us: int | None) -> str | None:
    return None if us is None or us == NEVER else format_us(us)
