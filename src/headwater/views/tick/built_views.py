"""Built views: views that were computed beside the live ones, ready to take their place.

What it is: ``BuiltViews``, what a rebuild or a migration hands to ``TickEngine.swap``.
Invariants: they were computed up to the current tick; a swap commits all of them or none.
Not here: computing them (``views/lifecycle/rebuild.py``), the swap (``engine.py``).
Read next: ``engine.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.views.state.delta import Delta
from headwater.views.state.state_trace import Traces
from headwater.views.tick.prepare import Prepared


@dataclass(frozen=True)
class BuiltViews:
    """Views that were computed beside the live ones, up to the current tick."""

    prepared: Prepared  # what ticks maintain from now on
    traces: Traces  # the state of the views that were built
    restarted: frozenset[str]  # those that begin anew
    differences: Mapping[str, Delta]  # of the others: what they have and the live ones had not
    inputs: Traces = field(default_factory=dict)  # the state of topics from which records were taken
    aside: Mapping[str, Any] | None = None  # the records that are left out from now on; None: as before
    forgets: bool = False  # every earlier tick is forgotten with this one

    @property
    def names(self) -> frozenset[str]:
        """The views that were built."""
        return self.restarted | frozenset(self.differences)
