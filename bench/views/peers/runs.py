"""A peer's run: start it, wait for the base, give it lot after lot, and time each.

What it is: the three peers (Flink SQL with and without mini-batches, Pathway) and ``run``, which measures one.
What is timed: the changes lie on the disk before the clock starts. They are moved into the folder that the peer
watches; the clock starts when the peer first opens one of them, and stops when its answer is the right one. So
start-up, loading the base, and the peer's interval of looking into the folder are not in the figure.
Invariants: a time counts only with the right answer; a peer that cannot be had, ends early, or does not arrive in
time raises ``PeerUnavailable`` with the reason. The process is stopped, by its pid, however this ends.
Not here: the peers' programs (``flink_program.py``, ``pathway_program.py``).
Read next: ``inputs.py``.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.views.memory import peak_of
from bench.views.peers import inputs
from bench.views.shop import Shop
from headwater.bench.servers import PeerUnavailable, die_with_parent, tools_directory

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


def run(peer: Peer, folder: Path, *, orders: int, users: int, lots: list[int]) -> PeerRun:
    """Give the peer a base and lots of these sizes; the first lot warms it up and is not in the result."""
    python = tools_directory() / peer.environment / "bin" / "python"
    if not python.exists():
        raise PeerUnavailable(f"no {python} (run bench/views/setup.sh in a checkout)")
    shop = Shop(orders=orders, users=users)
    inputs.write_base(folder, shop, peer.write)
    answers = [shop.answer()]
    for number, count in enumerate(lots):
        lot = shop.draw(count)
        inputs.write_lot(folder / "waiting", number, lot, peer.write)
        answers.append(shop.answer())
    inputs.write_answers(folder, answers, quarters=peer.quarters)
    with _started([str(python), str(HERE / peer.program), str(folder), *peer.arguments], folder) as process:
        _heard(process, "ready", peer, folder, READY_SECONDS_MAX)
        seconds = []
        for number in range(len(lots)):
            began = _put_lot(folder, number)
            done = _heard(process, "done", peer, folder, LOT_SECONDS_MAX)
            seconds.append(done - began())
        return PeerRun(seconds[1:], peak_of(process.pid))


@contextlib.contextmanager
def _started(command: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The peer's process, in a session of its own with all that it starts; stopped at the end."""
    environment = {**os.environ, "PATHWAY_THREADS": str(os.cpu_count()), "PYTHONUNBUFFERED": "1"}
    environment.pop("PYTHONPATH", None)
    with (folder / "words.txt").open("w") as words:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=words,
            text=True,
            env=environment,
            start_new_session=True,
            # Flink's JVM ends by itself when the Python that started it is gone.
            preexec_fn=die_with_parent if sys.platform == "linux" else None,
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _heard(process: subprocess.Popen[str], said: str, peer: Peer, folder: Path, seconds_max: float) -> float:
    """Wait until the peer says this; when it said so."""
    assert process.stdout is not None
    deadline = time.monotonic() + seconds_max
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([process.stdout], [], [], left)[0]:
            break
        line = process.stdout.readline()
        if not line:
            words = (folder / "words.txt").read_text().strip().splitlines()
            raise PeerUnavailable(f"{peer.title} ended: {words[-1] if words else 'it said nothing'}")
        if line.startswith('{"said"'):
            heard = json.loads(line)
            assert heard["said"] == said
            return float(heard["at"])
    raise PeerUnavailable(f"{peer.title} did not arrive at the right answer in {seconds_max:.0f} s")


def _put_lot(folder: Path, number: int) -> Callable[[], float]:
    """Move a lot into the folders that the peer watches; returns what tells, later, when it began to read it."""
    moves = [
        (path, folder / path.parent.name / path.name)
        for path in sorted((folder / "waiting").glob(f"*/changes-{number}*"))
    ]
    watch = _Opening([folder / "orders", folder / "users"])
    put_at = time.time()
    for source, target in moves:
        source.rename(target)
    return lambda: watch.first(f"changes-{number}") or put_at


class _Opening:
    """When a file was first opened; known on Linux only, elsewhere the clock starts when the files are put there."""

    def __init__(self, folders: list[Path]) -> None:
        self._found: list[tuple[float, str]] = []
        if sys.platform != "linux":
            return
        from inotify_simple import INotify, flags

        self._notify = INotify()
        for folder in folders:
            self._notify.add_watch(folder, flags.OPEN)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        # Read at once: inotify's events carry no time of their own.
        with contextlib.suppress(OSError, ValueError):
            while True:
                for event in self._notify.read():
                    self._found.append((time.time(), event.name))

    def first(self, beginning: str) -> float | None:
        """When the first file whose name begins so was opened."""
        times = [at for at, name in self._found if name.startswith(beginning)]
        if sys.platform == "linux":
            self._notify.close()
        return min(times) if times else None
