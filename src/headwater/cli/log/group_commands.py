"""``headwater group``: ls, describe, reset, delete, redrive.

What it is: the lag of groups, moving a group to another offset, removing one, putting back its dead letters.
Invariants: nothing here joins a group; a reset or a deletion with active members needs ``--force``.
Not here: every other reader of a topic (``lag_commands.py``).
Read next: ``log/groups/groups.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli import completions
from headwater.cli.command_options import HomeOption, JsonOption, LogOption, opened_log
from headwater.cli.output import say, show_facts, show_table, write_json
from headwater.cli.quantities import parse_place
from headwater.errors import Misuse, UnknownGroup

if TYPE_CHECKING:
    from headwater.log.contract import EventLog, EventTopic
    from headwater.log.groups.groups import GroupDescription
    from headwater.log.topic_reader import Place

app = typer.Typer(help="Groups: consumers and workers that share a topic.", no_args_is_help=True)

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.", show_default=False)]
TopicOption = Annotated[
    str, typer.Option("--topic", "-t", metavar="NAME", help="The group's topic.", autocompletion=completions.topics)
]

GroupsTopicOption = Annotated[
    str | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="NAME",
        help="The group's topic; may be left out when only one has a group of that name.",
        show_default=False,
        autocompletion=completions.topics,
    ),
]


@app.command("ls")
def ls(
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", metavar="NAME", help="Only of this topic.", show_default=False)
    ] = None,
    home: HomeOption = None,
    log_address: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """List groups with their lag.

    [cyan]headwater group ls --topic orders[/cyan]
    """
    with opened_log(home, log_address, as_json=as_json) as log:
        topics = [log.get_topic(topic)] if topic is not None else log.topics()
        found = [group.describe() for each in topics for group in each.groups()]
    if as_json:
        write_json([each.to_dict() for each in found])
    elif not found:
        say("no groups; the first consumer or worker of a group creates it")
    else:
        rows = [
            (
                each.topic,
                each.group,
                each.kind,
                sum(member.alive for member in each.members),
                f"{each.lag_total:,}",
                each.in_flight or "",
                each.dead_letters or "",
            )
            for each in found
        ]
        show_table(["topic", "group", "kind", ">members", ">lag", ">in flight", ">dead letters"], rows)


@app.command("describe")
def describe(
    group: GroupArgument,
    topic: TopicOption,
    home: HomeOption = None,
    log_address: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a group's members, and position, lag and owner of each partition.

    [cyan]headwater group describe billing --topic orders[/cyan]
    """
    with opened_log(home, log_address, as_json=as_json) as log:
        found = log.get_topic(topic)
        description = found.group(group).describe()
        ends = found.end_offsets()
    if as_json:
        write_json(description.to_dict())
        return
    work = description.kind == "work"
    show_facts(
        [
            ("group", description.group),
            ("topic", description.topic),
            ("kind", description.kind),
            ("generation", description.generation),
            ("lag", f"{description.lag_total:,} rows"),
            ("in flight", description.in_flight if work else None),
            ("for later", description.delayed or None),
            ("dead letters", description.dead_letters if work else None),
            ("put back", description.redriven or None),
            ("looks at", ", ".join(f"{what}: {column}" for what, column in description.settings.items()) or None),
            ("missed", f"{description.missed} (retention removed them first)" if description.missed else None),
        ]
    )
    owners = {partition: member.id for member in description.members for partition in member.partitions}
    rows = [
        (partition, offset, ends[partition], f"{description.lag[partition]:,}", owners.get(partition, ""))
        for partition, offset in description.positions.items()
    ]
    show_table([">partition", ">position", ">end", ">lag", "owner"], rows)
    _show_members(description)


def _show_members(description: GroupDescription) -> None:
    if description.members:
        rows = [(each.id, each.heartbeat, "yes" if each.alive else "no") for each in description.members]
        show_table(["member", "last heartbeat", "alive"], rows)
    else:
        say("no members now")


@app.command("reset")
def reset(
    group: GroupArgument,
    topic: TopicOption,
    to: Annotated[
        str, typer.Option("--to", metavar="PLACE", help="earliest, latest, an offset, a time, or an age (15m).")
    ],
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only this partition; repeatable.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Even with active members, which are fenced.")] = False,
    home: HomeOption = None,
    log_address: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move a group to another offset, to read again or to skip.

    [cyan]headwater group reset billing --topic orders --to earliest[/cyan]
    [cyan]headwater group reset billing --topic orders --to 2026-01-31T10:00Z --partition 2[/cyan]
    """
    with opened_log(home, log_address, as_json=as_json) as log:
        found = log.get_topic(topic)
        before = found.group(group).positions()
        place = parse_place(to)
        after = found.group(group).reset(_of_partitions(found, place, partition) if partition else place, force=force)
    if as_json:
        write_json({"topic": topic, "group": group, "before": before, "positions": after})
        return
    rows = [
        (number, before.get(number, ""), offset, f"{offset - before[number]:+,}" if number in before else "")
        for number, offset in after.items()
    ]
    show_table([">partition", ">was", ">is", ">moved"], rows, title=f'group "{group}" of topic "{topic}"')


@app.command("delete")
def delete(
    group: GroupArgument,
    topic: GroupsTopicOption = None,
    force: Annotated[bool, typer.Option("--force", help="Even with active members, which are fenced.")] = False,
    home: HomeOption = None,
    log_address: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a group with its positions: rows are no longer kept for it, and producers do not wait for it.

    Its dead-letter topic stays. A consumer or worker that comes back makes a new group, and begins at its start.

    [cyan]headwater group delete billing --topic orders[/cyan]
    """
    with opened_log(home, log_address, as_json=as_json) as log:
        found = _group(log, group, topic)
        description = found.describe()
        found.delete(force=force)
    if as_json:
        write_json({"topic": description.topic, "group": group, "deleted": True, "positions": description.positions})
        return
    places = ", ".join(f"{number}: {offset}" for number, offset in description.positions.items())
    say(f'deleted group [bold]"{group}"[/bold] of topic "{description.topic}" (it was at {places})')


@app.command("redrive")
def redrive(
    group: GroupArgument,
    topic: GroupsTopicOption = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="At most so many, the oldest first.", show_default=False)
    ] = None,
    home: HomeOption = None,
    log_address: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put a work group's dead letters back: its workers get the messages again, with no deliveries counted.

    Other groups of the topic see nothing of it; the letters stay in the dead-letter topic.

    [cyan]headwater group redrive packing --topic orders[/cyan]
    [cyan]headwater group redrive packing --limit 1[/cyan]
    """
    with opened_log(home, log_address, as_json=as_json) as log:
        done = _group(log, group, topic).redrive(limit=limit)
    if as_json:
        write_json(done.to_dict())
        return
    gone = f"; {done.gone:,} are no longer in the topic, only in its dead letters" if done.gone else ""
    left = f"; {done.left:,} more are left" if done.left else ""
    say(f'put back {done.redriven:,} messages of group [bold]"{group}"[/bold] of topic "{done.topic}"{gone}{left}')


def _group(log: EventLog, name: str, topic: str | None) -> Any:
    """The group of this name; of the only topic that has one, if none is given."""
    if topic is not None:
        return log.get_topic(topic).group(name)
    found = [each for every in log.topics() for each in every.groups() if each.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise Misuse(
            f'{len(found)} topics have a group "{name}": {", ".join(each.topic.name for each in found)}',
            hint="Name one: --topic TOPIC",
            group=name,
        )
    raise UnknownGroup(f'no topic has a group "{name}"', hint="See: headwater group ls", group=name)


def _of_partitions(topic: EventTopic, place: Place, partitions: list[int]) -> dict[int, int]:
    from headwater.log.topic_reader import check_partitions, offsets_for

    return offsets_for(topic, place, check_partitions(topic, partitions))
