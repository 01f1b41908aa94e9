"""Turns: acts of several contenders, one after the other, again and again.

What it is: ``Turns``, the rates and the processor time of each act, round by round, and the lines of a report.
Invariants: every act has its turn in every round; the first round, of shorter turns, warms up. A figure is the median
of the rounds; a ratio is ours over the best of the others: at each level of durability, and, with the bar, of all as
they come.
Processor time is that of this process and of the servers that it started.
Not here: the acts. Read next: ``decide_bench.py``.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from bench.decide.contenders import Contender
from bench.processor_time import processor_seconds
from bench.report import Measurement

OURS = "Headwater"
WARM_UP_S = 0.2  # of each act, before anything counts


@dataclass(frozen=True, eq=False)
class Act:
    """What a contender does once; ``by`` is which of its ways, where it has two."""

    what: str
    contender: Contender
    do: Callable[[], object]
    by: str = ""

    @property
    def who(self) -> str:
        return self.contender.name + self.by

    @property
    def name(self) -> str:
        return f"{self.who}: {self.what}, {self.contender.level}"


def progress(line: str) -> None:
    """Tell a person who waits; the figures come on the other output."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


@dataclass
class Turns:
    """What was measured."""

    least: float  # how many times the best of the others is demanded
    rates: dict[Act, list[float]] = field(default_factory=dict)
    processor: dict[Act, list[float]] = field(default_factory=dict)

    def run(self, acts: Sequence[Act], *, rounds: int, seconds: float) -> None:
        """Each act by turns, for about so many seconds in each."""
        for number in range(rounds + 1):
            turn = seconds if number else min(seconds, WARM_UP_S)
            progress(f"round {number} of {rounds}: {len(acts)} turns of {turn:g} s" if number else "warming up")
            for act in acts:
                count, spent, began = 0, processor_seconds(), time.perf_counter()
                while (passed := time.perf_counter() - began) < turn or count < 20:
                    act.do()
                    count += 1
                if number:
                    self.rates.setdefault(act, []).append(count / passed)
                    self.processor.setdefault(act, []).append((processor_seconds() - spent) / count)

    def lines(self) -> list[Measurement]:
        """The rates, the processor times, and how ours stands beside the best of the others."""
        rates = {act: statistics.median(found) for act, found in self.rates.items()}
        spent = {act: statistics.median(found) for act, found in self.processor.items()}
        lines = [Measurement(act.name, round(rate, 1), "/s") for act, rate in rates.items()]
        lines += [Measurement(f"{act.name}: processor time", round(1e6 * each, 1), "µs") for act, each in spent.items()]
        for act in rates:
            if act.contender.name != OURS:
                continue
            others = [one for one in rates if one.what == act.what and one.contender.name != OURS]
            same = [one for one in others if one.contender.level == act.contender.level]
            lines += self._beside(act, same, rates, spent, f"{act.who}: {act.what}, all {act.contender.level}", None)
            if act.contender.comes:
                comes = [one for one in others if one.contender.comes]
                bar = None if act.by else self.least
                lines += self._beside(act, comes, rates, spent, f"{act.who}: {act.what}, each as it comes", bar)
        return lines

    def _beside(
        self,
        act: Act,
        others: Sequence[Act],
        rates: dict[Act, float],
        spent: dict[Act, float],
        name: str,
        bar: float | None,
    ) -> Iterator[Measurement]:
        if not others:
            return
        best = max(others, key=lambda one: rates[one])
        value = rates[act] / rates[best]
        holds = None if bar is None else value >= bar
        yield Measurement(f"{name}, beside {best.who}", round(value, 2), "x", bar, holds)
        least = min(others, key=lambda one: spent[one])
        by_time = spent[least] / spent[act] if spent[act] else 0.0
        yield Measurement(f"{name}, beside {least.who}, by processor time", round(by_time, 2), "x")
