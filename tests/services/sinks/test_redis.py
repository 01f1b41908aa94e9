"""Redis: what a full copy that was never finished leaves behind."""

from __future__ import annotations

import uuid

import pytest
import redis

from headwater.log.home import Log
from headwater.log.schema.normalization import WEIGHT
from headwater.sinks import Redis
from headwater.sinks.redis_sink import RedisTarget
from headwater.sinks.runner.sink_task import SinkTask
from headwater.sinks.sink import SinkContext
from tests.services.sinks.places import Servers
from tests.services.sinks.synthetic import SyntheticView


@pytest.mark.parametrize("key", [("id",), ()], ids=["key", "bag"])
def test_rows_of_a_full_copy_that_was_never_finished_do_not_come_back(
    servers: Servers, log: Log, key: tuple[str, ...]
) -> None:
    prefix = uuid.uuid4().hex[:8]
    sink = Redis(servers.redis.url, prefix=prefix)
    view = SyntheticView("id BIGINT", key=key)
    target = sink.open(SinkContext("app", "ids", "copy", view.schema, key, "old/1/t"), log)
    assert isinstance(target, RedisTarget)
    target._write_beside(view._weighted([{"id": 1}, {"id": 2}], 1).drop_columns([WEIGHT]).to_batches())
    target.close()  # as a process that was killed here

    view.change([{"id": 2}])
    SinkTask("copy", "ids", "app", sink, view, log).catch_up()

    with redis.Redis.from_url(servers.redis.url) as client:
        rows = [client.hgetall(each) for each in client.scan_iter(f"{prefix}:*")]
        left = list(client.scan_iter(f"_headwater:filling:{prefix}*"))
    assert [(row[b"id"], row.get(b"_count", b"1")) for row in rows] == [(b"2", b"1")]
    assert left == []
