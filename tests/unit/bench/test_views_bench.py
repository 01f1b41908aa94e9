"""The views' benchmark: its data is right, its files say the same to every peer, its bars point the right way."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from bench.views.peers import inputs
from bench.views.scale import Lines, Scale
from bench.views.shop import Answer, Shop


def answer_of(orders: dict[int, tuple[int, float]], users: dict[int, str]) -> Answer:
    """The slow and obvious way."""
    found: Answer = {}
    for user, amount in orders.values():
        revenue, count = found.get(users[user], (0.0, 0))
        found[users[user]] = (revenue + amount, count + 1)
    return found


def test_a_lot_has_the_shares_it_promises_and_every_key_once() -> None:
    shop = Shop(orders=10_000, users=1_000)

    lot = shop.draw(1_000)

    assert (lot.put.num_rows, lot.put_before.num_rows, lot.deleted.num_rows, lot.moved.num_rows) == (750, 250, 150, 100)
    keys = lot.put["order_id"].to_pylist() + lot.deleted["order_id"].to_pylist()
    assert len(set(keys)) == len(keys)
    assert len(set(lot.moved["id"].to_pylist())) == 100


def test_the_same_seed_gives_the_same_shop() -> None:
    one, other = Shop(orders=500, users=50), Shop(orders=500, users=50)

    assert one.draw(100) == other.draw(100)
    assert one.answer() == other.answer()


def test_more_keys_than_there_are_is_told() -> None:
    shop = Shop(orders=100, users=10)

    with pytest.raises(ValueError, match="different keys"):
        shop.draw(1_000)


def test_the_csv_that_pathway_reads_leads_to_the_answer(tmp_path: Path) -> None:
    shop = Shop(orders=500, users=50)
    inputs.write_base(tmp_path, shop, inputs.write_csv)
    inputs.write_lot(tmp_path, 0, shop.draw(100), inputs.write_csv)

    orders: dict[int, tuple[int, float]] = {}
    users: dict[int, str] = {}
    for name in ("base", "changes-0"):
        for row in csv.DictReader((tmp_path / "orders" / f"{name}.csv").open()):
            if row["is_upsert"] == "true":
                orders[int(row["order_id"])] = (int(row["user_id"]), int(row["amount"]) / inputs.QUARTERS)
            else:
                del orders[int(row["order_id"])]
        for row in csv.DictReader((tmp_path / "users" / f"{name}.csv").open()):
            users[int(row["user"])] = row["country"]

    assert answer_of(orders, users) == shop.answer()


def test_the_envelopes_that_flink_reads_lead_to_the_answer_and_name_what_they_replace(tmp_path: Path) -> None:
    shop = Shop(orders=500, users=50)
    inputs.write_base(tmp_path, shop, inputs.write_debezium)
    inputs.write_lot(tmp_path, 0, shop.draw(100), inputs.write_debezium)

    tables: dict[str, dict[int, dict]] = {"orders": {}, "users": {}}
    for name, rows in tables.items():
        for path in sorted((tmp_path / name).iterdir()):  # "base" sorts before "changes"
            for envelope in map(json.loads, path.read_text().splitlines()):
                before, after = envelope["before"], envelope["after"]
                key = next(iter((before or after).values()))
                assert rows.get(key) == before
                assert envelope["op"] == ("c" if before is None else "u" if after else "d")
                rows.pop(key, None)
                if after:
                    rows[key] = after

    orders = {key: (row["user_id"], row["amount"]) for key, row in tables["orders"].items()}
    users = {key: row["country"] for key, row in tables["users"].items()}
    assert answer_of(orders, users) == shop.answer()


def test_a_bar_points_the_right_way() -> None:
    lines = Lines()

    lines.at_most("latency", 3.0, 2.5)
    lines.at_least("gain", 3.0, 2.5)
    lines.missing("Flink SQL", "no Java")

    assert [line.holds for line in lines.measurements] == [False, True, False]


def test_a_smaller_run_keeps_enough_keys_for_its_largest_lot() -> None:
    for scale in (Scale(), Scale().divided(20), Scale().divided(100)):
        users_moving = max(scale.lots) * 0.1

        assert users_moving <= scale.latency_orders / 10
        assert max(scale.rates) * scale.large_orders * 0.4 <= scale.large_orders
