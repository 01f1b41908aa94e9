"""State on a real HDFS: the contract, the race, what fails, and an app whose home is lost."""

from __future__ import annotations

import getpass
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater as hw
from headwater.errors import DiskFull, ObjectStoreRefused, ObjectStoreUnavailable
from headwater.objects import remote_store, webhdfs_store
from headwater.objects.webhdfs_store import TEMPORARY, WebHdfsStore
from tests.services.faulty_proxy import FaultyProxy
from tests.services.hdfs_server import HdfsServer
from tests.unit.objects.store_conformance import PROMISES, race


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    started = HdfsServer(tmp_path_factory.mktemp("hdfs"))
    started.start()
    yield started
    started.stop(immediate=True)


def test_hdfs_keeps_the_contract(server: HdfsServer, tmp_path: Path) -> None:
    for promise in PROMISES:
        store = WebHdfsStore(server.server, f"contract/{promise.__name__}")

        promise(store, tmp_path)

        assert store.list(f"{TEMPORARY}/") == []


def test_of_sixteen_writers_of_one_name_exactly_one_wins(server: HdfsServer) -> None:
    stores = [WebHdfsStore(server.server, "race") for _ in range(16)]

    assert race(stores, 12) == {1: 12}
    assert stores[0].list(f"{TEMPORARY}/") == []


@pytest.mark.parametrize("fault", ["503", "reset", "silence", "answer lost", "half an answer"])
def test_a_request_that_fails_once_is_repeated(server: HdfsServer, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhdfs_store, "REQUEST_SECONDS_MAX", 2)
    prefix = f"faults/{fault.replace(' ', '-')}"
    with FaultyProxy(server.port) as proxy:
        store = WebHdfsStore(proxy.endpoint.removeprefix("http://"), prefix)
        for name, write in (("runs/a", store.create), ("runs/b", store.put)):
            # The first rename that is asked for, which is what a commit is.
            faults = iter([fault])
            proxy.on_request = lambda _, path, faults=faults: next(faults, None) if "op=RENAME" in path else None
            write(name, name.encode())
        proxy.on_request, proxy.faults = None, [fault]
        found = store.get("runs/b")

    plain = WebHdfsStore(server.server, prefix)
    assert (found, plain.get("runs/a"), plain.get("runs/b")) == (b"runs/b", b"runs/a", b"runs/b")
    assert [entry.name for entry in plain.list("runs/")] == ["runs/a", "runs/b"]
    assert plain.list(f"{TEMPORARY}/") == []


def test_what_is_in_the_way_is_told_in_a_sentence(server: HdfsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.ask("PUT", "/closed", "MKDIRS", permission="700")
    server.ask("PUT", "/small", "MKDIRS")
    server.ask("PUT", "/small", "SETPERMISSION", permission="777")
    server.ask("PUT", "/small", "SETQUOTA", namespacequota="2", storagespacequota="1000000")
    with pytest.raises(ObjectStoreRefused) as refused:
        WebHdfsStore(server.server, "closed").create("ticks/1", b"one")
    with pytest.raises(DiskFull) as full:
        WebHdfsStore(server.server, "small").create("ticks/1", b"one")
    monkeypatch.setattr(remote_store, "RETRY_SECONDS_MAX", 0.3)
    with pytest.raises(ObjectStoreUnavailable) as away:
        WebHdfsStore("127.0.0.1:1", "shop").get("ticks/1")

    address = f"webhdfs://{server.server}"
    assert refused.value.message == f"{address}/closed forbids it to {getpass.getuser()}: ticks/1"
    assert full.value.message == f"no space is left at {address}/small: a quota is used up"
    assert away.value.message == "webhdfs://127.0.0.1:1/shop does not answer"


def test_an_app_goes_on_when_namenode_and_copies_are_lost(tmp_path: Path) -> None:
    with HdfsServer(tmp_path / "hdfs") as server:
        for number in (1, 2):
            with hw.App("shop", home=tmp_path / "home", state=f"webhdfs://{server.server}/lake/shop") as app:
                orders = app.table("orders", "id BIGINT, country STRING, amount DOUBLE", key="id")
                revenue = app.view("revenue", "SELECT country, sum(amount) AS amount FROM orders GROUP BY country")
                orders.upsert([{"id": row, "country": "DE", "amount": 1.0} for row in range(20_000 * number)])

                app.tick()

                assert revenue.get("DE") == [{"country": "DE", "amount": 20_000.0 * number}]
                assert not any(each.missing_count or each.surplus_count for each in app.verify())
            if number == 1:
                shutil.rmtree(tmp_path / "home" / "views" / "shop")
                server.restart(immediate=True)
        stored = server.ask("GET", "/lake/shop", "GETCONTENTSUMMARY")["ContentSummary"]

    assert stored["fileCount"] > 2  # a commit for each tick, and rows
