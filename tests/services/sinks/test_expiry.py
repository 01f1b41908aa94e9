"""Purposes that end, with PostgreSQL behind the app: a captured table, and the views in a sink.

What it is: addresses of customers that are captured from one table, and carried to another.
Invariants: the capture that reads its table again brings nothing back, though the database still has it; the sink's
table has what the view has.
Not here: files and crashes (``tests/spark/test_expiry.py``).
"""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

import headwater as hw
from tests.every_byte import places_with
from tests.services.sinks.places import Servers
from tests.spark.conftest import spark

__all__ = ["spark"]
OLD, NEW = "zq-old-zq", "zq-new-zq"
OF_PARCELS = {"id": hw.Personal("parcel_id"), "address": hw.Personal("parcel_id", by="id", purpose="shipping")}


@pytest.mark.usefixtures("spark")
def test_a_captured_column_ends_in_the_sink_too_and_does_not_come_back(servers: Servers, tmp_path: Path) -> None:
    dsn = servers.postgres.dsn
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("DROP TABLE IF EXISTS parcels")
        db.execute("CREATE TABLE parcels (id INT PRIMARY KEY, address TEXT, at TIMESTAMPTZ NOT NULL)")
        db.execute(f"INSERT INTO parcels VALUES (1, '{OLD}', now() - interval '31 days'), (2, '{NEW}', now())")

    def declared() -> hw.App:
        app = hw.App("post", home=tmp_path / "home")
        source = hw.capture.Postgres(dsn, table="parcels")
        app.table("parcels", source=source, event_time="at", privacy=OF_PARCELS)
        app.view("labels", "SELECT id, address FROM parcels")
        app.sink("labels", hw.sinks.Postgres(dsn, schema="post"))
        return app

    def carried() -> list[tuple[int, str | None]]:
        with psycopg.connect(dsn) as db:
            return db.execute("SELECT id, address FROM post.labels ORDER BY id").fetchall()

    with declared() as app:
        app.capture(until="caught up")
        app.tick()
        assert carried() == [(1, OLD), (2, NEW)]
        app.purpose("shipping", keep="30 days")

        report = app.expire()

        states = {place.place: str(place.state) for place in report.places}
        assert report.complete, str(report)
        assert states.pop("sink labels.postgres") == "not covered"  # its logs and backups
        assert states.pop("databases of parcels") == "impossible"
        assert set(states.values()) == {"done"}, str(report)
        assert carried() == [(1, None), (2, NEW)]
        assert places_with(tmp_path / "home", OLD) == []
        app.captures.restart(app.log)
    with declared() as app, psycopg.connect(dsn, autocommit=True) as db:
        db.execute("UPDATE parcels SET address = address || '!'")
        app.capture(until="caught up")
        app.tick()

        assert carried() == [(1, None), (2, f"{NEW}!")]
        assert all(each.equal for each in app.verify())
        assert app.expire().rows == 0
    assert places_with(tmp_path / "home", OLD) == []
