"""Transactions, request ids and conditions over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.log.home import Log
from headwater.log.table import declare_table
from headwater.log.topic import Topic
from tests.services.server.processes import ServerProcess


@pytest.fixture
def orders(log: Log, request: pytest.FixtureRequest) -> Topic:
    return log.topic(f"orders-{abs(hash(request.node.name)) % 10_000}", "id BIGINT", ordered_by="id", partitions=2)


def operations(topic: Topic, stock: str, number: int) -> dict[str, Any]:
    return {
        "operations": [
            {"topic": topic.name, "append": [{"id": number}, {"id": number + 1}]},
            {"table": stock, "upsert": [{"item": "cup", "amount": number}]},
        ]
    }


def test_a_transaction_is_written_whole_and_recognised_when_it_is_repeated(
    server: ServerProcess, log: Log, orders: Topic
) -> None:
    stock = declare_table(log, f"stock-of-{orders.name}", "item STRING, amount BIGINT", key="item")
    headers = {"Idempotency-Key": f"order 1 of {orders.name}"}

    first = server.post("/v1/transactions", operations(orders, stock.name, 1), headers=headers)
    again = server.post("/v1/transactions", operations(orders, stock.name, 1), headers=headers)
    other = server.post("/v1/transactions", operations(orders, stock.name, 2), headers=headers, status=409)

    assert (first["repeated"], again["repeated"], again["token"]) == (False, True, first["token"])
    assert other["error"]["code"] == "request_conflict"
    assert sorted(row["id"] for row in orders.rows()) == [1, 2]
    assert list(stock.rows()) == [{"item": "cup", "amount": 1}]


def test_one_bad_row_refuses_all_of_a_transaction(server: ServerProcess, orders: Topic) -> None:
    asked = {
        "operations": [{"topic": orders.name, "append": [{"id": 1}]}, {"topic": orders.name, "append": [{"id": "x"}]}]
    }
    refused = server.post("/v1/transactions", asked, status=400)
    unknown = server.post("/v1/transactions", {"operations": [{"table": "no", "append": []}]}, status=400)

    assert refused["error"]["message"].startswith("operation 1 (counted from 0): ")
    assert "names a topic and rows to append" in unknown["error"]["message"]
    assert list(orders.rows()) == []


def test_appends_have_ids_and_conditions(server: ServerProcess, orders: Topic) -> None:
    path = f"/v1/topics/{orders.name}/records"
    headers = {"Idempotency-Key": "first"}

    assert not server.post(f"{path}?expected=none", [{"id": 7}], headers=headers)["repeated"]
    assert server.post(f"{path}?expected=none", [{"id": 7}], headers=headers)["repeated"]
    late = server.post(f"{path}?expected=0", [{"id": 7}], status=409)
    server.post(f"{path}?expected=1", [{"id": 7}])

    assert (late["error"]["code"], late["error"]["data"]["version"]) == ("version_conflict", 1)
    assert [row["id"] for row in orders.rows()] == [7, 7]


def test_headers_say_who_did_it(server: ServerProcess, log: Log, orders: Topic) -> None:
    stock = declare_table(log, f"stock-of-{orders.name}", "item STRING, amount BIGINT", key="item")
    bag = declare_table(log, f"bag-of-{orders.name}", "item STRING")
    said = {"Headwater-Actor": "anna", "Headwater-Correlation-Id": "basket-7"}

    server.post(f"/v1/topics/{orders.name}/records", [{"id": 7}], headers=said)
    server.post("/v1/transactions", operations(orders, stock.name, 1), headers=said)
    server.post(f"/v1/tables/{stock.name}/rows", [{"item": "pot", "amount": 1}], headers=said)
    server.post(f"/v1/tables/{stock.name}/delete", [{"item": "pot"}], headers=said)
    server.post(f"/v1/tables/{bag.name}/rows", [{"item": "pot"}], headers=said)
    server.post(f"/v1/topics/{orders.name}/records", [{"id": 8}])

    answer = server.get(f"/v1/topics/{orders.name}/records")["rows"]
    assert {row["id"]: row["_actor"] for row in answer} == {7: "anna", 1: "anna", 2: "anna", 8: None}
    assert {row["_correlation_id"] for row in answer if row["id"] != 8} == {"basket-7"}
    assert not any("_causation_id" in row for row in answer)
    assert [row["_actor"] for row in stock.topic.rows(columns=["_actor"])] == ["anna"] * 3
    assert [row["_actor"] for row in bag.topic.rows(columns=["_actor"])] == ["anna"]
    assert server.post(f"/v1/topics/{orders.name}/records", [], headers={"Headwater-Actor": "x" * 1001}, status=400)


def test_offsets_are_committed_with_the_rows_or_not_at_all(server: ServerProcess, log: Log, orders: Topic) -> None:
    bills = log.topic(f"bills-of-{orders.name}", "id BIGINT")
    source = log.topic(f"source-of-{orders.name}", "id BIGINT")
    source.append([{"id": 1}, {"id": 2}])
    joined = server.post(f"/v1/topics/{source.name}/groups/billing/consumers", {"member": "till"}, status=201)
    batch = server.post(f"/v1/consumers/{joined['consumer']}/poll", {"wait": 10})
    done = {"consumer": joined["consumer"], "commit": {"0": batch["next_offset"]}}

    def bill(rows: list[dict[str, Any]], status: int = 200) -> Any:
        asked = {"operations": [{"topic": bills.name, "append": rows}, done]}
        return server.post("/v1/transactions", asked, status=status)

    bad = bill([{"id": "x"}], status=400)
    before = source.group("billing").lag()
    bill([{"id": row["id"]} for row in batch["rows"]])
    after = source.group("billing").lag()
    source.append([{"id": 3}])
    server.post(f"/v1/topics/{source.name}/groups/billing/consumers", {"member": "till"}, status=201)  # a namesake
    fenced = bill([{"id": 3}], status=409)

    assert bad["error"]["message"].startswith("operation 0")
    assert (before, after) == ({0: 2}, {0: 0})
    assert fenced["error"]["code"] == "fenced"
    assert [row["id"] for row in bills.rows()] == [1, 2]


def test_rows_of_a_bag_are_taken_away_in_a_transaction(server: ServerProcess, log: Log, orders: Topic) -> None:
    bag = declare_table(log, f"bag-of-{orders.name}", "item STRING")
    bag.insert([{"item": "cup"}])
    asked = {
        "operations": [{"table": bag.name, "delete": [{"item": "cup"}]}, {"topic": orders.name, "append": [{"id": 1}]}]
    }

    server.post("/v1/transactions", asked)
    refused = server.post("/v1/transactions", asked, status=400)

    assert "is not in table" in refused["error"]["message"]
    assert (list(bag.rows()), [row["id"] for row in orders.rows()]) == ([], [1])
