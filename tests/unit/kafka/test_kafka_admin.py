"""What an administrator's client is told by a broker that has only just begun; the rest is in tests/services."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.errors import Unavailable
from headwater.kafka import kafka_client
from headwater.kafka.kafka_client import KafkaAdmin, KafkaCluster, client

NOWHERE = "127.0.0.1:1"


def answering(*offsets: int) -> Any:
    """A client of librdkafka that lists these offsets, one at each call; the last one for ever.

    It gives OFFSET_INVALID and no error for a second after the broker's start, now and then: four times in fourteen
    restarts of a broker, and never when it is waited for.
    """
    left = list(offsets)

    def list_offsets(wanted: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        offset = left.pop(0) if len(left) > 1 else left[0]
        answers: dict[Any, Future[Any]] = {place: Future() for place in wanted}
        for answer in answers.values():
            answer.set_result(SimpleNamespace(offset=offset))
        return answers

    return SimpleNamespace(list_offsets=list_offsets, poll=lambda _: 0)


def test_an_offset_that_is_not_known_yet_is_no_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = KafkaAdmin(KafkaCluster(NOWHERE, {}))
    monkeypatch.setattr(admin, "_client", answering(client().OFFSET_INVALID, client().OFFSET_INVALID, 12))

    assert admin.ends("orders", [0, 1]) == {0: 12, 1: 12}


def test_offsets_that_stay_unknown_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_client, "LOOK_S", 0.0)
    admin = KafkaAdmin(KafkaCluster(NOWHERE, {}))
    monkeypatch.setattr(admin, "_client", answering(client().OFFSET_INVALID))

    with pytest.raises(Unavailable, match="no answer in time"):
        admin.all_ends({"orders": [0]}, seconds_max=0.1)
