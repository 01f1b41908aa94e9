"""Views whose stages run on the executors of a real Spark cluster, with packages that are sent to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import headwater as hw
from headwater.errors import Unavailable
from headwater.testing.local_server import free_port
from headwater.testing.spark_cluster import SparkCluster
from tests.services.cluster.shop_files import write_shop
from tests.services.kafka_broker import KafkaBroker
from tests.services.s3_server import S3Server
from tests.waiting import eventually


class SubmittedApp:
    """``headwater submit``, and the ticks that it tells of."""

    def __init__(self, file: Path, master: str, *words: str) -> None:
        # Without PYSPARK_PYTHON executors are asked for an interpreter by its version, as on other machines.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
        self.errors = (file.parent / "errors").open("w+")
        command = [sys.executable, "-m", "headwater.cli.main", "submit", str(file), "--master", master, "--json"]
        self.process = subprocess.Popen(
            [*command, *words], stdout=subprocess.PIPE, stderr=self.errors, text=True, env=environment
        )

    def tick_that_covers(self, wanted: dict[str, int]) -> dict[str, Any]:
        """The first tick whose frontier has these offsets of one-partition topics."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            report = json.loads(line)
            if all(report["frontier"][topic]["0"] >= end for topic, end in wanted.items()):
                return dict(report)
        raise AssertionError(f"it ended with {self.process.wait()}: {self.said()}")

    def said(self) -> str:
        self.errors.seek(0)
        return self.errors.read()

    def stop(self, how: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(how)
        return self.process.wait(120)


class ShopDriver:
    """A driver that does what it is told (``shop_driver.py``); its temporary files are where executors do not look."""

    def __init__(self, file: Path, master: str, temporary: Path) -> None:
        temporary.mkdir()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
        self.errors = (file.parent / "errors").open("w+")
        command = [sys.executable, "-m", "tests.services.cluster.shop_driver", str(file), master]
        self.process = subprocess.Popen(
            [*command, f"spark.local.dir={temporary}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment | {"TMPDIR": str(temporary)},
        )

    def begins(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        if command == "tick":
            assert self.answer() == "ticking"

    def tells(self, command: str) -> Any:
        self.begins(command)
        return self.answer()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            raise AssertionError(f"it ended with {self.process.wait()}: {self.errors.read()[-5000:]}")
        return json.loads(line)

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(120)


class Shop:
    """The shop's rows as a test knows them, and what the views must be."""

    def __init__(self, home: Path, log: str | None = None) -> None:
        self.app = hw.App("shop", home=str(home), log=log)
        self.users = self.app.table("users", "id BIGINT, country STRING", key="id")
        self.orders = self.app.table("orders", "id BIGINT, user_id BIGINT, cents BIGINT", key="id")
        self.clicks = self.app.topic("clicks", "user_id BIGINT, n BIGINT")
        self.countries: dict[int, str] = {}
        self.placed: dict[int, tuple[int, int]] = {}
        self.clicked: list[tuple[int, int]] = []

    def change(self, number: int) -> dict[str, int]:
        """Rows come, change and leave; returns the ends of the topics."""
        moved = {n: ("AT", "DE", "FR")[(n + number) % 3] for n in range(number % 2, 40, 1 + number)}
        placed = {n: (n % 40, 100 * n + number) for n in range(50 * number, 50 * number + 200)}
        cancelled = sorted(set(self.placed) - set(placed))[:20]
        clicked = [(n % 7, n * number) for n in range(100)]
        self.countries |= moved
        self.placed = {n: order for n, order in {**self.placed, **placed}.items() if n not in cancelled}
        self.clicked += clicked
        self.users.upsert([{"id": n, "country": country} for n, country in moved.items()])
        self.orders.upsert([{"id": n, "user_id": user, "cents": cents} for n, (user, cents) in placed.items()])
        self.orders.delete([{"id": n} for n in cancelled])
        self.clicks.append([{"user_id": user, "n": n} for user, n in clicked])
        return {name: self.app.log.get_topic(name).end_offsets()[0] for name in ("users", "orders", "clicks")}

    def expected(self) -> dict[str, set[tuple[Any, ...]]]:
        cents, count, most = Counter[str](), Counter[str](), dict[int, int]()
        for user, amount in self.placed.values():
            if user in self.countries:
                cents[self.countries[user]] += amount
                count[self.countries[user]] += 1
        for user, n in self.clicked:
            most[user] = max(n, most.get(user, n))
        clicks = Counter(user for user, _ in self.clicked)
        return {
            "revenue": {(country, cents[country], count[country]) for country in count},
            "most_clicks": {(user, most[user], clicks[user]) for user in most},
            "taxed": {(n, amount * 119 // 100) for n, (_, amount) in self.placed.items()},
        }

    def seen(self) -> dict[str, set[tuple[Any, ...]]]:
        names = ("revenue", "most_clicks", "taxed")
        rows = {name: self.app.sql(f"SELECT * FROM {name}").to_pylist() for name in names}
        return {name: {tuple(row.values()) for row in rows[name]} for name in names}


def test_views_survive_the_loss_of_executors_and_workers(cluster: SparkCluster, tmp_path: Path):
    file = write_shop(tmp_path / "shop")
    shop = Shop(file.parent / "home")
    ends = shop.change(0)
    app = SubmittedApp(file, cluster.url)
    try:
        first = app.tick_that_covers(ends)
        assert all(view["jobs"] for view in first["views"]), "no stage ran on the cluster"
        assert shop.seen() == shop.expected()

        lost, *_ = eventually(lambda: cluster.workers[1].executors(), "an executor of the second worker")
        ends = shop.change(1)
        os.kill(lost, signal.SIGKILL)
        cluster.workers[0].restart(immediate=True)
        app.tick_that_covers(ends)
        assert shop.seen() == shop.expected()

        ends = shop.change(2)
        app.stop(signal.SIGKILL)  # the driver, wherever it is
        app = SubmittedApp(file, cluster.url, "--once")
        app.tick_that_covers(ends)
        assert app.process.wait(120) == 0, app.said()
        assert shop.seen() == shop.expected()
    finally:
        app.process.kill()
        app.process.wait()


def test_executors_share_no_disk_with_the_driver(
    cluster: SparkCluster, kafka: KafkaBroker, s3: S3Server, drivers_disk: Path
) -> None:
    log, home = f"kafka://{kafka.servers}?prefix=cluster.", drivers_disk / "shop" / "home"
    file = write_shop(home.parent, log=log, state=s3.address("shop"))
    shop = Shop(home, log)
    shop.change(0)
    driver = ShopDriver(file, cluster.url, drivers_disk / "temporary")
    try:
        first = driver.tells("tick")
        assert all(first.values()), "no stage ran on the cluster"
        assert shop.seen() == shop.expected()
        assert driver.tells(f"share {home}") == f"the executors do not see the folder {home}"
        assert driver.tells(f"share {s3.buckets}") is None

        (lost, *_) = cluster.executors()
        shop.change(1)
        driver.begins("tick")
        os.kill(lost, signal.SIGKILL)
        driver.answer()
        assert shop.seen() == shop.expected()
        assert driver.tells("verify") == dict.fromkeys(shop.expected(), True)

        driver.tells("small")
        shop.change(2)
        driver.tells("tick")
        assert shop.seen() == shop.expected()

        driver.tells("large")
        shop.change(3)
        assert driver.tells("rebuild revenue") == {"revenue": 0}
        driver.tells("tick")
        assert shop.seen() == shop.expected()
        assert driver.tells("verify") == dict.fromkeys(shop.expected(), True)
    finally:
        driver.stop()
    assert s3.objects("shop/runs"), "the state is elsewhere"


def test_a_master_that_is_not_there_is_one_sentence(tmp_path: Path):
    file = write_shop(tmp_path / "shop")

    app = SubmittedApp(file, f"spark://127.0.0.1:{free_port()}", "--once", "--installed")

    assert app.process.wait(120) == Unavailable.exit_status
    assert json.loads(app.said())["message"].startswith("no Spark master answers at spark://127.0.0.1:")
