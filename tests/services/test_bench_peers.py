"""Peers of the benchmark: what they are given they give back, and no server outlives its measurement."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from headwater.bench.peers import PEERS
from headwater.bench.servers import PeerUnavailable, redis_server
from headwater.bench.shape import Rows

_SECONDS_MAX = 30.0


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_gives_back_what_it_was_given(name: str, tmp_path: Path) -> None:
    rows = Rows(count=2_500)
    peer = PEERS[name]()

    try:
        try:
            peer.setup(tmp_path)
        except PeerUnavailable as error:
            pytest.skip(str(error))
        readings = []
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
    before = {child.pid for child in psutil.Process().children()}
    started: set[int] = set()

    with pytest.raises(RuntimeError, match="in the middle"):
        _run_redis_and_fail(tmp_path, before, started)

    assert len(started) == 1
    assert not any(psutil.pid_exists(pid) for pid in started)


def _run_redis_and_fail(directory: Path, before: set[int], started: set[int]) -> None:
    try:
        with redis_server(directory):
            started |= {child.pid for child in psutil.Process().children()} - before
            raise RuntimeError("in the middle")
    except PeerUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_server_outlives_the_benchmark_however_it_ends(ending: signal.Signals, tmp_path: Path) -> None:
    program = textwrap.dedent(
        f"""
        import pathlib, signal, sys, time
        from headwater.bench import log_bench
        from headwater.bench.servers import PeerUnavailable, redis_server
        signal.signal(signal.SIGTERM, log_bench._interrupt)
        try:
            with redis_server(pathlib.Path({str(tmp_path)!r})):
                print("running", flush=True)
                time.sleep(600)
        except PeerUnavailable as error:
            print(error, flush=True)
        """
    )
    benchmark = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert benchmark.stdout is not None
    said = benchmark.stdout.readline().strip()
    if said != "running":
        benchmark.wait(_SECONDS_MAX)
        pytest.skip(said)
    servers = psutil.Process(benchmark.pid).children()

    benchmark.send_signal(ending)
    benchmark.wait(_SECONDS_MAX)

    assert len(servers) == 1
    deadline = time.monotonic() + _SECONDS_MAX
    while servers[0].is_running() and servers[0].status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the server lives on"
        time.sleep(0.02)
