"""``headwater topic``: create, ls, describe, append, tail, delete.

Invariants: reading verbs create no home; ``delete`` asks first, or needs ``--yes`` without a terminal.
Not here: settings (``create_topic.py``), input (``input_files.py``, ``append_rows.py``), printing rows (``tail.py``).
Read next: ``create_topic.py``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.command_options import HomeOption, JsonOption, LogOption, TopicArgument, opened_log
from headwater.cli.log.create_topic import create
from headwater.cli.output import (
    ListColumns,
    answer,
    answer_list,
    console,
    say,
    show_error,
    show_facts,
    show_table,
    write_json,
)
from headwater.cli.quantities import show_bytes, show_count, show_duration_ms
from headwater.errors import DeclarationConflict, HeadwaterError, Misuse, UnknownTopic

if TYPE_CHECKING:
    from headwater.log.contract import EventLog, EventTopic

app = typer.Typer(help="Topics: named, typed, partitioned logs of events.", no_args_is_help=True)


app.command("create")(create)


@app.command("ls")
def ls(home: HomeOption = None, log_address: LogOption = None, as_json: JsonOption = False) -> None:
    """List all topics with their rows and sizes.

    [cyan]headwater topic ls[/cyan]
    [cyan]headwater topic ls --json | jq '.[].name'[/cyan]
    """
    from headwater.log.contract import Capability

    with opened_log(home, log_address, as_json=as_json) as log:
        topics, broken = _descriptions(log)
        gapless = Capability.GAPLESS_OFFSETS in log.capabilities
    columns: ListColumns = {
        "topic": "name",
        ">partitions": lambda each: len(each["partitions"]),
        ">rows" if gapless else ">offsets": lambda each: f"{_rows(each):,}",
        **({">size": lambda each: show_bytes(_bytes(each))} if gapless else {}),
        "key": lambda each: ", ".join(each["settings"]["key"]),
        "schema": "schema",
    }
    empty = 'no topics yet; make one: headwater topic create NAME --schema "…"'
    answer_list(topics, columns, empty=empty, as_json=as_json)
    for error in broken:
        show_error(error, as_json=as_json)
    if broken:
        raise typer.Exit(broken[0].exit_status)


def _descriptions(log: EventLog) -> tuple[list[dict[str, Any]], list[HeadwaterError]]:
    """The topics, and what is wrong with those that others deleted, or changed, under the log."""
    found, broken = [], list[HeadwaterError]()
    for topic in log.topics():
        try:
            found.append(topic.describe(times=False))
        except (UnknownTopic, DeclarationConflict) as error:
            broken.append(error)
    return found, broken


def _rows(description: dict[str, Any]) -> int:
    return sum(partition["rows"] for partition in description["partitions"])


def _bytes(description: dict[str, Any]) -> int:
    return sum(partition["sealed_bytes"] + partition["arrow_bytes"] for partition in description["partitions"])


@app.command("describe")
def describe(
    name: TopicArgument, home: HomeOption = None, log_address: LogOption = None, as_json: JsonOption = False
) -> None:
    """Show a topic's schema, settings, partitions and groups.

    [cyan]headwater topic describe orders[/cyan]
    """
    with opened_log(home, log_address, as_json=as_json) as log:
        topic = log.get_topic(name)
        description = topic.describe()
        groups = [group.describe().to_dict() for group in topic.groups()]
    if as_json:
        write_json({**description, "groups": groups})
    else:
        show_description(description, groups)


def show_description(description: dict[str, Any], groups: list[dict[str, Any]]) -> None:
    """Print a topic's description and groups."""
    settings = description["settings"]
    retention = ["until read, at most"] if settings["until_read"] else []
    retention.append(show_duration_ms(settings["retention_ms"]))
    if settings["retention_bytes"] is not None:
        retention.append(show_bytes(settings["retention_bytes"]))
    if settings["archive"]:
        retention.append(f"then to {settings['archive']}")
    fsync = settings["fsync"]
    segments = f"up to {show_bytes(settings['segment_bytes_max'])} or {show_duration_ms(settings['segment_ms_max'])}"
    grace = show_duration_ms(settings["tombstone_grace_ms"])
    overflow, times = settings["overflow"], description.get("event_time")
    show_facts(
        [
            ("topic", description["name"]),
            ("schema", f"{description['schema']}   (version {description['schema_version']})"),
            ("key", ", ".join(settings["key"]) or None),
            ("event time", settings["event_time"]),
            ("watermark", times and f"{times['watermark']}{' (idle)' if times['idle'] else ''}"),
            ("personal", ", ".join(map(_personal, settings["privacy"].items())) or None),
            (
                "rows by",
                ", ".join(f"{column} (claim {claim})" for column, claim in settings["rows_by"].items()) or None,
            ),
            ("created", description["created_at"]),
            ("fsync", f"{fsync}, {show_duration_ms(settings['fsync_interval_ms'])}" if fsync == "interval" else fsync),
            ("retention", ", ".join(retention).replace("at most, ", "at most ")),
            ("segments", segments),
            ("compaction", f"yes; deletes stay {grace}" if settings["compact"] else None),
            (
                "overflow",
                overflow if overflow == "keep" else f"{overflow} beyond {settings['overflow_rows_max']:,} rows",
            ),
            ("dropped rows", description["dropped_rows"] or None),
        ]
    )
    rows = [
        (
            each["partition"],
            each["start_offset"],
            each["end_offset"],
            f"{each['rows']:,}",
            each["sealed_segments"],
            show_bytes(each["sealed_bytes"]),
            show_bytes(each["arrow_bytes"]),
        )
        for each in description["partitions"]
    ]
    show_table([">partition", ">start", ">end", ">rows", ">sealed", ">sealed size", ">active size"], rows)
    if times and times["producers"]:
        columns = ("newest", "watermark", "heartbeat", "seen")
        paces = [
            (each["producer"], *(each[name] or "" for name in columns), "idle" if each["idle"] else "")
            for each in times["producers"]
        ]
        show_table(["producer", *columns, ""], paces)
    if groups:
        lines = [(each["group"], each["kind"], len(each["members"]), f"{each['lag_total']:,}") for each in groups]
        show_table(["group", "kind", ">members", ">lag"], lines)


def _personal(declared: tuple[str, dict[str, Any]]) -> str:
    column, personal = declared
    words = [personal["subject"] if personal["by"] == column else f"{personal['subject']} in {personal['by']}"]
    purposes = personal["purpose"] or ()
    words += [f"purpose {name}" for name in ([purposes] if isinstance(purposes, str) else purposes)]
    words += [f"mask {personal['mask']}"] if personal["mask"] else []
    return f"{column} ({', '.join(words)})"


@app.command("append")
def append(
    name: TopicArgument,
    file: Annotated[
        str, typer.Argument(metavar="[FILE|-]", help="The input file; - or none: stdin.", show_default=False)
    ] = "-",
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="jsonl|csv|parquet",
            help="Default: by the file's suffix; jsonl for stdin.",
            show_default=False,
        ),
    ] = None,
    batch_rows: Annotated[int, typer.Option("--batch-rows", min=1, help="Rows in one atomic append.")] = 10_000,
    producer: Annotated[
        str | None,
        typer.Option(
            "--producer",
            metavar="NAME",
            help="Idempotent producer: a second run of the same input skips rows already written.",
            show_default=False,
        ),
    ] = None,
    actor: Annotated[
        str | None, typer.Option("--actor", metavar="NAME", help="Who appends, for _actor.", show_default=False)
    ] = None,
    correlation_id: Annotated[
        str | None, typer.Option("--correlation-id", metavar="ID", help="What the rows belong to.", show_default=False)
    ] = None,
    causation_id: Annotated[
        str | None, typer.Option("--causation-id", metavar="ID", help="What caused them.", show_default=False)
    ] = None,
    home: HomeOption = None,
    log_address: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Append rows from a file or stdin: JSON lines, CSV or Parquet, also gzipped.

    A row that does not fit stops it: the message names the line, and how many rows were written before.

    [cyan]headwater topic append orders orders.csv --producer import-2026-01[/cyan]
    [cyan]echo '{"order_id": 1, "amount": 9.5}' | headwater topic append orders[/cyan]
    """
    from headwater.cli.log.append_rows import append_input
    from headwater.cli.log.input_files import InputFile
    from headwater.log.schema.event_metadata import Metadata

    source = InputFile.named(file, file_format)
    metadata = Metadata(correlation_id=correlation_id, causation_id=causation_id, actor=actor)
    with opened_log(home, log_address, as_json=as_json) as log:
        result = append_input(
            log.get_topic(name), source, batch_rows=batch_rows, producer=producer, quiet=as_json, metadata=metadata
        )
    if as_json:
        write_json(result.to_dict())
        return
    say(
        f'appended {result.rows:,} rows to [bold]"{name}"[/bold] in {result.seconds:.2f} s '
        f"({show_count(result.rows / max(result.seconds, 1e-9))} rows/s)"
    )
    if result.skipped_rows:
        say(f'skipped {result.skipped_rows:,} rows that producer "{producer}" had written before')
    if result.dropped_rows:
        say(f"[yellow]dropped {result.dropped_rows:,} rows: the topic's overflow policy is drop[/yellow]")


@app.command("tail")
def tail(
    name: TopicArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow new rows, until Ctrl-C.")] = False,
    count: Annotated[
        int | None,
        typer.Option(
            "--rows",
            "-n",
            min=0,
            help="Number of last rows (10); with --from, of first rows (all).",
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="PLACE", help="earliest, latest, an offset, a time, or an age (15m).", show_default=False
        ),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only this partition; repeatable.", show_default=False)
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="A,B", help="Only these columns.", show_default=False)
    ] = None,
    meta: Annotated[bool, typer.Option("--meta", help="Show partition, offset, append time, and who did it.")] = False,
    home: HomeOption = None,
    log_address: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the last rows of a topic, or rows from an offset or time; with -f, follow.

    [cyan]headwater topic tail orders -f[/cyan]
    [cyan]headwater topic tail orders --from 2026-01-31T10:00Z --json | jq .amount[/cyan]
    """
    from headwater.cli.log.tail import Tail

    wanted = [part.strip() for part in columns.split(",")] if columns else None
    with opened_log(home, log_address, as_json=as_json) as log:
        Tail(log.get_topic(name), partitions=partition or None, columns=wanted, meta=meta, as_json=as_json).run(
            start=start, count=count, follow=follow
        )


@app.command("delete")
def delete(
    name: TopicArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    home: HomeOption = None,
    log_address: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a topic with its rows and groups.

    [cyan]headwater topic delete orders --yes[/cyan]
    """
    with opened_log(home, log_address, as_json=as_json) as log:
        rows = _rows_there(log, name)
        if not yes:
            _ask(log.get_topic(name), rows)
        log.delete_topic(name)
    sentence = f'deleted topic [bold]"{name}"[/bold] with {rows:,} rows'
    answer({"topic": name, "deleted_rows": rows}, sentence, as_json=as_json)


def _rows_there(log: EventLog, name: str) -> int:
    """The rows of a topic; of one that others have deleted, whose declaration alone is there, none."""
    topic = log.get_topic(name)
    try:
        return _rows(topic.describe(times=False))
    except UnknownTopic:
        return 0


def _ask(topic: EventTopic, rows: int) -> None:
    groups = len(topic.groups())
    if not sys.stdin.isatty():
        raise Misuse(
            f'deleting topic "{topic.name}" needs a confirmation, and stdin is not a terminal', hint="Add --yes."
        )
    question = f'Delete topic "{topic.name}" with {rows:,} rows and {groups} groups, for good?'
    if not typer.confirm(question, err=True):
        console(stderr=True).print("nothing was deleted")
        raise typer.Exit(1)
