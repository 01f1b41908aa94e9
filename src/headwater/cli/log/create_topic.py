"""``headwater topic create``: every setting of a topic, in human units.

What it is: the verb, with one option for each field of ``TopicSettings`` (``SETTING_OPTIONS`` pairs them, and a test
compares).
Invariants: an option that is not given is not declared, so on a topic that exists only what is said changes; a limit is
taken away with ``forever``, ``unlimited`` or ``none``.
Not here: what may change and what may not (``log/topic_declaration.py``).
Read next: ``topic_commands.py``.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headwater.cli.command_options import HomeOption, JsonOption, LogOption, TopicArgument, opened_log
from headwater.cli.output import say, write_json
from headwater.cli.quantities import is_never, parse_duration, parse_size
from headwater.errors import Misuse

# The option of `topic create` for each setting of a topic.
SETTING_OPTIONS = {
    "key": "--key",
    "ordered_by": "--ordered-by",
    "event_time": "--event-time",
    "lateness": "--lateness",
    "idle": "--idle",
    "clock": "--clock",
    "partitions": "--partitions",
    "fsync": "--fsync",
    "fsync_interval": "--fsync-interval",
    "segment_bytes_max": "--segment-bytes-max",
    "segment_age_max": "--segment-age-max",
    "retention": "--retention",
    "retention_bytes": "--retention-bytes",
    "until_read": "--until-read",
    "archive": "--archive",
    "compact": "--compact",
    "tombstone_grace": "--tombstone-grace",
    "overflow": "--overflow",
    "overflow_rows_max": "--overflow-rows-max",
    "block_timeout": "--block-timeout",
    "remember_ids": "--remember-ids",
    "group_expiry": "--group-expiry",
    "values": "--values",
    "partitioner": "--partitioner",
    "proof": "--proof",
}
KEEPING = "What is kept"
WRITING = "How it is written"


def _option(field: str, text: str, *, panel: str | None = None, metavar: str | None = None) -> Any:
    return typer.Option(SETTING_OPTIONS[field], help=text, rich_help_panel=panel, metavar=metavar, show_default=False)


def create(
    name: TopicArgument,
    schema: Annotated[
        str,
        typer.Option("--schema", metavar="DDL", help='The columns, as Spark writes them: "id BIGINT, at TIMESTAMP".'),
    ],
    key: Annotated[
        str | None, _option("key", "Key columns: the same key always goes to the same partition.", metavar="A,B")
    ] = None,
    ordered_by: Annotated[
        str | None, _option("ordered_by", "Columns whose rows are events, in order for each value.", metavar="A,B")
    ] = None,
    event_time: Annotated[
        str | None, _option("event_time", "The column that says when it happened.", metavar="COLUMN")
    ] = None,
    lateness: Annotated[
        str | None, _option("lateness", "How far rows may be out of order, e.g. 30s.", metavar="TIME")
    ] = None,
    idle: Annotated[
        str | None, _option("idle", "A producer silent for so long is not waited for, e.g. 1m.", metavar="TIME")
    ] = None,
    clock: Annotated[
        str | None, _option("clock", "The device's columns: when it happened, when it was sent.", metavar="A,B")
    ] = None,
    partitions: Annotated[
        int | None, _option("partitions", "Independently ordered parts; never changes. 1 if not given.")
    ] = None,
    fsync: Annotated[
        str | None, _option("fsync", "When an append is durable.", panel=WRITING, metavar="always|interval|never")
    ] = None,
    fsync_interval: Annotated[
        str | None,
        _option(
            "fsync_interval",
            "Under fsync=interval: at most so long unsynced, e.g. 50ms.",
            panel=WRITING,
            metavar="TIME",
        ),
    ] = None,
    segment_bytes_max: Annotated[
        str | None,
        _option("segment_bytes_max", "A segment is sealed at this size, e.g. 128MiB.", panel=WRITING, metavar="SIZE"),
    ] = None,
    segment_age_max: Annotated[
        str | None, _option("segment_age_max", "… or at this age, e.g. 24h.", panel=WRITING, metavar="TIME")
    ] = None,
    overflow: Annotated[
        str | None, _option("overflow", "When consumers are too far behind.", panel=WRITING, metavar="keep|drop|block")
    ] = None,
    overflow_rows_max: Annotated[
        str | None, _option("overflow_rows_max", "How far is too far.", panel=WRITING, metavar="ROWS")
    ] = None,
    block_timeout: Annotated[
        str | None,
        _option(
            "block_timeout", "Under overflow=block: how long an append waits, e.g. 30s.", panel=WRITING, metavar="TIME"
        ),
    ] = None,
    remember_ids: Annotated[
        str | None,
        _option("remember_ids", "A request id is recognised for so long, e.g. 7d.", panel=WRITING, metavar="TIME"),
    ] = None,
    retention: Annotated[
        str | None, _option("retention", "Drop what is older, e.g. 7d; or forever.", panel=KEEPING, metavar="TIME")
    ] = None,
    retention_bytes: Annotated[
        str | None,
        _option(
            "retention_bytes",
            "Drop the oldest beyond this size, e.g. 10GiB; or unlimited.",
            panel=KEEPING,
            metavar="SIZE",
        ),
    ] = None,
    until_read: Annotated[
        bool | None,
        typer.Option(
            "--until-read/--no-until-read",
            help="Drop what every group and app has read; the limits above are for what is unread.",
            rich_help_panel=KEEPING,
            show_default=False,
        ),
    ] = None,
    archive: Annotated[
        str | None,
        _option("archive", "Move what is dropped to this directory instead; or none.", panel=KEEPING, metavar="DIR"),
    ] = None,
    compact: Annotated[
        bool | None,
        typer.Option(
            "--compact/--no-compact",
            help="Keep only the latest row of each key.",
            rich_help_panel=KEEPING,
            show_default=False,
        ),
    ] = None,
    tombstone_grace: Annotated[
        str | None,
        _option("tombstone_grace", "A delete stays visible for so long, e.g. 24h.", panel=KEEPING, metavar="TIME"),
    ] = None,
    group_expiry: Annotated[
        str | None,
        _option(
            "group_expiry",
            "A group without members or commits for so long holds nothing back; or never.",
            panel=KEEPING,
            metavar="TIME",
        ),
    ] = None,
    proof: Annotated[
        bool | None,
        typer.Option(
            "--proof/--no-proof",
            help="Hash rows when they are sealed, so that a change of them is found. See docs/audit.md.",
            rich_help_panel=KEEPING,
            show_default=False,
        ),
    ] = None,
    values: Annotated[
        str | None, _option("values", "What messages hold, of a log on Kafka: json, arrow, avro, raw.", panel=WRITING)
    ] = None,
    partitioner: Annotated[
        str | None, _option("partitioner", "How keys find their partition on Kafka: murmur2, crc32.", panel=WRITING)
    ] = None,
    home: HomeOption = None,
    log_address: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Declare a topic; on one that exists, add columns or change settings.

    [cyan]headwater topic create orders --schema "order_id BIGINT, amount DOUBLE" --key order_id --retention 7d[/cyan]
    """
    declared = {
        "key": _columns(key),
        "ordered_by": _columns(ordered_by),
        "event_time": event_time,
        "lateness": lateness and parse_duration(lateness),
        "clock": _columns(clock),
        "partitions": partitions,
        "fsync": fsync,
        "fsync_interval": fsync_interval and parse_duration(fsync_interval),
        "segment_bytes_max": segment_bytes_max and parse_size(segment_bytes_max),
        "segment_age_max": segment_age_max and parse_duration(segment_age_max),
        "overflow": overflow,
        "values": values,
        "partitioner": partitioner,
        "block_timeout": block_timeout and parse_duration(block_timeout),
        "remember_ids": remember_ids and parse_duration(remember_ids),
        "until_read": until_read,
        "compact": compact,
        "proof": proof,
        "tombstone_grace": tombstone_grace and parse_duration(tombstone_grace),
    }
    settings: dict[str, Any] = {field: value for field, value in declared.items() if value is not None}
    # Settings that can be removed again, by declaring None.
    for field, text, parse in (
        ("idle", idle, parse_duration),
        ("retention", retention, parse_duration),
        ("retention_bytes", retention_bytes, parse_size),
        ("overflow_rows_max", overflow_rows_max, _whole_number),
        ("archive", archive, str),
        ("group_expiry", group_expiry, parse_duration),
    ):
        if text is not None:
            settings[field] = None if is_never(text) else parse(text)
    with opened_log(home, log_address, create=True, as_json=as_json) as log:
        before = next((found.describe() for found in log.topics() if found.name == name), None)
        topic = log.topic(name, schema, **settings)
        after = topic.describe()
    outcome = _outcome(before, after)
    if as_json:
        write_json({"outcome": outcome, **after})
    else:
        say(f'topic [bold]"{name}"[/bold]: {outcome}')
        from headwater.cli.log.topic_commands import show_description

        show_description(after, [])


def _columns(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _whole_number(text: str) -> int:
    try:
        return int(text.replace("_", ""))
    except ValueError:
        raise Misuse(f"{text!r} is not a whole number of rows", hint="Write it as 100000.") from None


def _outcome(before: dict[str, Any] | None, after: dict[str, Any]) -> str:
    if before is None:
        return "created"
    if before["schema_version"] != after["schema_version"]:
        return f"changed to schema version {after['schema_version']}"
    return "changed its settings" if before["settings"] != after["settings"] else "exists, unchanged"
