"""The demo's screen: a live display on a terminal, plain lines elsewhere.

What it is: two ways to show the same: what happens (narration) and how it stands (rates, lag, owners).
Invariants: narration is never lost: on a terminal it stays above the live part when that is gone. Nothing here decides
or measures anything.
Not here: the numbers (``demo.py``), the verdict (``demo_ledger.py``).
Read next: ``output.py``.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from headwater.cli.output import console, sparkline, table
from headwater.cli.quantities import show_count

if TYPE_CHECKING:
    from rich.console import Group as Renderables

SPARK_WIDTH = 24
STATUS_EVERY_S = 3.0


@dataclass
class TopicState:
    """A topic as it stands: rows, and the rate over time."""

    name: str
    rows: int = 0
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=200))


@dataclass(frozen=True)
class GroupState:
    """A group as it stands: lag and owner of each partition."""

    name: str
    kind: str
    members: int
    lag: dict[int, int]
    owners: dict[int, str]
    note: str = ""


class Screen:
    """Where the demo shows itself. ``stderr``: stdout is wanted for JSON."""

    def __init__(self, *, stderr: bool = False) -> None:
        self.console = console(stderr=stderr)
        self._begun = time.monotonic()
        self._status_due = self._begun + STATUS_EVERY_S

    def narrate(self, text: str, *, style: str = "") -> None:
        """Say what happens."""
        self.console.print(f"{self._clock()}  {text}", style=style, markup=False, soft_wrap=True)

    def _clock(self) -> str:
        return f"{time.monotonic() - self._begun:5.1f} s"

    def update(self, topics: Sequence[TopicState], groups: Sequence[GroupState], progress: float) -> None:
        """How it stands now; as a line now and then."""
        del progress
        if time.monotonic() < self._status_due:
            return
        self._status_due = time.monotonic() + STATUS_EVERY_S
        told = [f"{topic.name} {topic.rows:,} rows, {show_count(_rate(topic))}/s" for topic in topics]
        told += [f"{group.name} lag {sum(group.lag.values()):,}" for group in groups]
        self.console.print(f"{self._clock()}    {'; '.join(told)}", markup=False, style="dim", soft_wrap=True)

    def show(self, renderable: Any) -> None:
        """Print something of many lines, such as the summary."""
        self.console.print(renderable)

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class LiveScreen(Screen):
    """The same on a terminal: tables that move, the narration above them."""

    def __init__(self) -> None:
        super().__init__()
        from rich.live import Live

        self._live = Live(console=self.console, refresh_per_second=8, transient=True)

    def update(self, topics: Sequence[TopicState], groups: Sequence[GroupState], progress: float) -> None:
        """Redraw."""
        self._live.update(_drawn(topics, groups, progress))

    def __enter__(self) -> LiveScreen:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)


def _rate(topic: TopicState) -> float:
    return topic.rates[-1] if topic.rates else 0.0


def _drawn(topics: Sequence[TopicState], groups: Sequence[GroupState], progress: float) -> Renderables:
    from rich.console import Group as Renderables
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    rates = [
        (topic.name, f"{topic.rows:,}", f"{show_count(_rate(topic))}/s",
         Text(sparkline(list(topic.rates), width=SPARK_WIDTH).ljust(SPARK_WIDTH), style="green"))
        for topic in topics
    ]  # fmt: skip
    partitions = sorted({partition for group in groups for partition in group.lag})
    lags = [
        (group.name, group.kind, group.members, group.note, *(_cell(group, partition) for partition in partitions))
        for group in groups
    ]
    return Renderables(
        Text(),
        ProgressBar(total=1.0, completed=min(1.0, progress), width=60),
        table(["topic", ">rows", ">rate", "over time"], rates),
        table(["group", "kind", ">members", "", *(f"partition {number}" for number in partitions)], lags),
    )


def _cell(group: GroupState, partition: int) -> Any:
    from rich.text import Text

    if partition not in group.lag:
        return ""
    lag = group.lag[partition]
    shown = Text(f"{lag:>7,}", style="yellow" if lag > 10_000 else "")
    if group.kind == "consumer":
        owner = group.owners.get(partition)
        shown.append(f" {owner}" if owner else " nobody", style="cyan" if owner else "red")
    return shown
