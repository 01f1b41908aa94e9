"""State on a real S3 server: the contract, the race, and what a server that fails is told as."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.errors import DiskFull, ObjectStoreRefused, ObjectStoreUnavailable
from headwater.objects import remote_store, s3_store
from headwater.objects.object_address import ObjectAddress
from headwater.objects.object_store import ObjectStore
from headwater.objects.s3_store import S3ObjectStore
from tests.services.faulty_proxy import FaultyProxy
from tests.services.s3_server import BUCKET, CREDENTIALS, S3Server
from tests.unit.objects.store_conformance import PROMISES, race


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    started = S3Server(tmp_path_factory.mktemp("s3"))
    started.start()
    yield started
    started.stop()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def store(server: S3Server, request: pytest.FixtureRequest) -> ObjectStore:
    return S3ObjectStore(BUCKET, f"tests/{request.node.name}", endpoint=server.endpoint)


def test_of_sixteen_writers_of_one_name_exactly_one_wins(server: S3Server) -> None:
    stores = [S3ObjectStore(BUCKET, "race", endpoint=server.endpoint) for _ in range(16)]

    assert race(stores, 1_000) == {1: 1_000}


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_s3_keeps_the_contract(
    store: ObjectStore, promise: Callable[[ObjectStore, Path], None], tmp_path: Path
) -> None:
    promise(store, tmp_path)


def test_a_server_that_is_killed_and_comes_back_is_waited_for(tmp_path: Path) -> None:
    server = S3Server(tmp_path)
    server.start()
    store = S3ObjectStore(BUCKET, "shop", endpoint=server.endpoint)
    store.put("a", b"one")

    server.kill()
    server.start()
    again = store.get("a")
    server.kill()

    assert again == b"one"


BEFORE = ("503", "slow down", "reset", "silence")
AFTER = ("answer lost", "half an answer", "silence after it took effect")


@pytest.mark.parametrize("fault", [*BEFORE, *AFTER])
def test_a_request_that_fails_once_is_repeated(
    server: S3Server, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = "silence" in fault
    if silent:  # elsewhere a busy machine may take longer than that for a request, which would be repeated too
        monkeypatch.setattr(s3_store, "REQUEST_SECONDS_MAX", 3)
    path, prefix = tmp_path / "file", f"faults/{fault.replace(' ', '-')}"
    path.write_bytes(b"x" * 100_000)
    with FaultyProxy(server.port) as proxy:
        store = S3ObjectStore(BUCKET, prefix, endpoint=proxy.endpoint)
        proxy.faults = [fault]
        created = store.create("a", b"one")
        proxy.faults = [fault]
        store.put("b", path)
        proxy.faults = [fault]
        found = store.get("b")
        asked = proxy.requests

    assert found == path.read_bytes()
    assert created is (fault in BEFORE)  # it was ours in any case: whoever needs to know compares
    assert asked >= 3 * 2 if silent else asked == 3 * 2
    assert S3ObjectStore(BUCKET, prefix, endpoint=server.endpoint).get("a") == b"one"


def test_a_server_that_does_not_answer_for_long_is_told_in_a_sentence(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_store, "RETRY_SECONDS_MAX", 0.3)
    with FaultyProxy(server.port) as proxy:
        store = S3ObjectStore(BUCKET, "shop", endpoint=proxy.endpoint)
        proxy.faults = ["slow down"] * 50
        with pytest.raises(ObjectStoreUnavailable) as slow:
            store.get("a")
        proxy.faults = ["reset"] * 50
        with pytest.raises(ObjectStoreUnavailable) as gone:
            store.create("a", b"")

    assert str(slow.value).splitlines()[0] == f"s3://lake/shop at {proxy.endpoint} does not answer: SlowDown"
    assert "Run it again when the store is there again" in str(gone.value)


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        ("full", DiskFull, "no space is left at {store} (InsufficientStorage)"),
        ("forbidden", ObjectStoreRefused, "{store} forbids it: ticks/1 (AccessDenied)"),
        ("not implemented", ObjectStoreRefused, "{store} refuses the request: NotImplemented"),
    ],
)
def test_what_a_server_refuses_is_told_at_once(server: S3Server, fault: str, kind: type[Exception], said: str) -> None:
    with FaultyProxy(server.port) as proxy:
        store = S3ObjectStore(BUCKET, "shop", endpoint=proxy.endpoint)
        proxy.faults = [fault]
        with pytest.raises(kind) as error:
            store.create("ticks/1", b"one")

    assert str(error.value).splitlines()[0] == said.format(store=store.shown)
    assert proxy.requests == 1


def test_wrong_credentials_and_a_missing_bucket_are_told_at_once(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = ObjectAddress.parse(server.address("shop", bucket="pond")).open()
    with pytest.raises(ObjectStoreRefused, match='there is no bucket "pond"'):
        missing.get("a")
    with pytest.raises(ObjectStoreRefused, match='there is no bucket "pond"'):
        missing.create("a", b"one")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(ObjectStoreRefused) as wrong:
        S3ObjectStore(BUCKET, "shop", endpoint=server.endpoint).list("ticks/")

    assert "does not take the credentials (SignatureDoesNotMatch)" in str(wrong.value)
    assert "wrong" not in str(wrong.value)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(ObjectStoreRefused, match="there are no credentials for s3://"):
        ObjectAddress.parse(server.address("shop")).open()
