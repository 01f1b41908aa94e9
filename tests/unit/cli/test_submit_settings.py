"""``headwater submit``: what Spark is told, for each kind of cluster. Nothing is started here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headwater.cli.main import app as cli
from headwater.cli.views import submit_command

SHOP = """
import headwater as hw

app = hw.App("shop", home={home!r}, spark={{"spark.executor.memory": "1g", "spark.sql.shuffle.partitions": "4"}})
"""


@pytest.mark.parametrize(
    ("master", "confs"),
    [
        ("spark://host:7077", []),
        ("k8s://host:443", ["spark.kubernetes.container.image=spark-py:4.3", "spark.driver.host=shop.svc"]),
        ("yarn", ["spark.executor.instances=4", "spark.yarn.queue=views"]),
    ],
)
def test_every_cluster_is_told_what_was_said_and_gets_the_environment(
    master: str, confs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr(submit_command, "run_app", lambda app, **_: told.update(app.spark_settings))
    file, archive = tmp_path / "shop.py", tmp_path / "environment.zip"
    file.write_text(SHOP.format(home=str(tmp_path / "home")))
    archive.write_bytes(b"")

    given = [word for conf in [*confs, "spark.executor.memory=3g"] for word in ("--conf", conf)]
    done = CliRunner().invoke(cli, ["submit", str(file), "--master", master, "--environment", str(archive), *given])

    assert done.exit_code == 0, done.output
    assert told == {
        "spark.master": master,
        "spark.archives": f"{archive}#environment",
        "spark.executorEnv.PYTHONPATH": "environment",
        "spark.sql.shuffle.partitions": "4",
        "spark.executor.memory": "3g",  # the command line counts more than the file
        **dict(conf.split("=", 1) for conf in confs),
    }
