"""The Python on the page about Kafka, with a real broker and Spark: from a message to a view to a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.kafka_broker import KafkaBroker
from tests.services.registry import Registry
from tests.spark.conftest import spark
from tests.unit.docs.test_docs import NO_RUN, parsed

__all__ = ["spark"]
PAGE = Path(__file__).parents[2] / "docs" / "kafka.md"


@pytest.mark.usefixtures("spark")
def test_the_python_of_the_page_runs(kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kafka.create("shop.orders", 2)
    text = PAGE.read_text(encoding="utf-8")
    fences = [fence for fence in parsed(text.replace(NO_RUN, "")).fences if fence.language == "python"]

    registry = Registry()
    for fence in fences:
        program = "\n".join(fence.rows).replace("localhost:9092", kafka.servers)
        program = program.replace("http://localhost:8081", registry.url)
        exec(compile(program, f"kafka.md, line {fence.first_line}", "exec"), {})
    registry.close()

    assert len(fences) == text.count(NO_RUN) == 6
    assert kafka.latest("shop.revenue") == {'{"country":"DE"}': '{"country":"DE","revenue":9.5,"orders":1}'}
