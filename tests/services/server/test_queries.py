"""Queries and views over HTTP: one tick, nothing changed, bounded in time and rows."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
import pytest

from headwater.views.tick.evaluate import ViewProgress
from headwater.views.tick.reports import TickReport, TickReports
from tests.services.server.processes import ServerProcess
from tests.services.server.ticks_by_hand import HandTicks
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def rows(ticks: HandTicks) -> dict[str, int]:
    if "IT" not in ticks.rows:
        ticks.commit({"DE": 10, "FR": 20, "IT": 30})
    return ticks.rows


def ask(server: ServerProcess, sql: str, status: int = 200, **more: Any) -> Any:
    return server.post("/v1/query", {"sql": sql, **more}, status=status)


def test_a_query_answers_as_of_one_tick(server: ServerProcess, ticks: HandTicks) -> None:
    answer = ask(server, "SELECT country, total FROM revenue WHERE total > ? ORDER BY total", params=[15])

    assert answer["rows"] == [{"country": "FR", "total": 20}, {"country": "IT", "total": 30}]
    assert (answer["tick"], answer["truncated"], answer["count"]) == (ticks.manifests.tick(), False, 2)
    assert answer["columns"][1] == {"name": "total", "type": "int64"}


def test_rows_are_capped_and_that_is_said(server: ServerProcess) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"

    answer = ask(server, endless, limit=5)

    assert ([row["x"] for row in answer["rows"]], answer["truncated"]) == ([1, 2, 3, 4, 5], True)


def test_a_query_that_takes_too_long_is_ended_and_others_do_not_wait_for_it(server: ServerProcess) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    found: list[Any] = []
    asking = threading.Thread(target=lambda: found.append(ask(server, endless, status=504, timeout=2)))
    asking.start()

    while asking.is_alive() and not found:
        assert ask(server, "SELECT 1 AS one")["rows"] == [{"one": 1}]
        assert server.get("/v1/views/revenue/rows?key=DE")["rows"]
    asking.join()

    assert found[0]["error"]["code"] == "timed_out"


NOT_READS = [
    "DELETE FROM revenue",
    "UPDATE revenue SET total = 0",
    "INSERT INTO revenue VALUES ('X', 1)",
    "DROP VIEW revenue",
    "CREATE TABLE x (y)",
    "PRAGMA journal_mode = DELETE",
    "ATTACH '/etc/passwd' AS p",
    "VACUUM",
    "BEGIN",
    "COMMIT",
    "SELECT 1; DROP VIEW revenue",
    "DELETE FROM revenue RETURNING *",
    "WITH x AS (SELECT 1) DELETE FROM revenue",
    "EXPLAIN SELECT 1",
    "SELECT load_extension('x')",
    "",
    "   ",
    "--",
    "/*",
    "SELECT",
    "\x00",
    "SELECT 1 \x00",
    "SELECT '\ud800'",
    "SELECT * FROM no_such",
    "SELECT " + "(" * 5000,
    "SELECT ?",
    "SELECT writefile('x', 'y')",
    "REINDEX",
    "SELECT CAST(x'ff' AS TEXT)",
]


@pytest.mark.parametrize("sql", NOT_READS, ids=[str(place) for place in range(len(NOT_READS))])
def test_what_is_not_one_select_is_refused_and_changes_nothing(
    server: ServerProcess, ticks: HandTicks, sql: str
) -> None:
    answer = server.http.post("/v1/query", content=json.dumps({"sql": sql}))

    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] in ("misuse", "invalid_query")
    assert {
        row["country"]: row["total"] for row in ticks.store.query("SELECT * FROM revenue").to_pylist()
    } == ticks.rows


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"sql": 7},
        {"sql": "SELECT 1", "timeout": -1},
        {"sql": "SELECT 1", "engine": "duck"},
        {"sql": "SELECT ?", "params": [[1]]},
        {"sql": "SELECT ?", "params": [2**70]},
        {"sql": "SELECT :x", "params": {"y": 1}},
        {"sql": "SELECT 1", "at_least": "nonsense"},
    ],
)
def test_a_question_that_makes_no_sense_is_refused(server: ServerProcess, body: dict[str, Any]) -> None:
    answer = server.post("/v1/query", body, status=400)

    assert answer["error"]["code"] in ("misuse", "invalid_declaration")


def test_spark_is_not_asked_where_there_is_no_engine(server: ServerProcess) -> None:
    assert ask(server, "SELECT 1", status=503, engine="spark")["error"]["code"] == "engine_unavailable"


def test_a_query_waits_for_what_was_written(server: ServerProcess, ticks: HandTicks) -> None:
    tick = ticks.manifests.tick() + 1
    found: list[Any] = []
    asking = threading.Thread(
        target=lambda: found.append(
            ask(server, "SELECT total FROM revenue WHERE country = 'NEW'", at_least=f"orders:0={tick}")
        )
    )
    asking.start()

    ticks.commit({"NEW": 1})
    asking.join(60)

    assert found[0]["rows"] == [{"total": 1}]
    late = ask(server, "SELECT 1", status=504, at_least="orders:0=999999", timeout="200ms")
    assert late["error"]["code"] == "not_yet_covered"
    assert ask(server, "SELECT 1 AS one", at_least="clicks:0=999999")["rows"], "no view reads clicks"


def test_rows_by_key_and_by_columns(server: ServerProcess, ticks: HandTicks) -> None:
    by_key = server.get("/v1/views/revenue/rows?key=DE")
    by_column = server.get("/v1/views/revenue/rows", params={"where": '{"total": 30}'})

    assert by_key == {
        "view": "revenue",
        "tick": ticks.manifests.tick(),
        "truncated": False,
        "rows": [{"country": "DE", "total": 10}],
    }
    assert by_column["rows"] == [{"country": "IT", "total": 30}]
    assert server.get("/v1/views/revenue/rows?key=nowhere")["rows"] == []
    assert server.get("/v1/views/revenue/rows?limit=1")["truncated"] is True
    for wrong in ("key=a&key=b", "where=7", "where={", 'where={"no": 1}', 'where={"total": "x"}', "limit=0"):
        assert "code" in server.get(f"/v1/views/revenue/rows?{wrong}", status=400)["error"]
    assert server.get("/v1/views/large/rows?key=1", status=400)["error"]["code"] == "misuse"


def test_changes_and_history_tick_by_tick(server: ServerProcess, ticks: HandTicks) -> None:
    before = ticks.manifests.tick()
    ticks.commit({"DE": 11})
    ticks.commit()
    ticks.commit({"DE": 10})

    answer = server.get(f"/v1/views/revenue/changes?from_tick={before + 1}")

    assert [each["tick"] for each in answer["ticks"]] == [before + 1, before + 3]
    assert [change["total"] for change in answer["ticks"][0]["changes"]] == [10, 11]
    assert answer["next_tick"] == before + 4
    assert server.get(f"/v1/views/revenue/changes?from_tick={before + 4}")["ticks"] == []
    assert (
        server.get(f"/v1/views/revenue/changes?from_tick={before + 99}", status=416)["error"]["code"]
        == "offset_out_of_range"
    )
    past = server.get(f"/v1/views/revenue/history?tick={before + 1}")["rows"]
    assert {row["country"]: row["total"] for row in past} == ticks.past[before + 1]
    assert server.get("/v1/views/revenue/history?tick=999999", status=416)["error"]["code"] == "offset_out_of_range"


def test_the_graph_the_status_and_the_metrics_tell_of_everything(server: ServerProcess, ticks: HandTicks) -> None:
    report = TickReport(ticks.commit(), 7, 0.5, (ViewProgress("revenue", 3, 10, 5, 0.25, 4),))
    TickReports(ticks.manifests.catalog, "shop").save(report, 0)
    graph, status = server.get("/v1/app"), server.get("/v1/status")
    metrics = server.http.get("/metrics").text

    edges = {(edge["from"], edge["to"]) for edge in graph["edges"]}
    assert {("table:orders", "view:revenue"), ("view:revenue", "sink:revenue.search")} <= edges
    ids = {node["id"] for node in graph["nodes"]}
    assert {end for edge in edges for end in edge} <= ids
    assert status["tick"]["tick"] == ticks.manifests.tick()

    def counted() -> bool:  # rows are counted more seldom than they are asked for
        views = {view["name"]: view for view in server.get("/v1/status")["views"]}
        return bool(views["revenue"]["rows"] == len(ticks.rows))

    eventually(counted)
    assert f"headwater_tick {ticks.manifests.tick()}" in metrics
    assert 'headwater_view_rows{view="revenue"}' in metrics
    assert 'headwater_view_tick_queries{view="revenue",plan="reused"} 4' in metrics
    assert 'headwater_view_tick_queries{view="revenue",plan="made"} 1' in metrics
    assert server.get("/v1/views/revenue")["sql"].startswith("SELECT country")
    assert server.get("/v1/search/revenue.search?q=de", status=503)["error"]["code"] == "unavailable"
    assert server.get("/v1/search/nothing?q=de", status=404)["error"]["code"] == "unknown_sink"


def test_events_bring_the_status_after_a_tick(server: ServerProcess, ticks: HandTicks) -> None:
    with httpx.stream("GET", f"{server.address}/v1/events", timeout=20) as answer:
        lines = (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: "))
        first = next(lines)["tick"]["tick"]
        wanted = ticks.commit({"DE": 10})
        told = next(status["tick"]["tick"] for status in lines if status["tick"]["tick"] >= wanted)

    assert first < told == wanted
