"""Peers of the benchmark: what they are given they give back, and no server outlives its measurement."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from bench.log.order_rows import Rows
from bench.log.peers import PEERS, Mode, Reading
from bench.peer_servers import PeerUnavailable, running
from headwater.testing.local_server import free_port

_SECONDS_MAX = 30.0


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_gives_back_what_it_was_given(name: str, tmp_path: Path) -> None:
    rows = Rows(count=2_500)
    peer = PEERS[name]()

    readings: list[tuple[Mode, float, Reading]] = []
    try:
        peer.setup(tmp_path)  # make test has brought every peer: one that is missing is a failure
        for mode in peer.modes:
            seconds = peer.append(rows, mode)
            readings.append((mode, seconds, peer.read_all(check=True)))
    finally:
        peer.teardown()

    for mode, seconds, reading in readings:
        assert seconds > 0
        assert reading.rows == rows.count
        assert reading.checksum == rows.checksum or (mode.given == "dicts" and reading.checksum is None)
    assert list(tmp_path.iterdir()) == []


def test_a_server_is_stopped_when_its_block_raises(tmp_path: Path) -> None:
    before = set(psutil.Process().children())
    started: set[psutil.Process] = set()

    def work() -> None:
        with _server(tmp_path):
            started.update(set(psutil.Process().children()) - before)
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        work()

    assert len(started) == 1
    assert not any(server.is_running() for server in started)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_does_not_start_is_unavailable_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no luck today')"]

    with pytest.raises(PeerUnavailable, match="luckless did not start: no luck today"):
        running("luckless", command, directory=tmp_path, ready=lambda: False).__enter__()

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_server_outlives_the_benchmark_however_it_ends(ending: signal.Signals, tmp_path: Path) -> None:
    program = f"""
        import pathlib, signal, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from bench import log_bench
        from test_bench_peers import _server
        log_bench.Ending().listen()
        with _server(pathlib.Path({str(tmp_path)!r})):
            print("running", flush=True)
            signal.pause()
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    benchmark = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert benchmark.stdout is not None
    assert benchmark.stdout.readline().strip() == "running"
    servers = psutil.Process(benchmark.pid).children()

    benchmark.send_signal(ending)
    benchmark.communicate(timeout=_SECONDS_MAX)

    assert len(servers) == 1
    deadline = time.monotonic() + _SECONDS_MAX
    while servers[0].is_running() and servers[0].status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the server lives on"
        time.sleep(0.02)


def _server(directory: Path) -> contextlib.AbstractContextManager[None]:
    """A real server that is on every machine."""
    port = free_port()

    def ready() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        return False

    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    return running("http", command, directory=directory, ready=ready)


def test_a_signal_that_python_swallowed_still_ends_the_benchmark() -> None:
    program = """
        import os, signal, weakref
        from bench import log_bench

        class Thing: ...

        ending = log_bench.Ending()
        ending.listen()
        thing = Thing()
        reference = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGTERM))
        del thing
        print("swallowed", flush=True)
        ending.check()
        print("went on", flush=True)
    """

    found = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)

    assert found.stdout.split() == ["swallowed"]
    assert found.returncode == 128 + signal.SIGTERM
