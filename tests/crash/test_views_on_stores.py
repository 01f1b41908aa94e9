"""Views whose state is on an object store, killed at every kind of request, and a store that fails under them.

What it is: ticks that die before and after each change of an object, over a folder and over S3; real processes that are
killed with ``kill -9`` at a request of theirs; an S3 server that is killed, slow, or does not answer.
Invariants: as in ``test_views_survive_kill.py``: after each restart the views are what the rows that were sent make of
them, the change feed has no gap and no repeat, and every file that a kept manifest lists is on the store.
Not here: the protocol under every interleaving (``tests/unit/views/state/remote/test_commit_simulation.py``).
Read next: ``test_views_survive_kill.py``, ``tests/services/faulty_proxy.py``.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater as hw
from headwater.errors import ObjectStoreUnavailable
from headwater.objects import remote_store
from headwater.views import thresholds
from headwater.views.lifecycle.views_check import check_views
from headwater.views.state.remote import store_manifests
from tests.app_process import running
from tests.crash.ledger import many
from tests.crash.tick_points import COPIED, REQUESTS, Mortal, Points
from tests.crash.view_shop import Replay, Shop, declare, judge, judge_from_the_beginning
from tests.services.faulty_proxy import FaultyProxy
from tests.services.s3_server import CREDENTIALS, S3Server

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("spark")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    started = S3Server(tmp_path_factory.mktemp("s3"))
    started.start()
    yield started
    started.kill()


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(store_manifests, "CHECKPOINT_COMMITS", 4)


def judge_files(app: hw.App) -> None:
    """Every file that a kept manifest lists is on the store, whatever is here."""
    cache = app._runtime.engine.store.cache
    assert cache is not None
    there = {found.name for found in cache.store.list("runs/")}
    listed = {f"runs/{folder}/{name}" for folder, names in app._runtime.manifests.listed().items() for name in names}
    assert listed <= there


@pytest.mark.parametrize(("kind", "few"), [("folder", True), ("S3", False)], ids=["folder, small runs", "S3, files"])
def test_a_tick_that_dies_at_any_request_to_the_store_leaves_nothing_half_done(
    quick_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch, kind: str, few: bool
) -> None:
    if not few:
        monkeypatch.setattr(thresholds, "SMALL_RUN_BYTES_MAX", 0)
    state = f"file://{quick_path}/state" if kind == "folder" else server.address(f"dies-{few}")
    labels = [label for label in (*REQUESTS, COPIED) if not few or "put" not in label]
    chance = random.Random(2026)
    with declare(quick_path / "home", state) as app:
        shop, replay, mortal = Shop(2026), Replay(), Mortal(app, monkeypatch)
        for number in range(many(len(labels) + 3)):
            shop.trade(app)
            points = Points(crash_on=labels[number % len(labels)])
            if number % (len(labels) + 3) >= len(labels):  # any boundary: files here too
                points = Points(crash_at=chance.randrange(20), power_cut=bool(number % 2))
            mortal.dies(points)
            if chance.random() < 0.3:  # what is here is a copy, and disposable
                for place in app._runtime.folder.glob("*-*/"):
                    shutil.rmtree(place)
            if chance.random() < 0.6:
                app.tick()
                judge(app, shop, replay)
        app.tick()
        judge_from_the_beginning(app, shop)
        judge_files(app)

    assert set(labels) <= set(mortal.deaths)


@pytest.mark.parametrize("number", range(many(1)))
def test_views_are_right_after_a_process_was_killed_at_a_request_of_its_own(
    quick_path: Path, server: S3Server, number: int
) -> None:
    chance = random.Random(number)
    home = quick_path / "home"
    with FaultyProxy(server.port) as proxy, declare(home, server.address(f"k{number}", endpoint=proxy.endpoint)) as app:
        shop, replay = Shop(number), Replay()
        shop.trade(app)
        with running("tests.crash.view_runner", home, app.state, stderr=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline().startswith("tick"), "the app ended by itself"
            left = chance.randrange(6)

            def kill(_method: str, _path: str) -> str | None:
                nonlocal left
                left -= 1
                if left < 0 and child.poll() is None:
                    os.kill(child.pid, signal.SIGKILL)
                    child.wait()
                    return chance.choice(["reset", "answer lost"])  # it reached the server, or it did not
                return None

            proxy.on_request = kill
            while child.poll() is None:
                shop.trade(app)
                child.stdout.readline()
            proxy.on_request = None
            assert child.returncode == -signal.SIGKILL
        app.tick()

        judge(app, shop, replay)
        judge_from_the_beginning(app, shop)
        judge_files(app)


def test_an_app_waits_for_a_store_that_comes_back_and_stops_with_a_sentence_at_one_that_does_not(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = S3Server(tmp_path)
    server.start()
    faults: list[str] = []
    try:
        with FaultyProxy(server.port) as proxy:
            proxy.on_request = lambda _method, _path: faults.pop() if faults else None
            with declare(quick_path / "home", server.address("shop", endpoint=proxy.endpoint)) as app:
                shop, replay = Shop(3), Replay()
                for fault in ("slow down", "503", "answer lost", "reset", "half an answer"):
                    shop.trade(app)
                    faults[:] = [fault] * 3
                    app.tick()
                    judge(app, shop, replay)

                sent: list[str] = []

                def goes_away(method: str, path: str) -> str | None:
                    if method == "PUT" and "/commits/" in path and not sent:
                        sent.append(path)
                        return "answer lost"  # it was committed, and nobody can tell
                    return "503" if sent else None

                shop.trade(app)
                monkeypatch.setattr(remote_store, "RETRY_SECONDS_MAX", 0.5)
                proxy.on_request = goes_away
                with pytest.raises(ObjectStoreUnavailable, match="does not answer: ServiceUnavailable"):
                    app.tick()
                proxy.on_request = None
                before = app._runtime.manifests.tick()
                app.tick()  # nothing is left to do: the tick was committed
                assert app._runtime.manifests.tick() == before + 1
                judge(app, shop, replay)

                server.kill()
                shop.trade(app)
                with pytest.raises(ObjectStoreUnavailable, match="does not answer"):
                    app.tick()
                monkeypatch.setattr(remote_store, "RETRY_SECONDS_MAX", 30.0)
                server.start()
                app.tick()
                judge(app, shop, replay)
                judge_from_the_beginning(app, shop)
                judge_files(app)
                assert check_views(app.log).problems == []
    finally:
        server.kill()


def test_another_process_takes_over_from_one_that_has_stalled(quick_path: Path, server: S3Server) -> None:
    state, shop, replay = server.address("stalled"), Shop(5), Replay()
    with declare(quick_path / "home", state) as app:
        shop.trade(app)
        with running("tests.crash.view_runner", quick_path / "home", state, stderr=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline().startswith("tick")
            os.kill(child.pid, signal.SIGSTOP)
            shop.trade(app)
            app.tick()
            judge(app, shop, replay)
            os.kill(child.pid, signal.SIGCONT)
            shop.trade(app)
            _, said = child.communicate(timeout=120)

        assert 'another process runs app "shop" now' in said
        assert "Traceback" not in said
        app.tick()
        judge_from_the_beginning(app, shop)
