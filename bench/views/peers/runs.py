"""A peer's run: start it, wait for the base, give it lot after lot, and time each.

What it is: the three peers (Flink SQL with and without mini-batches, Pathway) and ``run``, which measures one.
What is timed: the changes lie on the disk before the clock starts. They are moved into the folder that the peer
watches; the clock starts when the peer first opens one of them, and stops when its answer is the right one. So
start-up, loading the base, and the peer's interval of looking into the folder are not in the figure.
Invariants: a time counts only with the right answer; a peer that cannot be had, ends early, or does not arrive in
time raises ``PeerUnavailable`` with the reason. The process is stopped, by its pid, however this ends.
Not here: the peers' programs (``flink_program.py``, ``pathway_program.py``), their processes (``peer_process.py``).
Read next: ``cli/log/input_files.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.peer_process import Opening, heard, interpreter, started
from bench.views.memory import peak_of
from bench.views.peers import inputs
from bench.views.shop import Lot, Shop

HERE = Path(__file__).parent
READY_SECONDS_MAX = 600.0
LOT_SECONDS_MAX = 600.0


@dataclass(frozen=True)
class Peer:
    """A peer: which environment under ``.tools`` it runs in, its program, and how it wants its input."""

    title: str
    environment: str
    program: str
    arguments: tuple[str, ...]
    write: inputs.Writer
    quarters: bool


PEERS = (
    Peer("Flink SQL", "flink", "flink_program.py", ("0",), inputs.write_debezium, quarters=False),
    Peer(
        "Flink SQL, mini-batches of 20 000",
        "flink",
        "flink_program.py",
        ("20000",),
        inputs.write_debezium,
        quarters=False,
    ),
    Peer("Pathway", "pathway", "pathway_program.py", (), inputs.write_csv, quarters=True),
)


@dataclass(frozen=True)
class PeerRun:
    """The seconds of each lot, and the most memory that the peer's processes held."""

    seconds: list[float]
    peak_bytes: int


def run(
    peer: Peer,
    folder: Path,
    *,
    orders: int,
    users: int,
    lots: list[int],
    draw: Callable[[Shop, int], Lot] = Shop.draw,
    from_put: bool = False,
) -> PeerRun:
    """Give the peer a base and lots of these sizes; the first lot warms it up and is not in the result.

    ``from_put``: the clock starts when the files are there, not when the peer opens one.
    """
    python = interpreter(peer.environment)
    shop = Shop(orders=orders, users=users)
    inputs.write_base(folder, shop, peer.write)
    answers = [shop.answer()]
    for number, count in enumerate(lots):
        lot = draw(shop, count)
        inputs.write_lot(folder / "waiting", number, lot, peer.write)
        answers.append(shop.answer())
    inputs.write_answers(folder, answers, quarters=peer.quarters)
    with started([str(python), str(HERE / peer.program), str(folder), *peer.arguments], folder) as process:
        heard(process, "ready", peer.title, folder, READY_SECONDS_MAX)
        seconds = []
        for number in range(len(lots)):
            put_at, opened_at = _put_lot(folder, number)
            done = heard(process, "done", peer.title, folder, LOT_SECONDS_MAX)["at"]
            first_opened = opened_at()  # ends the watch
            seconds.append(done - (put_at if from_put or first_opened is None else first_opened))
        return PeerRun(seconds[1:], peak_of(process.pid))


def _put_lot(folder: Path, number: int) -> tuple[float, Callable[[], float | None]]:
    """Move a lot into the folders that the peer watches; returns when, and what tells later when it was opened."""
    moves = [
        (path, folder / path.parent.name / path.name)
        for path in sorted((folder / "waiting").glob(f"*/changes-{number}[-.]*"))
    ]
    watch = Opening([folder / "orders", folder / "users"])
    put_at = time.time()
    for source, target in moves:
        source.rename(target)
    return put_at, lambda: watch.firsts([f"changes-{number}"])[0]
