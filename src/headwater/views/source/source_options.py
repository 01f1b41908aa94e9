"""The options of ``format("headwater")``: text in, checked values out.

What it is: ``SourceOptions``, made from the options that a user gave to ``spark.read`` or ``spark.readStream``.
Invariants: every option is checked before a row is read; a name that is not known is refused, since Spark itself
would let a misspelt ``maxRowsPerTriger`` pass in silence; names are case-insensitive, as everywhere in Spark.
Not here: what the options mean for a topic (``data_source.py``). No pyspark.
Read next: ``data_source.py``; ``docs/spark.md``.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from headwater.errors import InvalidDeclaration
from headwater.hints import suggestion

BATCH_ONLY = ("endingOffsets",)
STREAM_ONLY = ("maxRowsPerTrigger",)
KNOWN = (
    "columns",
    "endingOffsets",
    "failOnDataLoss",
    "home",
    "includeMetadata",
    "maxRowsPerTrigger",
    "startingOffsets",
    "startingTimestamp",
    "topic",
)

Offsets = str | dict[int, int]


@dataclass(frozen=True)
class SourceOptions:
    """What a user asked of the source.

    >>> SourceOptions.parse({"home": "./data", "topic": "orders", "startingOffsets": '{"0": 12}'}).starting
    {0: 12}
    >>> SourceOptions.parse({"home": "./data"})
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: option "topic" is missing
      Hint: Add .option("topic", "…"): the name of the topic to read.
    """

    home: str
    topic: str
    starting: Offsets | dt.datetime = "earliest"
    ending: Offsets = "latest"
    rows_per_trigger_max: int | None = None
    columns: tuple[str, ...] | None = None
    include_metadata: bool = False
    fail_on_data_loss: bool = True

    @staticmethod
    def parse(options: Mapping[str, str], *, streaming: bool | None = None) -> SourceOptions:
        """The checked options; ``streaming`` is None while it is not known whether a batch or a stream is meant."""
        given = _known_only(options)
        for name in (*(BATCH_ONLY if streaming else ()), *(STREAM_ONLY if streaming is False else ())):
            if name in given:
                raise InvalidDeclaration(
                    f'option "{name}" makes no sense for spark.{"readStream" if streaming else "read"}',
                    hint="Leave it out, or use it with " + ("spark.read." if streaming else "spark.readStream."),
                )
        home = _required(given, "home", "the directory of the log.")
        topic = _required(given, "topic", "the name of the topic to read.")
        starting: Offsets | dt.datetime = _offsets("startingOffsets", given.get("startingOffsets", "earliest"))
        if "startingTimestamp" in given:
            if "startingOffsets" in given:
                raise InvalidDeclaration(
                    'options "startingOffsets" and "startingTimestamp" exclude each other', hint="Give one of them."
                )
            starting = _moment("startingTimestamp", given["startingTimestamp"])
        return SourceOptions(
            home=home,
            topic=topic,
            starting=starting,
            ending=_offsets("endingOffsets", given.get("endingOffsets", "latest")),
            rows_per_trigger_max=_rows("maxRowsPerTrigger", given.get("maxRowsPerTrigger")),
            columns=_columns(given.get("columns")),
            include_metadata=_truth("includeMetadata", given.get("includeMetadata", "false")),
            fail_on_data_loss=_truth("failOnDataLoss", given.get("failOnDataLoss", "true")),
        )


def _known_only(options: Mapping[str, str]) -> dict[str, str]:
    spelt = {name.lower(): name for name in KNOWN}
    given: dict[str, str] = {}
    for name, value in options.items():
        known = spelt.get(name.lower())
        if known is None:
            if name.lower() == "path":
                raise InvalidDeclaration(
                    f"load({value!r}) was given a path", hint='Use .option("home", "…") and .load() without arguments.'
                )
            raise InvalidDeclaration(f'unknown option "{name}"', hint=suggestion(name, KNOWN), option=name)
        given[known] = value
    return given


def _required(given: Mapping[str, str], name: str, what: str) -> str:
    value = given.get(name, "").strip()
    if not value:
        raise InvalidDeclaration(f'option "{name}" is missing', hint=f'Add .option("{name}", "…"): {what}', option=name)
    return value


def _refuse(name: str, value: str, hint: str, detail: str | None = None) -> NoReturn:
    raise InvalidDeclaration(f'option "{name}" cannot be {value!r}', detail=detail, hint=hint, option=name)


def _offsets(name: str, value: str) -> Offsets:
    if value.strip().lower() in ("earliest", "latest"):
        return value.strip().lower()
    hint = 'Use "earliest", "latest", or an offset by partition as JSON: {"0": 12, "1": 7}.'
    try:
        found: Any = json.loads(value)
        offsets = {int(partition): offset for partition, offset in found.items()}
    except (ValueError, AttributeError):
        _refuse(name, value, hint)
    for partition, offset in offsets.items():
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            _refuse(name, value, hint, f"The offset of partition {partition} is {offset!r}.")
    return offsets


def _moment(name: str, value: str) -> dt.datetime:
    """ISO 8601 text (UTC unless it says otherwise), or milliseconds since 1970 as in Spark's Kafka source."""
    try:
        if value.strip().isdecimal():
            return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=int(value))
        moment = dt.datetime.fromisoformat(value.strip())
    except (ValueError, OverflowError):
        _refuse(name, value, "Use a time as in 2026-01-31T12:00:00Z, or milliseconds since 1970.")
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


def _rows(name: str, value: str | None) -> int | None:
    if value is None:
        return None
    if not value.strip().isdecimal() or int(value) == 0:
        _refuse(name, value, "Use a whole number above zero.")
    return int(value)


def _columns(value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = tuple(name.strip().strip("`") for name in value.split(",") if name.strip())
    if not names:
        _refuse("columns", value, 'Name columns, separated by commas: "order_id, amount, _offset".')
    if len(set(names)) != len(names):
        _refuse("columns", value, "Name each column once.")
    return names


def _truth(name: str, value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        _refuse(name, value, 'Use "true" or "false".')
    return value.strip().lower() == "true"
