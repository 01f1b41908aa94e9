"""Stores of every kind with the same odd rows, an app they are attached to, and one Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headwater as hw
from headwater.testing.mariadb_server import MariadbServer
from headwater.testing.postgres_server import PostgresServer
from tests.services.federation import odd_rows
from tests.spark.conftest import spark  # noqa: F401

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARIADB = {"character_set_server": "utf8mb4"}


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariadbServer]:
    with MariadbServer(**MARIADB) as server:
        server.execute("CREATE DATABASE IF NOT EXISTS shop")
        yield server


@pytest.fixture(scope="session")
def shop(
    spark: SparkSession,  # noqa: F811
    postgres: PostgresServer,
    mariadb: MariadbServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[hw.App]:
    """An app with a table of its own, and every kind of store attached. ``odd`` is in each of them."""
    del spark
    folder = tmp_path_factory.mktemp("federation")
    with hw.App("shop", home=folder / "home") as app:
        own = app.table("own", "k BIGINT, label STRING", key="k")
        own.upsert([{"k": number, "label": f"l{number % 3}"} for number in (-1, 0, 1, 2, 3, 7, 8, 100)])
        fill(app, folder, postgres, mariadb, odd_rows.rows(7))
        yield app


def fill(app: hw.App, folder: Path, postgres: Any, mariadb: Any, given: list[dict[str, Any]]) -> None:
    """The rows in every store, and each store attached."""
    odd_rows.fill_postgres(postgres, given)
    odd_rows.fill_mariadb(mariadb, given)
    odd_rows.fill_sqlite(folder / "odd.db", given)
    odd_rows.fill_parquet(folder / "odd.parquet", given)
    odd_rows.fill_csv(folder / "odd.csv", given)
    odd_rows.fill_delta(folder / "odd-delta", given)
    app.attach("pg", postgres.dsn)
    app.attach("maria", mariadb.dsn.replace("/mysql", "/shop"))
    app.attach("lite", f"sqlite:{folder / 'odd.db'}")
    app.attach("odd_parquet", str(folder / "odd.parquet"))
    app.attach("odd_csv", str(folder / "odd.csv"))
    app.attach("odd_delta", str(folder / "odd-delta"))
