"""The demo's screen: a live display on a terminal, plain lines elsewhere.

What it is: two ways to show the same: what happens (narration) and how it stands (rates, lag, owners; views).
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
BAR_WIDTH = 40
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


@dataclass
class ShopState:
    """The shop's views as they stand: revenue by country, and the ticks over time."""

    revenue: list[dict[str, Any]] = field(default_factory=list)
    running: bool = False
    tick: int = 0
    feed_tick: int = 0
    latencies_ms: deque[float] = field(default_factory=lambda: deque(maxlen=200))
    changes: deque[float] = field(default_factory=lambda: deque(maxlen=200))
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=200))


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

    def update_shop(self, shop: ShopState) -> None:
        """How the views stand now; as a line now and then."""
        if time.monotonic() < self._status_due or not shop.revenue:
            return
        self._status_due = time.monotonic() + STATUS_EVERY_S
        best = "; ".join(f"{row['country']} {row['revenue']:,.2f}" for row in shop.revenue[:3])
        state = f"tick {shop.tick}" if shop.running else f"tick {shop.tick}, the app is down"
        latency = f", append → served {shop.latencies_ms[-1]:,.0f} ms" if shop.latencies_ms else ""
        self.console.print(f"{self._clock()}    {state}{latency}; {best}", markup=False, style="dim", soft_wrap=True)

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

    def update_shop(self, shop: ShopState) -> None:
        """Redraw."""
        self._live.update(_drawn_shop(shop))

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


def _drawn_shop(shop: ShopState) -> Renderables:
    from rich.console import Group as Renderables
    from rich.text import Text

    top = max((row["revenue"] or 0.0 for row in shop.revenue), default=0.0) or 1.0
    bars = [
        (row["country"], f"{row['revenue']:,.2f}", f"{row['orders']:,}",
         Text("█" * max(1, round(row["revenue"] / top * BAR_WIDTH)), style="cyan"))
        for row in shop.revenue
    ]  # fmt: skip
    ticks = [
        _over_time("append → served", shop.latencies_ms, "ms"),
        _over_time("changes of all views", shop.changes, ""),
        _over_time("a tick's work", [1000 * each for each in shop.seconds], "ms"),
    ]
    state = Text(f"tick {shop.tick}", style="bold")
    state.append("" if shop.running else "  the app is down; this is what it left", style="red")
    state.append(f"  the change feed is read to tick {shop.feed_tick}", style="dim")
    return Renderables(
        Text(),
        state,
        table(["country", ">revenue", ">orders", ""], bars),
        table(["tick by tick", ">now", "over time"], ticks),
    )


def _over_time(name: str, values: Sequence[float], unit: str) -> tuple[str, str, Any]:
    from rich.text import Text

    now = f"{values[-1]:,.0f} {unit}".rstrip() if values else ""
    return name, now, Text(sparkline(list(values), width=SPARK_WIDTH).ljust(SPARK_WIDTH), style="green")


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
