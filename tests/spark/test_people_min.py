"""Groups of fewer people than ``people_min`` are not shown, whatever comes and goes: in rows, feed and history."""

from __future__ import annotations

import os
import random
from collections import defaultdict
from pathlib import Path

import pytest

import headwater as hw

PEOPLE = 3
TICKS = 6 * int(os.environ.get("HEADWATER_THOROUGH", "1"))


@pytest.mark.usefixtures("spark")
def test_a_group_is_shown_while_it_has_enough_people(tmp_path: Path) -> None:
    chance = random.Random(7)
    with hw.App("shop", home=tmp_path / "home") as app:
        users = app.table(
            "users", "id BIGINT, country STRING, age INT", key="id", privacy={"id": hw.Personal("user_id")}
        )
        orders = app.table(
            "orders", "id BIGINT, user_id BIGINT, cents BIGINT", key="id", privacy={"user_id": hw.Personal("user_id")}
        )
        spent = app.view(
            "spent",
            "SELECT u.country, count(*) AS orders, sum(o.cents) AS cents FROM orders o "
            "JOIN users u ON o.user_id = u.id GROUP BY u.country HAVING sum(o.cents) > 0 OR count(*) > 1",
            people_min=PEOPLE,
        )
        known: dict[int, str] = {}
        bought: dict[int, tuple[int, int]] = {}
        shown: set[int] = set()
        for _ in range(TICKS):
            for id in chance.sample(range(12), 4):
                known[id] = chance.choice(["DE", "FR", "AT"])
            users.upsert([{"id": id, "country": country} for id, country in known.items()])
            for id in chance.sample(range(20), 6):
                if id in bought and chance.random() < 0.6:
                    del bought[id]
                    orders.delete([{"id": id}])
                else:
                    bought[id] = (chance.randrange(12), chance.randrange(100))
            orders.upsert([{"id": id, "user_id": user, "cents": cents} for id, (user, cents) in bought.items()])
            app.tick()

            rows = {row["country"]: (row["orders"], row["cents"]) for row in spent.rows()}

            groups: dict[str, list[tuple[int, int]]] = defaultdict(list)
            for user, cents in bought.values():
                if user in known:
                    groups[known[user]].append((user, cents))
            enough = {
                country: (len(found), sum(cents for _, cents in found))
                for country, found in groups.items()
                if len({user for user, _ in found}) >= PEOPLE and (sum(c for _, c in found) > 0 or len(found) > 1)
            }
            assert rows == enough
            assert {row["country"] for row in spent.history(app._runtime.manifests.tick()).to_pylist()} == set(enough)
            shown |= {len(enough)}
        assert len(shown) > 1  # groups came and went
        assert spent.verify().equal
