"""Keyword arguments have types: each TypedDict is what the thing behind it takes, name by name."""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import InvalidDeclaration
from headwater.log.groups.consumer import Consumer, ConsumerOptions
from headwater.log.groups.worker import Worker, WorkerOptions
from headwater.log.home import Log
from headwater.log.table import NOT_FOR_TABLES
from headwater.log.topic import Topic
from headwater.log.topic_reader import ReadOptions
from headwater.log.topic_settings import DURATIONS, TableOptions, TopicOptions, TopicSettings

WIDER = {"key", "ordered_by", "clock"}  # a name or a list may be written; a tuple is stored


def written(options: type) -> dict[str, str]:
    """The fields of a TypedDict with their types as they are written."""
    return {name: kind.__forward_arg__ for name, kind in options.__annotations__.items()}


def test_the_options_of_a_topic_are_its_settings() -> None:
    stored_as = {stored: name for name, stored in DURATIONS.items()}
    settings = {stored_as.get(field.name, field.name): field.type for field in dataclasses.fields(TopicSettings)}

    options = {name: kind.replace("Duration", "int") for name, kind in written(TopicOptions).items()}

    assert set(options) == set(settings)
    assert {name: kind for name, kind in options.items() if name not in WIDER} == {
        name: kind for name, kind in settings.items() if name not in WIDER
    }


def test_every_duration_may_be_written_as_people_say_it(tmp_path: Path) -> None:
    taken = {name for name, kind in written(TopicOptions).items() if "Duration" in kind}
    assert taken == set(DURATIONS)
    assert set(DURATIONS.values()) == {
        field.name for field in dataclasses.fields(TopicSettings) if "ms" in field.name.split("_")
    }

    with Log(tmp_path) as log:
        topic = log.topic("t", "at TIMESTAMP", event_time="at", retention="7 days", lateness=dt.timedelta(seconds=5))
        with pytest.raises(InvalidDeclaration, match="retention cannot be 'a while'"):
            log.topic("t", "at TIMESTAMP", retention="a while")

        assert (topic.settings.retention_ms, topic.settings.lateness_ms) == (604_800_000, 5_000)


def test_the_options_of_a_table_are_those_of_a_topic_but_for_what_drops_rows() -> None:
    assert set(written(TopicOptions)) - set(written(TableOptions)) == {"events", "key", "ordered_by", *NOT_FOR_TABLES}


@pytest.mark.parametrize(
    ("options", "taker"),
    [(ConsumerOptions, Consumer.__init__), (WorkerOptions, Worker.__init__), (ReadOptions, Topic.read)],
    ids=["consumer", "worker", "rows"],
)
def test_options_are_what_is_taken_by_keyword(options: type, taker: Callable[..., Any]) -> None:
    parameters = inspect.signature(taker).parameters.values()

    taken = {each.name: each.annotation for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}

    assert written(options) == taken
