"""``headwater view``, ``query``, ``plan`` and ``run``: what they show and how they refuse, without Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner, Result

from headwater.cli.main import Root
from headwater.cli.views.verify_command import show_differences
from headwater.cli.views.view_commands import mount
from headwater.log.home import Log
from headwater.objects.object_address import ObjectAddress
from headwater.views.lifecycle.verification import Difference
from headwater.views.serving.serving_store import ServingStore, store_path
from headwater.views.state.delta import Delta
from headwater.views.state.manifest import Manifest
from headwater.views.state.remote.remote_state import RemoteState, manifests_of
from headwater.views.state.remote.run_cache import RunCache
from headwater.views.state.trace import Trace
from headwater.views.tick.evaluate import ViewProgress
from headwater.views.tick.reports import TickReport, TickReports

DDL = "country STRING, total BIGINT"

root = typer.Typer(cls=Root, name="headwater")
mount(root)


def call(*words: str) -> Result:
    return CliRunner().invoke(root, list(words))


def error_of(*words: str) -> dict[str, Any]:
    result = call(*words, "--json")
    assert result.exit_code == 2, result.stdout
    found: dict[str, Any] = json.loads(result.stderr)
    return found


def lines_of(*words: str) -> list[dict[str, Any]]:
    result = call(*words, "--json")
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def home(tmp_path: Path) -> str:
    """A home in which app "shop" has done two ticks of view "revenue", one order ahead of them."""
    with Log(tmp_path / "home") as log:
        log.topic("orders", "country STRING, amount BIGINT").append([{"country": "DE", "amount": 1}] * 3)
        run_app(log, "shop")
    return str(tmp_path / "home")


def run_app(log: Log, app: str, state: ObjectAddress | None = None) -> None:
    manifests = manifests_of(log.catalog, app, None if state is None else RemoteState(state, log_id="7f"))
    cache = None if state is None else RunCache(state, log.files)
    epoch = manifests.take_over()
    path = store_path(log.home, app)
    schema = pa.schema([("country", pa.string()), ("total", pa.int64())])
    trace = Trace(path.parent / "revenue-f1", schema, files=log.files, cache=cache)
    with ServingStore(path) as store:
        store.declare("revenue", [("country", "STRING"), ("total", "BIGINT")], ["country"], "f1")
        for tick, rows in enumerate([[("DE", 1, 1)], [("DE", 1, -1), ("DE", 2, 1)]], start=1):
            names = ["country", "total", "_weight"]
            table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
            trace = trace.with_run(trace.write(Delta.local(table), tick=tick, epoch=epoch))
            about = {"columns": DDL, "key": ["country"], "kind": "accumulating", "created_tick": 1, "fingerprint": "f1"}
            entry = {"identity": "f1", "schema": DDL, "runs": [run.to_json() for run in trace.runs]}
            frontier = {"orders": {0: tick}}
            manifests.commit(Manifest(tick, epoch, frontier, 0, {"revenue": entry}, {"revenue": about}))
            store.apply(tick, epoch, frontier, {"revenue": table})


def test_ls_and_describe_say_how_far_a_view_is(home: str) -> None:
    (listed,) = json.loads(call("view", "ls", "--home", home, "--json").stdout)
    described = json.loads(call("view", "describe", "revenue", "--home", home, "--json").stdout)

    assert listed == described
    assert (listed["app"], listed["kind"], listed["tick"], listed["behind"]) == ("shop", "accumulating", 2, 1)
    assert (listed["kept_ticks"], listed["runs"], listed["frontier"]) == ([1, 2], 2, "orders:0=2")
    assert "ticks 1 to 2" in call("view", "describe", "revenue", "--home", home).stdout
    assert "revenue" in call("view", "ls", "--home", home).stdout


def test_state_on_an_object_store_is_fetched_from_there(tmp_path: Path) -> None:
    address = ObjectAddress.parse(f"file://{tmp_path}/state")
    with Log(tmp_path / "home") as log:
        log.topic("orders", "country STRING, amount BIGINT").append([{"country": "DE", "amount": 1}] * 3)
        run_app(log, "shop", address)
    home, copies = str(tmp_path / "home"), tmp_path / "home" / "views" / "shop" / "revenue-f1"
    shutil.rmtree(copies)

    changes = lines_of("view", "changes", "revenue", "--home", home)
    described = call("view", "describe", "revenue", "--home", home).stdout

    assert [row["_change_type"] for row in changes] == ["insert", "update_preimage", "update_postimage"]
    assert len(list(copies.glob("*.parquet"))) == 2
    assert f"file://{tmp_path}/state" in described.replace("\n", "").replace(" ", "")


def test_changes_are_shown_from_a_tick_on(home: str) -> None:
    everything = lines_of("view", "changes", "revenue", "--home", home)
    later = lines_of("view", "changes", "revenue", "--from", "2", "--home", home)

    assert [row["_change_type"] for row in everything] == ["insert", "update_preimage", "update_postimage"]
    assert [(row["total"], row["_commit_version"]) for row in later] == [(1, 2), (2, 2)]
    assert error_of("view", "changes", "revenue", "--from", "9", "--home", home)["code"] == "offset_out_of_range"


def test_a_query_asks_the_serving_store(home: str) -> None:
    assert lines_of("query", "SELECT * FROM revenue", "--home", home) == [{"country": "DE", "total": 2}]
    assert call("query", "SELECT * FROM revenue", "--home", home).stdout == "country  total\nDE           2\n"
    assert "no such table: revenu" in error_of("query", "SELECT * FROM revenu", "--home", home)["message"]


def test_with_several_apps_one_must_be_named(home: str) -> None:
    with Log(home) as log:
        run_app(log, "other")

    unnamed = error_of("query", "SELECT 1", "--home", home)
    either = error_of("view", "describe", "revenue", "--home", home)

    assert "other, shop" in unnamed["hint"]
    assert "other, shop" in either["hint"]
    assert lines_of("query", "SELECT total FROM revenue", "--app", "shop", "--home", home) == [{"total": 2}]
    assert error_of("query", "SELECT 1", "--app", "shoe", "--home", home)["message"].startswith('no app "shoe"')


def test_a_home_without_views_says_so(tmp_path: Path) -> None:
    Log(tmp_path / "home").close()
    home = str(tmp_path / "home")

    assert "no views" in call("view", "ls", "--home", home).stdout
    assert error_of("view", "describe", "revenue", "--home", home)["code"] == "unknown_view"
    assert error_of("query", "SELECT 1", "--home", home)["message"] == "no app has run in this home yet"


SHOP = """
import headwater as hw

app = hw.App("shop", home="{home}")
app.topic("orders", "country STRING, amount BIGINT")
app.view("revenue", "SELECT country, sum(amount) AS total FROM orders GROUP BY country")
if __name__ == "__main__":
    app.run()
"""


def test_a_plan_shows_kinds_inputs_and_lines_without_starting_spark(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(SHOP.format(home=tmp_path / "home"))

    plan = json.loads(call("plan", str(file), "--no-types", "--json").stdout)
    stages = json.loads(call("explain", str(file), "revenue", "--no-types", "--json").stdout)["stages"]

    (view,) = plan["views"]
    assert (view["kind"], view["reads"], view["key"]) == ("accumulating", ["orders"], ["country"])
    assert view["declared_at"].endswith("shop.py:6")
    assert [column["name"] for column in view["columns"]] == ["country", "total"]
    assert plan["inputs"] == [{"name": "orders", "key": [], "schema": "country STRING, amount BIGINT"}]
    assert stages[-1]["name"] == "revenue"
    assert "the groups touched" in call("explain", str(file), "revenue", "--no-types").stdout
    assert error_of("explain", str(file), "revenu", "--no-types")["code"] == "unknown_view"


def test_a_plan_tells_how_many_queries_of_the_last_ticks_were_planned(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(SHOP.format(home=tmp_path / "home"))
    before = call("plan", str(file), "--no-types")
    with Log(tmp_path / "home") as log:
        for tick, reused in ((1, 0), (2, 3)):
            report = TickReport(tick, 7, 0.25, (ViewProgress("revenue", 3, 10, 3, 0.125, reused, 2),))
            TickReports(log.catalog, "shop").save(report, 0)

    plan = json.loads(call("plan", str(file), "--no-types", "--json").stdout)
    after = call("plan", str(file), "--no-types")

    assert plan["views"][0]["plans"] == {"ticks": 2, "reused": 3, "made": 3, "jobs": 2}
    assert "Spark quer" not in before.stderr
    counted = "6 Spark queries in the last 2 ticks, 3 with a reused plan, 3 planned; 4 on the driver, 2 as jobs"
    assert f"revenue: {counted}" in after.stderr.splitlines()


def test_a_plan_names_what_is_computed_whole_with_its_cost_and_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    middle = "SELECT percentile(amount, 0.5) AS middle FROM orders"
    file.write_text(
        SHOP.format(home=tmp_path / "home").replace("if __name__", f'app.view("m", "{middle}")\nif __name__')
    )
    before = call("plan", str(file), "--no-types")
    with Log(tmp_path / "home") as log:
        for tick, read in ((1, 12_000), (2, 12_345), (3, 13_000)):
            report = TickReport(tick, 7, 0.25, (ViewProgress("m", 1, read, 1, 0.125, 1, 1),))
            TickReports(log.catalog, "shop").save(report, 0)

    revenue, whole = json.loads(call("plan", str(file), "--no-types", "--json").stdout)["views"]
    after = call("plan", str(file), "--no-types")

    reason = "aggregates that take every row"
    assert (revenue["whole"], revenue["rows_read"]) == ([], None)
    assert whole["whole"] == [{"stage": "m", "reads": ["orders"], "reason": reason}]
    assert f"m reads all of orders at each change: {reason}" in before.stderr.splitlines()
    cost = "12,345 rows in an ordinary tick of the view"
    assert f"m reads all of orders at each change ({cost}): {reason}" in after.stderr.splitlines()
    assert f"m reads all of orders at each change: {reason}" in call("explain", str(file), "m", "--no-types").stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = (", "is not Python"),
        ("import headwater\n\n1 / 0\n", "shop.py:3 failed: ZeroDivisionError"),
        ("import headwater\n", "declares no App"),
        ("import headwater as hw\na, b = hw.App('a'), hw.App('b')\n", "declares 2 Apps"),
    ],
)
def test_a_wrong_app_file_is_told_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "shop.py"
    file.write_text(text)

    error = error_of("run", str(file))

    assert words in error["message"]
    assert "there is no file" in error_of("run", str(tmp_path / "shoe.py"))["message"]


def test_verify_shows_the_first_differences(capsys: pytest.CaptureFixture[str]) -> None:
    equal = Difference("revenue", 7, 1200)
    other = Difference("orders", 7, 3, [{"country": "DE"}], [], missing_count=4)
    chosen = Difference("daily", 7, 30, open_columns=["latest", "users"], open_count=2)

    show_differences([equal, other, chosen])

    assert capsys.readouterr().out.splitlines() == [
        "revenue: 1,200 rows at tick 7, as the log gives them",
        "orders: at tick 7, 4 rows are missing and 0 are too many",
        "  missing: {'country': 'DE'}",
        "daily: 30 rows at tick 7, as the log gives them",
        "  in 2 of them SQL leaves open what latest, users is",
    ]
