"""Command counts: how many commands came over HTTP, what became of them, and how long they took.

What it is: ``CommandCounts``, of one server, for the status, the metrics and the dashboard.
Invariants: counted since the server started, and only what came over HTTP: commands that programs send by themselves
are in the log (``aggregates/stored_history.py``). Times are those of the last ``KEPT`` commands.
Not here: answering (``command_workers.py``).
Read next: ``server/status/prometheus.py``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

from headwater.errors import HeadwaterError
from headwater.server.status.prometheus import OUTCOMES

KEPT = 1000
ACCEPTED, REPEATED, REJECTED, FAILED = "accepted", "repeated", "rejected", "failed"
BY_CODE = {"rejected": REJECTED, "version_conflict": "conflict", "request_conflict": "conflict"}


class CommandCounts:
    """The commands of one server.

    >>> counts = CommandCounts()
    >>> counts.answered("account", 0.002, retried=1)
    >>> counts.answered("account", 0.004, repeated=True)
    >>> counts.of("account")
    {'accepted': 1, 'repeated': 1, 'rejected': 0, 'conflict': 0, 'replay_failed': 0, 'failed': 0, 'retried': 1, \
'seconds_p50': 0.004, 'seconds_p99': 0.004, 'seconds_total': 0.006}
    """

    def __init__(self) -> None:
        self._outcomes: dict[str, Counter[str]] = {}
        self._seconds: dict[str, deque[float]] = {}
        self._total_s: dict[str, float] = {}

    def answered(self, aggregate: str, seconds: float, *, repeated: bool = False, retried: int = 0) -> None:
        """A command was accepted."""
        self._note(aggregate, REPEATED if repeated else ACCEPTED, seconds)["retried"] += retried

    def refused(self, aggregate: str, seconds: float, error: HeadwaterError) -> None:
        """A command ended with an error. An aggregate that is not declared is not counted: its name is a client's."""
        if error.code != "unknown_aggregate":
            outcome = "replay_failed" if error.code == "replay_failed" else BY_CODE.get(error.code, FAILED)
            self._note(aggregate, outcome, seconds)

    def _note(self, aggregate: str, outcome: str, seconds: float) -> Counter[str]:
        counted = self._outcomes.setdefault(aggregate, Counter())
        counted[outcome] += 1
        self._seconds.setdefault(aggregate, deque(maxlen=KEPT)).append(seconds)
        self._total_s[aggregate] = self._total_s.get(aggregate, 0.0) + seconds
        return counted

    def of(self, name: str) -> dict[str, Any]:
        """The counts and times of one aggregate."""
        counted, times = self._outcomes.get(name, Counter()), sorted(self._seconds.get(name, ()))
        return {
            **{outcome: counted[outcome] for outcome in OUTCOMES},
            "retried": counted["retried"],
            "seconds_p50": round(times[len(times) // 2], 6) if times else None,
            "seconds_p99": round(times[len(times) * 99 // 100], 6) if times else None,
            "seconds_total": round(self._total_s.get(name, 0.0), 6),
        }

    def of_topics(self, topics: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The aggregates and event stores among the topics of a status: rows in the log, their rate, and commands."""
        return [
            {
                "name": topic["name"],
                "rows": sum(topic["end_offsets"].values()),
                "rate": topic["rate"],
                "commands": self.of(topic["name"]),
            }
            for topic in topics
            if topic["history"]
        ]
