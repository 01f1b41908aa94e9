"""Topics and tables over HTTP: what goes in is in the log, and what is not right changes nothing."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from headwater.log.home import Log
from headwater.server.routes.topic_routes import BRIEF_BYTES
from tests.services.server.processes import ServerProcess


def ends(log: Log, topic: str) -> dict[int, int]:
    return log.get_topic(topic).end_offsets()


def arrow(rows: list[dict[str, Any]], schema: pa.Schema) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, schema) as stream:
        stream.write_table(pa.Table.from_pylist(rows, schema))
    return out.getvalue()


def test_rows_come_in_as_json_lines_and_arrow_and_go_out_again(server: ServerProcess, log: Log) -> None:
    schema = log.get_topic("clicks").schema
    before = server.get("/v1/topics/clicks/records?from=latest")["next"]

    one = server.post("/v1/topics/clicks/records", {"url": "/a", "at": "2026-01-31T10:00:00Z", "price": 9.90})
    server.post("/v1/topics/clicks/records", [{"url": "/b"}, {"url": "/c"}])
    lines = b'{"url": "/d", "price": 0.1}\n{"url": "/e"}\n'
    server.ask("POST", "/v1/topics/clicks/records", content=lines, headers={"content-type": "application/x-ndjson"})
    sent = arrow([{"url": "/f"}], schema)
    kind = "application/vnd.apache.arrow.stream"
    server.ask("POST", "/v1/topics/clicks/records", content=sent, headers={"content-type": kind})

    assert one["token"].startswith("clicks:")
    answer = server.get("/v1/topics/clicks/records", params={"from": before, "limit": 10})
    assert {row["url"] for row in answer["rows"]} == {f"/{letter}" for letter in "abcdef"}
    first = next(row for row in answer["rows"] if row["url"] == "/a")
    assert (first["price"], first["at"]) == (9.90, "2026-01-31T10:00:00Z")
    as_lines = server.http.get(
        "/v1/topics/clicks/records", params={"from": before}, headers={"accept": "application/x-ndjson"}
    )
    assert len(as_lines.text.splitlines()) == 6
    as_arrow = server.http.get("/v1/topics/clicks/records", params={"from": before}, headers={"accept": kind})
    with pa.ipc.open_stream(as_arrow.content) as stream:
        assert stream.read_all().num_rows == 6


def test_many_append_at_once_to_topics_that_wait_for_the_disk_and_to_others(server: ServerProcess, log: Log) -> None:
    durable = log.topic("ledger", "entry BIGINT", fsync="always")
    relaxed = log.topic("traces", "entry BIGINT")
    large = "x" * BRIEF_BYTES
    text = log.topic("texts", "entry BIGINT, text STRING")

    def append(number: int) -> list[str]:
        sent = [
            server.post("/v1/topics/ledger/records", {"entry": number}),
            server.post("/v1/topics/traces/records", {"entry": number}),
            server.post("/v1/topics/texts/records", {"entry": number, "text": large}),
        ]
        return [answer["token"] for answer in sent]

    with ThreadPoolExecutor(8) as clients:
        tokens = list(clients.map(append, range(80)))

    for place, topic in enumerate((durable, relaxed, text)):
        assert sorted(row["entry"] for row in topic.rows()) == list(range(80))
        assert {each[place] for each in tokens} == {f"{topic.name}:0={number}" for number in range(1, 81)}


def test_reading_goes_on_from_the_token_and_no_partition_waits_for_another(server: ServerProcess, log: Log) -> None:
    orders = log.get_topic("orders")
    orders.append([{"order_id": number, "country": "DE", "amount": 1} for number in range(50)])

    seen, place = [], "earliest"
    while True:
        answer = server.get("/v1/topics/orders/records", params={"from": place, "limit": 7})
        if not answer["rows"]:
            break
        seen += [(row["_partition"], row["_offset"]) for row in answer["rows"]]
        place = answer["next"]

    assert len(seen) == len(set(seen)) == sum(orders.end_offsets().values())
    assert {partition for partition, _ in seen[:7]} == {0, 1}
    assert all(earlier < later for one in (0, 1) for earlier, later in pairwise([o for p, o in seen if p == one]))
    last = server.get("/v1/topics/orders/records?from=-3")["rows"]
    assert len(last) == 6
    assert {row["_offset"] for row in last if row["_partition"] == 0} == set(range(orders.end_offsets()[0])[-3:])


def test_a_reader_that_waits_is_woken(server: ServerProcess, log: Log) -> None:
    import threading

    place = server.get("/v1/topics/clicks/records?from=latest")["next"]
    found: list[Any] = []
    asking = threading.Thread(
        target=lambda: found.append(server.get("/v1/topics/clicks/records", params={"from": place, "wait": 30}))
    )
    asking.start()

    log.get_topic("clicks").append([{"url": "/woken"}])
    asking.join(60)

    assert [row["url"] for row in found[0]["rows"]] == ["/woken"]


def test_an_append_that_is_tried_again_is_written_once(server: ServerProcess, log: Log) -> None:
    headers = {"headwater-producer": "importer", "headwater-sequence": "7"}
    before = sum(ends(log, "clicks").values())

    first = server.post("/v1/topics/clicks/records", {"url": "/once"}, headers=headers)
    again = server.post("/v1/topics/clicks/records", {"url": "/once"}, headers=headers)

    assert first == again
    assert sum(ends(log, "clicks").values()) == before + 1


def test_a_table_takes_rows_and_lets_them_go(server: ServerProcess, log: Log) -> None:
    server.post("/v1/tables/orders/rows", [{"order_id": 900, "country": "IT", "amount": 5}])
    server.post("/v1/tables/orders/delete", {"order_id": 900})
    server.post("/v1/tables/basket/rows", [{"fruit": "apple"}, {"fruit": "apple"}])
    server.post("/v1/tables/basket/delete", {"fruit": "apple"})

    rows = [row for row in log.get_topic("orders").rows(columns=["order_id", "_deleted"]) if row["order_id"] == 900]
    assert [row["_deleted"] for row in rows] == [False, True]
    assert sum(row["_weight"] for row in log.get_topic("basket").rows()) == 1
    refused = server.post("/v1/tables/basket/delete", {"fruit": "pear"}, status=400)
    assert refused["error"]["code"] == "row_refused"


WRONG = [
    (b'{"order_id": "x"}', "application/json", 400, "row_refused"),
    (b'{"order_id": 1, "no_such": 2}', "application/json", 400, "row_refused"),
    (b'[{"order_id": 1}, {"order_id": null}]', "application/json", 400, "row_refused"),
    (b"[1, 2]", "application/json", 400, "row_refused"),
    (b'{"order_id": 1', "application/json", 400, "row_refused"),
    (b'{"order_id": NaN}', "application/json", 400, "row_refused"),
    (b'{"order_id": 1, "order_id": 2}', "application/json", 400, "row_refused"),
    (b'{"order_id": 1, "country": "\\ud800"}', "application/json", 400, "row_refused"),
    (b"\xff\xfe", "application/json", 400, "row_refused"),
    (b"[" * 100_000, "application/json", 400, "row_refused"),
    (b'{"order_id": 1}\nno', "application/x-ndjson", 400, "row_refused"),
    (b"ARROW1 but not really", "application/vnd.apache.arrow.stream", 400, "row_refused"),
    (b"", "application/vnd.apache.arrow.stream", 400, "row_refused"),
    (b"order_id=1", "application/x-www-form-urlencoded", 400, "misuse"),
]


@pytest.mark.parametrize(("body", "kind", "status", "code"), WRONG, ids=[str(place) for place in range(len(WRONG))])
def test_a_body_that_is_not_right_is_refused_and_changes_nothing(
    server: ServerProcess, log: Log, body: bytes, kind: str, status: int, code: str
) -> None:
    before = ends(log, "orders")

    answer = server.ask("POST", "/v1/topics/orders/records", status, content=body, headers={"content-type": kind})

    assert answer["error"]["code"] == code
    assert set(answer["error"]) == {"code", "message", "detail", "hint", "data"}
    assert ends(log, "orders") == before


def test_headwaters_own_topics_are_not_written_from_outside(server: ServerProcess, log: Log) -> None:
    log.topic("_alerts", "message STRING")

    refused = server.post("/v1/topics/_alerts/records", {"message": "x"}, status=403)

    assert refused["error"]["code"] == "forbidden"
    assert ends(log, "_alerts") == {0: 0}


@pytest.mark.parametrize(
    "name", ["..", "../orders", "%2e%2e%2forders", "orders%00", "orders/../../x", "no_such", ".hidden", "a" * 300, "Ω"]
)
def test_a_name_is_a_name_and_never_a_path(server: ServerProcess, log: Log, name: str) -> None:
    files = sorted(str(path) for path in log.home.rglob("*") if "views" not in path.parts)

    for answer in (
        server.http.post(f"/v1/topics/{name}/records", json={"x": 1}),
        server.http.get(f"/v1/topics/{name}"),
        server.http.get(f"/v1/topics/{name}/records"),
    ):
        assert answer.status_code in (400, 404, 405), answer.text
        assert answer.json()["error"]["code"] in ("unknown_topic", "unknown_path", "invalid_declaration"), (
            answer.request.url,
            answer.text,
        )

    assert sorted(str(path) for path in log.home.rglob("*") if "views" not in path.parts) == files


def test_a_place_that_is_none_is_told(server: ServerProcess) -> None:
    assert server.get("/v1/topics/orders/records?from=soon", status=400)["error"]["code"] == "invalid_declaration"
    assert server.get("/v1/topics/orders/records?from=99999", status=416)["error"]["code"] == "offset_out_of_range"
    assert server.get("/v1/topics/orders/records?limit=0", status=400)["error"]["code"] == "misuse"
    assert server.get("/v1/topics/orders/records?partition=7", status=400)["error"]["code"] == "invalid_declaration"
