"""``python -m bench.log_bench``: the log and its peers, by turns, in one run.

Invariants: all systems get their turn in every round, so that noise hits all; the first rounds warm up (a JVM needs
it) and check every answer by count and checksum, and are not counted; figures are medians of the other rounds.
A peer that cannot be had, or that fails, is reported with the reason; our own failure ends the run.
Not here: how one sample is taken (``log/scenarios.py``, ``log/peers/``).
Read next: ``report.py``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn, Protocol

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from bench import report
from bench.log.order_rows import PAYLOAD_BYTES, Rows
from bench.log.peers import PEERS, Peer
from bench.peer_servers import PeerUnavailable
from bench.report import Bar, Samples

WARM_UP_ROUNDS = 2
BEST_APPENDS = tuple(f"{p.title}: append, {m.name}" for p in PEERS.values() for m in p.modes if m.given == "ready")
DICT_APPENDS = tuple(f"{p.title}: append, {m.name}" for p in PEERS.values() for m in p.modes if m.given == "dicts")
READS = tuple(f"{peer.title}: read" for peer in PEERS.values())

ARROW = "Headwater: append, Arrow batches of 10 000"
DICTS = "Headwater: append, dict rows by 1 000"
ROW_BY_ROW = "Headwater: append, row by row"
READ_ARROW = "Headwater: read, Arrow segments"
READ_SEALED = "Headwater: read, sealed Parquet segments"
EMPTY = "Headwater: append, nothing retained"
FULL = "Headwater: append, 2 000 segments retained"

# A peer's best case has its bytes or tuples ready when the clock starts; our dict rows must be made into columns first.
# The two lines "given dicts" compare with peers that start from the application's dicts too: told, not demanded.
BARS = (
    Bar("Arrow append, beside the best peer", f"{ARROW}, interval", BEST_APPENDS, 10.0),
    Bar("dict rows, beside the best peer", f"{DICTS}, interval", BEST_APPENDS, 1.5),
    Bar("dict rows, beside the best peer given dicts", f"{DICTS}, interval", DICT_APPENDS),
    Bar("row by row, beside the best peer", f"{ROW_BY_ROW}, interval", BEST_APPENDS, 1.0),
    Bar("row by row, beside the best peer given dicts", f"{ROW_BY_ROW}, interval", DICT_APPENDS),
    Bar("sequential read, beside the best peer", READ_ARROW, READS, 10.0),
    Bar("sequential read of sealed segments, beside the best peer", READ_SEALED, READS, 10.0),
    Bar("append with many segments retained, beside none", FULL, (EMPTY,), 0.9),
)


class Turn(Protocol):
    """One system's turn in a round: its samples as (name, rows, seconds). With ``check``, answers are checked too."""

    def __call__(self, *, check: bool) -> list[tuple[str, int, float]]: ...


def log(
    rows: Annotated[int, typer.Option(min=1_000, help="Rows per sample; slow peers get a share of them.")] = 400_000,
    runs: Annotated[int, typer.Option(min=1, help="Counted rounds; figures are their medians.")] = 5,
    sqlite: Annotated[bool, typer.Option(help="Measure SQLite too.")] = True,
    redis: Annotated[bool, typer.Option(help="Measure Redis Streams too.")] = True,
    nats: Annotated[bool, typer.Option(help="Measure NATS JetStream too.")] = True,
    kafka: Annotated[bool, typer.Option(help="Measure Kafka too.")] = True,
    own: Annotated[bool, typer.Option(help="Measure Headwater; without it, only the peers.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print the list for programs instead of the tables.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the list there; in a checkout, bench/out/log.json.")] = None,
    directory: Annotated[Path | None, typer.Option(help="Where all data goes; default: the temporary one.")] = None,
) -> None:
    """Measure the log beside its peers: records/s and MB/s, appending and reading."""
    ending = Ending()
    ending.listen()
    wanted = [name for name, on in zip(PEERS, (sqlite, redis, nats, kafka), strict=True) if on]
    console = Console(stderr=True)
    samples = measure(rows, runs=runs, peers=wanted, own=own, directory=directory, console=console, ending=ending)
    bars = BARS if own else ()
    found = samples.measurements(bars)
    if out is None and Path("bench/setup.sh").exists():
        out = Path("bench/out/log.json")
    if out is not None:
        report.write(found, out)
    if json:
        print(report.to_json(found))
    else:
        title = f"{rows:,} rows of {PAYLOAD_BYTES} bytes, medians of {runs}, {os.cpu_count()} cores"
        report.show(samples, bars, Console(), title=title)


class Ending:
    """A plain kill ends like Ctrl-C: every server is stopped and every directory removed on the way out.

    The signal is remembered as well as raised: Python swallows what is raised inside a finalizer or a weak reference's
    callback, and a benchmark that lost its signal there would go on for minutes.
    """

    def __init__(self) -> None:
        self._number: int | None = None

    def listen(self) -> None:
        """From now on, SIGINT and SIGTERM end the benchmark."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def _note(self, number: int, _: object) -> NoReturn:
        self._number = number
        sys.exit(128 + number)

    def check(self) -> None:
        """End now if a signal came."""
        if self._number is not None:
            sys.exit(128 + self._number)


def measure(
    rows: int, *, runs: int, peers: Sequence[str], own: bool, directory: Path | None, console: Console, ending: Ending
) -> Samples:
    """Run all rounds and return the samples. Everything started is stopped when this returns or raises."""
    samples = Samples()
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headwater-bench-", dir=directory)))
        progress = stack.enter_context(_progress(console))
        progress("making rows")
        materials = {share: Rows(count=max(1_000, int(rows * share))) for share in (1.0, 0.25)}
        turns: list[tuple[str, Turn]] = []
        for name in peers:
            progress(f"starting {PEERS[name].title}")
            peer = PEERS[name]()
            stack.callback(peer.teardown)
            try:
                peer.setup(place)
            except PeerUnavailable as error:
                samples.missing[peer.title] = str(error)
            else:
                turns.append((peer.title, partial(_peer_turn, peer, materials[peer.share])))
        if own:
            progress("preparing homes")
            turns += _own_turns(place, materials[1.0], stack)
        for number in range(-WARM_UP_ROUNDS, runs):
            for title, turn in list(turns):
                progress(f"round {number + 1} of {runs}: {title}" if number >= 0 else f"warming up: {title}")
                ending.check()
                try:
                    taken = turn(check=number < 0)
                except Exception as error:
                    if title.startswith("Headwater"):
                        raise
                    samples.missing[title] = f"{type(error).__name__}: {error}"
                    turns = [other for other in turns if other[0] != title]
                    continue
                if number >= 0:
                    for name, count, seconds in taken:
                        samples.add(name, rows=count, seconds=seconds)
    return samples


def _peer_turn(peer: Peer, rows: Rows, *, check: bool) -> list[tuple[str, int, float]]:
    """Append in every mode; read back after the first one and, when checking, after all of them."""
    taken = []
    for number, mode in enumerate(peer.modes):
        taken.append((f"{peer.title}: append, {mode.name}", rows.count, peer.append(rows, mode)))
        if number > 0 and not check:
            continue
        reading = peer.read_all(check=check)
        if reading.rows != rows.count or reading.checksum not in (None, rows.checksum):
            raise RuntimeError(f"read back {reading}, expected {rows.count} rows with sum {rows.checksum}")
        if number == 0:
            taken.append((f"{peer.title}: read", rows.count, reading.seconds))
    return taken


def _own_turns(place: Path, rows: Rows, stack: contextlib.ExitStack) -> list[tuple[str, Turn]]:
    """Our side's turns; their homes are removed by ``stack``."""
    from bench.log import scenarios

    material = scenarios.Material(rows)
    calls: list[tuple[str, Callable[[], Any]]] = []
    for fsync in ("interval", "always"):
        for title, scenario in (
            (ARROW, scenarios.append_arrow),
            (DICTS, scenarios.append_dicts),
            (ROW_BY_ROW, scenarios.append_row_by_row),
        ):
            name = f"{title}, {fsync}"
            calls.append((name, partial(scenario, place, material, name=name, fsync=fsync)))
    name = f"{ARROW}, keyed, 4 partitions"
    calls.append((name, partial(scenarios.append_arrow, place, material, name=name, key="order_id", partitions=4)))
    for processes in (1, 2, 4):
        name = f"{ARROW}, {processes} {'process' if processes == 1 else 'processes'}"
        calls.append((name, partial(scenarios.append_from_processes, place, material, name=name, processes=processes)))
    reads = scenarios.ReadScenarios(place, material)
    stack.callback(reads.close)
    calls.append((READ_ARROW, partial(reads.read, reads.arrow, name=READ_ARROW)))
    calls.append((READ_SEALED, partial(reads.read, reads.sealed, name=READ_SEALED)))
    retained = scenarios.RetainedScenario(place, material, empty_name=EMPTY, full_name=FULL)
    stack.callback(retained.close)
    calls.append((FULL, retained.samples))
    return [(name, partial(_own_turn, call)) for name, call in calls]


def _own_turn(call: Callable[[], Any], *, check: bool) -> list[tuple[str, int, float]]:  # noqa: ARG001
    # Our scenarios check their rows in every round: it costs them nothing inside the clock.
    found = call()
    return [(one.name, one.rows, one.seconds) for one in (found if isinstance(found, list) else [found])]


@contextlib.contextmanager
def _progress(console: Console) -> Iterator[Callable[[str], None]]:
    """A line that says what is going on; on a console that is not a terminal, nothing."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    # Redrawn ten times a second it would take its share of two cores.
    with Progress(*columns, console=console, transient=True, refresh_per_second=1) as progress:
        task = progress.add_task("", total=None)
        yield lambda text: progress.update(task, description=text)


def main() -> None:
    """``python -m bench.log_bench``."""
    typer.run(log)


if __name__ == "__main__":
    main()
