"""The demo's screen: a live display on a terminal, plain lines elsewhere.

What it is: two ways to show the same: what happens (narration) and how the views stand.
Invariants: narration is never lost: on a terminal it stays above the live part when that is gone. Nothing here decides
or measures anything.
Not here: the numbers (``headlines.py``), the verdict (``audit.py``).
Read next: ``output.py``.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.cli.output import console, sparkline, table

if TYPE_CHECKING:
    from rich.console import Group as Renderables

SPARK_WIDTH = 24
BAR_WIDTH = 40
STATUS_EVERY_S = 4.0


@dataclass(frozen=True)
class Headline:
    """One view as it stands: how many rows, and what they say in a few words."""

    view: str
    rows: int
    says: str


@dataclass
class ShopState:
    """The views as they stand, and the ticks over time."""

    headlines: list[Headline] = field(default_factory=list)
    revenue: list[tuple[str, float, int]] = field(default_factory=list)  # country, money, orders
    moved: frozenset[str] = frozenset()  # views that say something else than at the look before
    running: bool = False
    tick: int = 0
    address: str | None = None
    latencies_ms: deque[float] = field(default_factory=lambda: deque(maxlen=200))
    rows: deque[float] = field(default_factory=lambda: deque(maxlen=200))


class Screen:
    """Where the demo shows itself. ``stderr``: stdout is wanted for JSON."""

    def __init__(self, *, stderr: bool = False) -> None:
        self.console = console(stderr=stderr)
        self._begun = time.monotonic()
        self._status_due = self._begun + STATUS_EVERY_S
        self._shown_tick = 0

    def narrate(self, text: str, *, style: str = "") -> None:
        """Say what happens."""
        self.console.print(f"{self._clock()}  {text}", style=style, markup=False, soft_wrap=True)

    def _clock(self) -> str:
        return f"{time.monotonic() - self._begun:5.1f} s"

    def update(self, shop: ShopState) -> None:
        """How the views stand now; as a line now and then."""
        if time.monotonic() < self._status_due or shop.tick == self._shown_tick:
            return
        self._status_due, self._shown_tick = time.monotonic() + STATUS_EVERY_S, shop.tick
        state = f"tick {shop.tick}" if shop.running else f"tick {shop.tick}, the engine is down"
        latency = f", commit → views {shop.latencies_ms[-1]:,.0f} ms" if shop.latencies_ms else ""
        best = ", ".join(f"{country} {money:,.2f}" for country, money, _ in shop.revenue[:3])
        said = "; ".join(f"{each.view}: {each.says}" for each in shop.headlines if each.view in shop.moved)
        text = f"{self._clock()}    {state}{latency}; revenue {best}; {said}"
        self.console.print(text, markup=False, style="dim", soft_wrap=True)

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class LiveScreen(Screen):
    """The same on a terminal: tables that move, the narration above them."""

    def __init__(self) -> None:
        super().__init__()
        from rich.live import Live

        self._live = Live(console=self.console, refresh_per_second=8, transient=True)

    def update(self, shop: ShopState) -> None:
        """Redraw."""
        self._live.update(_drawn(shop))

    def __enter__(self) -> LiveScreen:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()


def _drawn(shop: ShopState) -> Renderables:
    from rich.console import Group as Renderables
    from rich.text import Text

    if not shop.headlines:
        return Renderables(Text())
    state = Text(f"tick {shop.tick}", style="bold")
    state.append("" if shop.running else "  the engine is down; this is what it left", style="red")
    state.append(f"  {shop.address}" if shop.address else "", style="cyan")
    views = [
        (each.view, f"{each.rows:,}", Text(each.says, style="bold" if each.view in shop.moved else ""))
        for each in shop.headlines
    ]
    top = max((money for _, money, _ in shop.revenue), default=0.0) or 1.0
    bars = [
        (country, f"{money:,.2f}", f"{orders:,}", Text("█" * max(1, round(money / top * BAR_WIDTH)), style="cyan"))
        for country, money, orders in shop.revenue
    ]
    ticks = [
        _over_time("commit in PostgreSQL → in the views", shop.latencies_ms, "ms"),
        _over_time("rows in a tick", shop.rows, ""),
    ]
    return Renderables(
        Text(),
        state,
        table(["view", ">rows", "says"], views),
        table(["revenue of ten minutes", ">money", ">orders", ""], bars),
        table(["tick by tick", ">now", "over time"], ticks),
    )


def _over_time(name: str, values: Sequence[float], unit: str) -> tuple[str, str, Any]:
    from rich.text import Text

    now = f"{values[-1]:,.0f} {unit}".rstrip() if values else ""
    return name, now, Text(sparkline(list(values), width=SPARK_WIDTH).ljust(SPARK_WIDTH), style="green")
