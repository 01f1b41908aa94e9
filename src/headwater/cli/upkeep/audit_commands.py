"""``headwater audit``: is the log what it was, and proofs of it for others.

What it is: the verbs over ``upkeep/audit/``.
Invariants: status 0 when everything is as it was, 5 when something is not, or a proof does not hold. ``check-proof``
needs no home.
Not here: the work (``upkeep/audit/``).
Read next: ``upkeep/audit/log_audit.py``; ``docs/audit.md``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli import completions
from headwater.cli.command_options import HomeOption, JsonOption, TopicArgument, opened
from headwater.cli.output import ListColumns, answer, answer_list, console, say, show_table, thousands, write_json
from headwater.cli.quantities import parse_place
from headwater.cli.upkeep import audit_key_commands
from headwater.clock import format_us, to_us
from headwater.errors import Corruption, Misuse

if TYPE_CHECKING:
    from headwater.upkeep.audit.log_audit import LogAudit

app = typer.Typer(no_args_is_help=True, help="Find what was changed in the log, and prove that nothing was.")
app.add_typer(audit_key_commands.app, name="key")

TopicsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TOPIC]…", help="Default: all that keep proofs.", show_default=False, autocompletion=completions.topics
    ),
]
VerifierOption = Annotated[
    str | None, typer.Option("--key", metavar="KEY|FILE", help="What verifies signed checkpoints.", show_default=False)
]
PartitionOption = Annotated[int, typer.Option("--partition", help="The partition.")]


@app.command("verify")
def verify(
    topics: TopicsArgument = None,
    noted: Annotated[
        Path | None,
        typer.Option("--noted", metavar="FILE", help="Checkpoints that were noted elsewhere.", show_default=False),
    ] = None,
    key: VerifierOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare every sealed row with what was hashed when it was sealed; name the place of each difference.

    Leaves with status 0 when all is as it was, with 5 when something is not.

    [cyan]headwater audit verify[/cyan]
    [cyan]headwater audit verify orders --noted checkpoints.json[/cyan]
    [cyan]headwater audit verify --noted orders-0-4711.note --key audit.pub[/cyan]
    """
    from headwater.upkeep.audit.log_audit import audit_log
    from headwater.upkeep.audit.signed_checkpoint import verified, verifier_key

    refused: list[str] = []
    if key is None:
        known = [] if noted is None else _document(noted)
        if not isinstance(known, list):
            raise Misuse(f"{noted} is no list of checkpoints", hint="Write it with: headwater audit checkpoint --json")
    elif noted is None:
        raise Misuse("--key is of checkpoints that were signed", hint="Name them: --noted FILE.")
    else:
        signed, refused = verified(_text(noted), verifier_key(key))
        known = [each.to_dict() for each in signed]
    with opened(home) as log:
        audit = audit_log(log, topics or (), known, refused=refused)
    if as_json:
        write_json(audit.to_dict())
    else:
        _show(audit, len(known))
    if not audit.ok:
        raise typer.Exit(Corruption.exit_status)


def _show(audit: LogAudit, noted: int) -> None:
    if not audit.partitions:
        console().print("no topic keeps proofs: declare one with proof=True")
    else:
        columns = ["topic", ">partition", ">checkpoints", ">rows", ">erased", ">removed", ">pending", ">differences"]
        show_table(
            columns,
            [
                (
                    each.topic,
                    each.partition,
                    each.checkpoints,
                    f"{each.rows:,}",
                    f"{each.erased:,}",
                    f"{each.removed:,}",
                    f"{each.pending:,}",
                    len(each.differences),
                )
                for each in audit.partitions
            ],
        )
    for found in audit.differences:
        console().print(f"{found.kind}: {found}", style="red", markup=False, soft_wrap=True)
    if audit.ok and noted:
        console().print(f"the {noted} checkpoints that were noted are in its history")


@app.command("checkpoint")
def checkpoint(
    topics: TopicsArgument = None,
    seal: Annotated[bool, typer.Option("--seal", help="Seal first, so that every row of now is covered.")] = False,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="Sign them, each as a note (C2SP).", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="With --key: a file for each, here.", show_default=False)
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the newest checkpoint of each partition, to be noted where nobody who can write to the home can.

    [cyan]headwater audit checkpoint --seal[/cyan]
    [cyan]headwater audit checkpoint --json > checkpoints.json[/cyan]
    [cyan]headwater audit checkpoint --seal --key /etc/headwater/audit.key --out /mnt/elsewhere[/cyan]
    """
    from headwater.upkeep.audit.log_audit import checkpoints_of
    from headwater.upkeep.audit.signed_checkpoint import sign_checkpoints, signing_key

    if out is not None and key is None:
        raise Misuse("--out is of signed checkpoints", hint="Add --key FILE, or write the list: --json > FILE.")
    with opened(home) as log:
        if key is not None:
            notes = sign_checkpoints(log, signing_key(key, log.home), topics or (), seal=seal)
            if out is not None:
                for name, note in notes.items():
                    (out / name).write_text(note, encoding="utf-8")
            if as_json:
                write_json([{"file": str(out / name) if out else None, "note": note} for name, note in notes.items()])
            else:
                say("\n".join([str(out / name) for name in notes] if out else notes.values()).rstrip("\n"))
            return
        found = checkpoints_of(log, topics or (), seal=seal)
    columns: ListColumns = {
        "topic": "topic",
        ">partition": "partition",
        ">size": thousands("size"),
        "root": "root",
        "at": "at",
    }
    answer_list(
        found, columns, empty="there is no checkpoint yet: rows are hashed when they are sealed", as_json=as_json
    )


@app.command("prove")
def prove(
    topic: TopicArgument,
    offset: Annotated[int | None, typer.Argument(metavar="[OFFSET]", help="The row.", show_default=False)] = None,
    since: Annotated[
        int | None,
        typer.Option("--since", metavar="SIZE", help="Instead: that the log only grew since.", show_default=False),
    ] = None,
    partition: PartitionOption = 0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Default: standard output.", show_default=False)
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a proof, as JSON, that a row is in the log, or that the log continues an earlier checkpoint.

    The proof of a row has the row in it, its personal values too.

    [cyan]headwater audit prove orders 4711 --out proof.json[/cyan]
    [cyan]headwater audit prove orders --since 100000 --partition 2[/cyan]
    """
    from headwater.upkeep.audit.row_proof import prove_growth, prove_row

    with opened(home) as log:
        of = log.get_topic(topic)
        if not 0 <= partition < of.settings.partitions:
            raise Misuse(f'topic "{topic}" has no partition {partition}', hint=f"It has {of.settings.partitions}.")
        if offset is not None and since is None:
            document = prove_row(of, partition, offset)
        elif since is not None and offset is None:
            document = prove_growth(of, partition, since)
        else:
            raise Misuse("a proof is of a row or of growth", hint="Give an OFFSET, or --since SIZE.")
    if out is None:
        write_json(document)
    else:
        out.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        told = {name: document[name] for name in ("kind", "topic", "partition", "size", "root")} | {"file": str(out)}
        answer(told, f"{out} holds against the root {document['root']}", as_json=as_json)


@app.command("check-proof")
def check_proof(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The proof.")],
    root: Annotated[
        str | None, typer.Option("--root", metavar="HEX", help="The root that was noted.", show_default=False)
    ] = None,
    old_root: Annotated[
        str | None,
        typer.Option("--old-root", metavar="HEX", help="Of growth: the older root that was noted.", show_default=False),
    ] = None,
    note: Annotated[
        Path | None, typer.Option("--note", metavar="FILE", help="Instead: a signed checkpoint.", show_default=False)
    ] = None,
    old_note: Annotated[
        Path | None, typer.Option("--old-note", metavar="FILE", help="Of growth: the older one.", show_default=False)
    ] = None,
    key: VerifierOption = None,
    as_json: JsonOption = False,
) -> None:
    """Verify a proof against a root that was noted, without the home.

    Leaves with status 0 when it holds, with 5 when it does not.

    [cyan]headwater audit check-proof proof.json --root 5dc9da79a706…[/cyan]
    [cyan]headwater audit check-proof growth.json --old-note 100.note --note 200.note --key audit.pub[/cyan]
    """
    from headwater.upkeep.audit.row_proof import check_proof as check
    from headwater.upkeep.audit.signed_checkpoint import root_of, verifier_key

    document = _document(file)
    if not isinstance(document, dict):
        raise Misuse(f"{file} is no proof", hint="Write one with: headwater audit prove TOPIC OFFSET --out FILE")
    if note is not None and key is not None and root is None:
        verifier = verifier_key(key)
        root = root_of(_text(note), verifier, document)
        old_root = None if old_note is None else root_of(_text(old_note), verifier, document, old=True)
    if root is None or (key is None) != (note is None):
        raise Misuse("a proof holds against a root", hint="Give --root HEX, or --note FILE --key KEY.")
    found = check(document, root, old_root=old_root)
    lines = ["holds: " if found.ok else "does not hold: "]
    lines[0] += found.says
    lines += [f"  {text}" for text in found.shown]
    if found.erased:
        lines.append(f"  {found.erased} parts of the row are not shown: their values were erased or are not kept")
    if as_json:
        answer(found.to_dict(), "", as_json=True)
    else:
        console().print("\n".join(lines), markup=False, soft_wrap=True)
    if not found.ok:
        raise typer.Exit(Corruption.exit_status)


@app.command("begin")
def begin(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Begin the home's audit trail, the topic _audit: who was shown personal columns, who erased, backed up, restored.

    A server with keys begins it by itself when it first shows a personal column.

    [cyan]headwater audit begin --home shop-data[/cyan]
    """
    from headwater.log.maintenance.audit_trail import begin_trail

    with opened(home) as log:
        name = begin_trail(log).name
    answer({"topic": name}, f"the trail is the topic {name}", as_json=as_json)


@app.command("ls")
def ls(
    who: Annotated[str, typer.Option("--who", metavar="NAME", help="Only of this key or user.")] = "",
    relation: Annotated[str, typer.Option("--view", metavar="NAME", help="Only about this view or topic.")] = "",
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="A time (2026-01-31T10:00Z), or how long ago (1d).")
    ] = "",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the audit trail: who was shown which personal columns, who erased, made and restored backups.

    [cyan]headwater audit ls --view contacts --since 7d[/cyan]
    [cyan]headwater audit ls --who support --json[/cyan]
    """
    from headwater.log.maintenance.audit_trail import AUDIT_TOPIC

    start = parse_place(since) if since else None
    if isinstance(start, str | int):
        raise Misuse(f"{since!r} is no time", hint="Use a time (2026-01-31T10:00Z), or how long ago (7d).")
    with opened(home) as log:
        topic = log.find_topic(AUDIT_TOPIC)
        rows = [] if topic is None else list(topic.rows())
    found = [
        {**each, "at": format_us(to_us(each["at"]))}
        for each in rows
        if who in ("", each["who"])
        and relation.lower() in ("", (each["relation"] or "").lower())
        and (start is None or each["at"] >= start)
    ]
    columns: ListColumns = {
        "at": "at",
        "who": "who",
        "action": "action",
        "about": "relation",
        "columns": lambda each: ", ".join(each["columns"] or ()),
        ">rows": lambda each: "" if each["rows"] is None else f"{each['rows']:,}",
        "detail": "detail",
    }
    without = "this home has no trail: headwater audit begin makes one" if topic is None else "nothing is on record"
    answer_list(found, columns, empty=without, as_json=as_json)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Misuse(f"there is no file {path}", hint="Give the path of a file.") from None
    except (UnicodeDecodeError, OSError) as error:
        raise Misuse(f"{path} cannot be read", detail=str(error)) from error


def _document(path: Path) -> Any:
    try:
        return json.loads(_text(path))
    except ValueError as error:
        raise Misuse(f"{path} is no JSON", detail=str(error)) from error
