"""The hub: subscriptions to views.

What it is: ``Hub``. Skeleton: the fan-out is to come.
Invariants: none yet.
Not here: carrying messages (``events.py``).
Read next: ``events.py``.
"""

from __future__ import annotations


class Hub:
    """All subscriptions."""

    def counts(self) -> dict[str, int]:
        """How many there are."""
        return {"subscriptions": 0}
