"""What can be declared about a topic: checked, stored, declared anew."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from headwater.errors import InvalidDeclaration
from headwater.log.topic_settings import TopicSettings, declared


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"fsync": "sometimes"}, "fsync cannot be 'sometimes'"),
        ({"overflow": "explode"}, "overflow cannot be 'explode'"),
        ({"partitioner": "md5"}, "partitioner cannot be 'md5'"),
        ({"partitions": 0}, "partitions cannot be 0"),
        ({"partitions": 1025}, "partitions cannot be 1025"),
        ({"segment_bytes_max": 0}, "segment_bytes_max cannot be 0"),
        ({"retention_ms": -5}, "retention cannot be -5"),
        ({"retention_bytes": 1.5}, "retention_bytes cannot be 1.5"),
        ({"compact": True}, "compact=True needs a key"),
        ({"overflow": "drop"}, "needs overflow_rows_max"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_with_what_would(values, sentence):
    with pytest.raises(InvalidDeclaration, match=sentence) as refused:
        TopicSettings(**values)

    assert refused.value.hint


def test_an_unknown_setting_is_refused_with_the_known_ones():
    with pytest.raises(InvalidDeclaration, match='unknown setting "retention_ms"') as refused:
        declared({"retention_ms": 5})

    assert refused.value.hint.startswith('Did you mean "retention"? Known: archive, ')


@pytest.mark.parametrize("week", ["7 days", "168h", 604_800, dt.timedelta(days=7)])
def test_a_duration_is_text_a_number_of_seconds_or_a_timedelta(week):
    assert declared({"retention": week}) == {"retention_ms": 604_800_000, "until_read": False}


@pytest.mark.parametrize("wrong", ["soon", -5, float("nan"), True])
def test_a_duration_that_cannot_be_read_is_refused(wrong):
    with pytest.raises(InvalidDeclaration, match="retention cannot be"):
        declared({"retention": wrong})


def test_settings_come_back_from_the_catalogs_text():
    settings = TopicSettings(key=("a", "b"), partitions=3, fsync="always", retention_ms=5, compact=True)

    assert TopicSettings.from_json(settings.to_json()) == settings


def test_a_setting_of_a_newer_version_is_passed_over():
    text = json.dumps({"partitions": 2, "colour": "blue"})

    assert TopicSettings.from_json(text).partitions == 2


@pytest.mark.parametrize(("key", "expected"), [(None, ()), ("a", ("a",)), (["a", "b"], ("a", "b"))])
def test_a_key_is_one_name_or_several(key, expected):
    assert declared({"key": key}) == {"key": expected}


def test_what_is_not_forever_may_be_declared_anew_by_any_handle(log):
    topic = log.topic("t", "x INT", fsync="interval")

    log.topic("t", "x INT", fsync="always", retention="1 second")

    assert topic.settings.fsync == "always"
    assert topic.settings.retention_ms == 1000
