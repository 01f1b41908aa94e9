"""A paused view is told of wherever somebody looks, and the server stays ready for the others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.views.tick.pausing import Pause
from tests.services.server.conftest import declared
from tests.services.server.processes import ServerProcess
from tests.services.server.ticks_by_hand import HandTicks

ERROR = {
    "code": "view_failed",
    "message": 'view "revenue" cannot be computed',
    "detail": "DIVIDE_BY_ZERO",
    "hint": None,
}


@pytest.fixture
def paused(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server whose view is paused since its second tick."""
    with declared(tmp_path / "home") as log:
        ticks = HandTicks(log)
        ticks.commit({"DE": 1})
        pause = Pause(1, 1_000_000, {"orders": {0: 1, 1: 0}}, {"orders": {0: 2, 1: 0}}, "f", ("revenue",), ERROR)
        ticks.commit(paused={"revenue": pause.to_json()})
        server = ServerProcess(log.home)
        yield server
        server.stop()
        ticks.close()


def test_a_paused_view_is_marked_everywhere_and_a_token_beyond_it_is_refused_at_once(paused: ServerProcess) -> None:
    ready = paused.get("/health/ready", 503)  # nobody runs this app; that a view is paused is no reason
    assert (len(ready["reasons"]), ready["paused"]) == (1, ["revenue"])
    status = paused.get("/v1/status")
    (view,) = [each for each in status["views"] if each["name"] == "revenue"]
    assert (view["state"], view["tick"], view["paused"]["because"]) == ("paused", 1, ["revenue"])
    assert view["paused"]["reason"] == 'view "revenue" cannot be computed: DIVIDE_BY_ZERO'
    assert [sink["view_paused"] for sink in status["sinks"]] == [True]
    assert paused.get("/v1/views/revenue")["state"] == "paused"
    metrics = paused.http.get("/metrics").text
    assert 'headwater_view_paused{view="revenue"} 1' in metrics
    assert 'headwater_view_paused{view="large"} 0' in metrics

    rows = paused.get("/v1/views/revenue/rows")
    assert (rows["tick"], rows["paused"], rows["rows"]) == (1, True, [{"country": "DE", "total": 1}])
    assert paused.get("/v1/views/revenue/rows?at_least=orders:0=1")["tick"] == 1
    refused = paused.get("/v1/views/revenue/rows?at_least=orders:0=2&wait=30", status=409)["error"]
    assert refused["code"] == "view_paused"
    assert refused["message"].startswith('view "revenue" is paused since 1970-01-01T00:00:01.000Z')
    asked = {"sql": "SELECT * FROM revenue", "at_least": "orders:0=2"}
    assert paused.ask("POST", "/v1/query", 409, json=asked)["error"]["code"] == "view_paused"

    with paused.http.stream("GET", "/v1/views/revenue/subscribe") as answer:
        data = next(line for line in answer.iter_lines() if line.startswith("data:"))
    told = json.loads(data.removeprefix("data:"))
    assert (told["type"], told["paused"]["tick"]) == ("snapshot", 1)
