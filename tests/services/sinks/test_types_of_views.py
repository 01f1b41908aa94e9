"""Types and values that no topic takes and a view can hold: lengths of time, VOID, years before 1 and after 9999."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwater.log.home import Log
from headwater.sinks import Delta, Parquet, Postgres, Topic
from headwater.sinks.runner.sink_status import SinkState
from headwater.sinks.runner.sink_task import SinkTask
from headwater.sinks.sink import Sink
from tests.services.sinks.places import PLACES, Servers
from tests.services.sinks.synthetic import SyntheticView, bag_of

SCHEMA = "id BIGINT, length INTERVAL DAY TO SECOND, nothing VOID, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ"
LONG_AGO_US, FAR_US, FAR_DAY = -70_000_000_000_000_000, 400_000_000_000_000_000, 3_000_000
DAY = dt.timedelta(days=1)
FIRST = [
    {"id": 1, "length": -DAY - dt.timedelta(microseconds=1), "day": FAR_DAY, "at": FAR_US, "local": LONG_AGO_US},
    {"id": 2, "length": 2 * DAY, "day": -800_000, "at": LONG_AGO_US, "local": FAR_US},
    {"id": 3},
]
THEN = [{"id": 1, "length": dt.timedelta(0), "day": -719_163, "at": LONG_AGO_US, "local": None}, {"id": 4}]


def two_ticks(sink: Sink, log: Log, **options: Any) -> tuple[SyntheticView, SinkTask]:
    view = SyntheticView(SCHEMA, **options)
    task = SinkTask("copy", "the view", "app", sink, view, log)
    for add, remove in ((FIRST, []), (THEN, FIRST[1:2] if view.key else FIRST[:2])):
        view.change(add, remove)
        status = task.catch_up()
        assert status.state is SinkState.FOLLOWING, status.error
    task.close()
    return view, task


@pytest.mark.parametrize("key", [("id",), ()], ids=["key", "bag"])
@pytest.mark.parametrize("name", ["sqlite", "redis hash", "redis json", "parquet", "search", "kafka", "webhook"])
def test_they_arrive_as_they_were(
    name: str, key: tuple[str, ...], tmp_path: Path, servers: Servers, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    place = PLACES[name](tmp_path, servers)

    view, _ = two_ticks(place.sink, log, key=key)

    assert bag_of(place.read(view)) == view.bag()
    assert "takes a full copy" not in caplog.text


@pytest.mark.parametrize("key", [("length", "day"), ()], ids=["key", "bag"])
def test_postgresql_has_its_own_words_for_them(key: tuple[str, ...], servers: Servers, log: Log) -> None:
    schema = f"s{uuid.uuid4().hex[:8]}"

    two_ticks(Postgres(servers.postgres.dsn, schema=schema), log, key=key)

    with psycopg.connect(servers.postgres.dsn) as db:
        db.execute("SET timezone = 'UTC'")
        names = ("length", "nothing", "day", "at", "local")
        texts = ", ".join(f"{name}::text" for name in names)
        rows = db.execute(f'SELECT id, {texts} FROM "{schema}"."the view" ORDER BY id, day').fetchall()
        kinds = db.execute(
            "SELECT data_type FROM information_schema.columns WHERE table_schema = %s AND column_name = ANY(%s)"
            " AND table_name = 'the view' ORDER BY ordinal_position",
            (schema, list(names)),
        ).fetchall()
    assert [kind for (kind,) in kinds] == [
        "interval",
        "text",
        "date",
        "timestamp with time zone",
        "timestamp without time zone",
    ]
    changed = (1, "00:00:00", None, "0001-12-31 BC", "0250-10-15 19:33:20+00 BC", None)
    before = (1, "-1 days -00:00:00.000001", None, "10183-09-21", "14645-06-30 15:06:40+00", "0250-10-15 19:33:20 BC")
    nothing = (None,) * 5
    if key:  # of which id 3 and id 4 have the same, and the latter came last
        assert rows == [changed, before, (4, *nothing)]
    else:
        assert rows == [changed, (3, *nothing), (4, *nothing)]


def test_parquet_is_partitioned_by_whatever_is_no_nested_value(tmp_path: Path, log: Log) -> None:
    for number, columns in enumerate((["length"], ["day", "nothing"], ["at"], ["local", "id"])):
        sink = Parquet(tmp_path / str(number), partition_by=columns)
        view, _ = two_ticks(sink, log)
        assert bag_of(sink.read().cast(view.schema)) == view.bag(), columns

    view = SyntheticView("id BIGINT, x DOUBLE")
    task = SinkTask("copy", "the view", "app", Parquet(tmp_path / "doubles", partition_by=["x"]), view, log)
    view.change([{"id": n, "x": x} for n, x in enumerate((math.nan, 0.0, -0.0, None, math.inf))])
    task.catch_up()
    view.change([{"id": 0, "x": -0.0}, {"id": 1, "x": math.nan}, {"id": 2, "x": None}])
    assert task.catch_up().state is SinkState.FOLLOWING
    assert bag_of(Parquet(tmp_path / "doubles").read().cast(view.schema)) == view.bag()


@pytest.mark.parametrize(
    ("sink", "columns", "says"),
    [
        (Topic("changes"), SCHEMA, 'column "length" has the Arrow type duration[us]'),
        (Delta("{}/delta"), SCHEMA, 'Delta has no type for column "length" of view "the view": INTERVAL DAY TO SECOND'),
        (
            Parquet("{}/parquet", partition_by=["parts"]),
            "id BIGINT, parts ARRAY<INT>",
            'view "the view" cannot be partitioned by "parts": ARRAY<INT> is no name of a folder',
        ),
    ],
)
def test_what_cannot_be_held_is_refused_by_name_before_anything_is_written(
    sink: Sink, columns: str, says: str, tmp_path: Path, log: Log
) -> None:
    if hasattr(sink, "path"):
        object.__setattr__(sink, "path", str(sink.path).format(tmp_path))
    view = SyntheticView(columns)
    view.change([{"id": 1}])

    status = SinkTask("copy", "the view", "app", sink, view, log).catch_up()

    assert status.state is SinkState.STOPPED
    assert status.error is not None
    assert status.error["message"].startswith(says)
    assert status.error["hint"]
    assert not list(tmp_path.glob("delta")) + list(tmp_path.glob("parquet"))
