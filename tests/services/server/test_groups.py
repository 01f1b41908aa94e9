"""Groups over HTTP: the log's guarantees hold, also when answers are lost and clients die."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from headwater.log.groups.readers import write_app_positions
from headwater.log.home import Log
from headwater.log.topic import Topic
from tests.services.server.processes import ServerProcess
from tests.waiting import eventually


@pytest.fixture
def jobs(log: Log, request: pytest.FixtureRequest) -> Topic:
    topic = log.topic(f"jobs-{abs(hash(request.node.name)) % 10_000}", "id BIGINT", partitions=2)
    topic.append([{"id": number} for number in range(0, 10)])
    topic.append([{"id": number} for number in range(10, 20)])
    return topic


def join(server: ServerProcess, topic: Topic, group: str = "g", **options: Any) -> dict[str, Any]:
    return server.post(f"/v1/topics/{topic.name}/groups/{group}/consumers", options, status=201)


def poll(server: ServerProcess, consumer: str, **options: Any) -> dict[str, Any]:
    return server.post(f"/v1/consumers/{consumer}/poll", options)


def test_a_consumer_gets_every_row_and_a_lost_answer_is_given_again(server: ServerProcess, jobs: Topic) -> None:
    consumer = join(server, jobs, rows_max=4)["consumer"]
    seen: list[int] = []
    received = None

    for _ in range(100):
        lost = poll(server, consumer, received=received)
        again = poll(server, consumer, received=received)  # the first answer never arrived
        assert (lost["number"], lost["rows"]) == (again["number"], again["rows"])
        if not again["rows"]:
            break
        seen += [row["id"] for row in again["rows"]]
        server.post(f"/v1/consumers/{consumer}/commit", {"offsets": {again["partition"]: again["next_offset"]}})
        received = again["number"]

    assert sorted(seen) == list(range(20))
    assert server.get(f"/v1/topics/{jobs.name}/groups/g")["lag_total"] == 0


def test_a_client_that_dies_loses_its_partitions_and_a_zombie_cannot_commit(server: ServerProcess, jobs: Topic) -> None:
    dead = join(server, jobs, member="one", session_timeout="1 second")["consumer"]
    batch = poll(server, dead)

    other = join(server, jobs)["consumer"]
    seen: Counter[int] = Counter()
    received = None

    def all_seen() -> bool:
        nonlocal received
        came = poll(server, other, received=received)
        received = came["number"]
        seen.update(row["id"] for row in came["rows"])
        return len(seen) == 20

    eventually(all_seen)

    refused = server.post(
        f"/v1/consumers/{dead}/commit", {"offsets": {batch["partition"]: batch["next_offset"]}}, status=409
    )
    assert refused["error"]["code"] == "fenced"
    assert set(seen.values()) == {1}


def test_a_namesake_takes_the_place_at_once(server: ServerProcess, jobs: Topic) -> None:
    first = join(server, jobs, member="same")["consumer"]
    batch = poll(server, first)
    second = join(server, jobs, member="same")

    refused = server.post(
        f"/v1/consumers/{first}/commit", {"offsets": {batch["partition"]: batch["next_offset"]}}, status=409
    )

    assert refused["error"]["code"] == "fenced"
    assert second["assignment"] == [0, 1]


def test_leaving_hands_over_and_what_is_not_known_is_told(server: ServerProcess, jobs: Topic) -> None:
    consumer = join(server, jobs)["consumer"]

    server.ask("DELETE", f"/v1/consumers/{consumer}")

    assert server.post(f"/v1/consumers/{consumer}/poll", {}, status=409)["error"]["code"] == "fenced"
    assert server.get(f"/v1/topics/{jobs.name}/groups/none", status=404)["error"]["code"] == "unknown_group"
    assert join(server, jobs)["assignment"] == [0, 1]
    wrong = server.post(f"/v1/topics/{jobs.name}/groups/..x/consumers", {}, status=400)
    assert wrong["error"]["code"] == "invalid_declaration"


def take(server: ServerProcess, topic: Topic, **options: Any) -> list[dict[str, Any]]:
    return server.post(f"/v1/topics/{topic.name}/groups/workers/take", options)["messages"]


def answer(
    server: ServerProcess, topic: Topic, verb: str, *taken: dict[str, Any], status: int = 200, **more: Any
) -> Any:
    body = {"handles": [message["handle"] for message in taken], **more}
    return server.post(f"/v1/topics/{topic.name}/groups/workers/{verb}", body, status=status)


def test_messages_are_taken_once_given_back_and_given_up(server: ServerProcess, jobs: Topic, log: Log) -> None:
    taken = take(server, jobs, count=20)
    assert sorted(message["row"]["id"] for message in taken) == list(range(20))
    assert take(server, jobs, count=20) == []

    done, back, bad = taken[:17], taken[17:19], taken[19]
    answer(server, jobs, "ack", *done)
    answer(server, jobs, "ack", *done, status=409)
    answer(server, jobs, "nack", *back)
    answer(server, jobs, "nack", bad, reject="no such job")

    again = take(server, jobs, count=20)
    assert {message["row"]["id"] for message in again} == {message["row"]["id"] for message in back}
    assert {message["deliveries"] for message in again} == {2}
    answer(server, jobs, "ack", *again)
    dead = list(log.get_topic(f"{jobs.name}.workers.dead").rows())
    assert [(row["offset"], row["reason"]) for row in dead] == [(bad["offset"], "no such job")]
    about = server.get(f"/v1/topics/{jobs.name}/groups/workers")
    assert (about["lag_total"], about["in_flight"], about["dead_letters"]) == (0, 0, 1)


def test_a_lease_that_ends_gives_the_message_to_another_and_the_old_handle_is_worth_nothing(
    server: ServerProcess, jobs: Topic
) -> None:
    old = take(server, jobs, count=1, lease="100ms")[0]
    kept = take(server, jobs, count=1, lease=0.1)[0]
    answer(server, jobs, "extend", kept, lease=600)

    again = eventually(
        lambda: [
            each
            for each in take(server, jobs, count=20, lease=600, wait=1)
            if each["offset"] == old["offset"] and each["partition"] == old["partition"]
        ]
    )[0]

    assert again["deliveries"] >= 2
    assert answer(server, jobs, "ack", old, status=409)["error"]["code"] == "lease_lost"
    answer(server, jobs, "ack", again)
    answer(server, jobs, "ack", kept)


@pytest.mark.parametrize("handle", ["", "x", "W10=", "WzEsMiwzXQ==", "é", "WzAsMCwxLDEsInMiLC01XQ=="])
def test_a_handle_that_is_none_is_refused(server: ServerProcess, jobs: Topic, handle: str) -> None:
    take(server, jobs, count=1)

    for verb in ("ack", "nack", "extend"):
        refused = server.post(f"/v1/topics/{jobs.name}/groups/workers/{verb}", {"handles": [handle]}, status=400)
        assert refused["error"]["code"] == "misuse"


def test_a_group_is_deleted_by_an_admin(server: ServerProcess, jobs: Topic) -> None:
    joined = join(server, jobs)["consumer"]

    refused = server.ask("DELETE", f"/v1/topics/{jobs.name}/groups/g", 409)
    deleted = server.ask("DELETE", f"/v1/topics/{jobs.name}/groups/g", 200, params={"force": "true"})
    unknown = server.ask("DELETE", f"/v1/topics/{jobs.name}/groups/g", 404)

    assert refused["error"]["code"] == "conflict"
    assert deleted == {"deleted": True}
    assert unknown["error"]["code"] == "unknown_group"
    assert server.post(f"/v1/consumers/{joined}/poll", {}, status=409)["error"]["code"] == "fenced"


def test_the_lag_of_groups_apps_and_sinks_is_told(server: ServerProcess, jobs: Topic) -> None:
    jobs.consumer("slow").close()

    found = server.get("/v1/lag", params={"topic": jobs.name})
    metrics = server.http.get("/metrics").text

    assert [(each["reader"], each["kind"], each["lag"]) for each in found["readers"]] == [("slow", "consumer", 20)]
    assert f'headwater_reader_lag_rows{{topic="{jobs.name}",reader="slow",reader_kind="consumer"}} 20' in metrics


def test_an_app_that_is_gone_is_forgotten(server: ServerProcess, jobs: Topic, log: Log) -> None:
    with log.catalog.write() as db:
        write_app_positions(db, "gone", {jobs.id: {0: 3, 1: 4}}, 0)

    listed = server.get("/v1/lag", params={"topic": jobs.name})["readers"]
    forgotten = server.ask("DELETE", "/v1/apps/gone/positions", 200)

    assert [(each["reader"], each["kind"], each["lag"]) for each in listed] == [("gone", "app", 13)]
    assert forgotten == {"forgotten": [jobs.name]}
    assert server.ask("DELETE", "/v1/apps/gone/positions", 404)["error"]["code"] == "unknown_app"


def test_a_message_is_given_back_for_later_and_dead_letters_are_put_back(server: ServerProcess, jobs: Topic) -> None:
    prefix = f"/v1/topics/{jobs.name}/groups/work"
    first, second = server.post(f"{prefix}/take", {"count": 2})["messages"]

    server.post(f"{prefix}/nack", {"handles": [first["handle"]], "delay": 3600})
    server.post(f"{prefix}/nack", {"handles": [second["handle"]], "reject": "down"})
    about = server.get(prefix)
    back = server.post(f"{prefix}/redrive", {})
    again = server.post(f"{prefix}/take", {"count": 1})["messages"]

    assert (about["delayed"], about["dead_letters"]) == (1, 1)
    assert back == {"topic": jobs.name, "group": "work", "redriven": 1, "gone": 0, "left": 0}
    assert [(each["offset"], each["deliveries"]) for each in again] == [(second["offset"], 1)]


def test_a_queue_in_order_is_taken_over_http_too(server: ServerProcess, log: Log) -> None:
    topic = log.topic("steps", "id BIGINT, account STRING")
    topic.append([{"id": n, "account": "ab"[n % 2]} for n in range(4)])
    prefix = "/v1/topics/steps/groups/ordered"

    held = server.post(f"{prefix}/take", {"count": 10, "ordered_by": ["account"]})["messages"]
    none = server.post(f"{prefix}/take", {"count": 10})["messages"]
    server.post(f"{prefix}/ack", {"handles": [held[0]["handle"]]})
    after = server.post(f"{prefix}/take", {"count": 10})["messages"]

    assert [each["row"]["id"] for each in held] == [0, 1]
    assert none == []
    assert [each["row"]["id"] for each in after] == [2]
