"""``headwater backup`` and ``headwater restore``: backups of a home, and homes from backups.

What it is: the verbs over ``upkeep/backup/``.
Invariants: status 0 when the work was done; 5 when a byte of a backup is not what was written. ``create`` and
``restore`` may be killed and run again: what was copied is not copied twice.
Not here: the work (``upkeep/backup/``).
Read next: ``upkeep/backup/backup_writer.py``; ``docs/backup.md``.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.app_argument import app_of
from headwater.cli.command_options import HomeOption, JsonOption, KeyCommandOption, KeyFileOption, opened
from headwater.cli.log.check_commands import byte_progress
from headwater.cli.output import answer, answer_list, say, write_json
from headwater.cli.quantities import parse_place, parse_size, show_bytes
from headwater.clock import to_us
from headwater.errors import Corruption, Misuse

if TYPE_CHECKING:
    from headwater.encryption.encryption_key import KeySource
    from headwater.upkeep.backup.backup_drill import Verify

app = typer.Typer(no_args_is_help=True, help="Back up a home while it is used; list, verify and prune backups.")

ERASE_WAIT_S = 20.0  # for another process that writes there
ToOption = Annotated[str, typer.Option("--to", metavar="PLACE", help="Where backups are: a folder, or s3://….")]
FromOption = Annotated[str, typer.Option("--from", metavar="PLACE", help="Where backups are: a folder, or s3://….")]


@app.command("create")
def create(
    to: ToOption,
    home: HomeOption = None,
    rate: Annotated[
        str, typer.Option("--rate", help="Bytes to copy in a second, at most: 50MB. Default: no limit.")
    ] = "",
    key_file: KeyFileOption = None,
    key_command: KeyCommandOption = None,
    as_json: JsonOption = False,
) -> None:
    """Back up a home while everything runs; what earlier backups have is not copied again.

    [cyan]headwater backup create --to /backup/shop[/cyan]
    [cyan]headwater backup create --to s3://safe/shop --home shop-data --json[/cyan]
    [cyan]headwater backup create --to s3://safe/shop --key-file shop.key[/cyan]
    """
    from headwater.upkeep.backup.backup_writer import create_backup

    limit = parse_size(rate) if rate else None
    with opened(home) as log, byte_progress("backing up", quiet=as_json) as progress:
        report = create_backup(log, to, key=key_of(key_file, key_command), progress=progress, rate=limit)
    answer(report.to_dict(), str(report), as_json=as_json)


@app.command("ls")
def ls(
    source: FromOption,
    key_file: KeyFileOption = None,
    key_command: KeyCommandOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the backups at a place, oldest first.

    [cyan]headwater backup ls --from /backup/shop[/cyan]
    """
    from headwater.upkeep.backup.backup_repository import BackupRepository

    repository = BackupRepository.at(source, key_of(key_file, key_command))
    found = [manifest.summary() for manifest in repository.manifests()]
    answer_list(
        found,
        {
            "id": "id",
            "at": "at",
            ">rows": lambda each: f"{each['rows']:,}",
            ">size": lambda each: show_bytes(each["bytes"]),
            ">new": lambda each: show_bytes(each["written_bytes"]),
        },
        empty="there are no backups",
        as_json=as_json,
    )


@app.command("verify")
def verify(
    source: FromOption,
    backup: Annotated[str, typer.Option("--backup", help="One backup, by its id; default: all.")] = "",
    key_file: KeyFileOption = None,
    key_command: KeyCommandOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read every byte of the backups and compare it with its checksum.

    Leaves with status 0 when all is sound, with 5 when something is missing or damaged.

    [cyan]headwater backup verify --from /backup/shop[/cyan]
    """
    from headwater.upkeep.backup.backup_repository import BackupRepository

    with byte_progress("verifying", quiet=as_json) as progress:
        report = BackupRepository.at(source, key_of(key_file, key_command)).verify(
            [backup] if backup else None, progress
        )
    if as_json:
        write_json(report.to_dict())
    else:
        say(str(report))
    if not report.ok:
        raise typer.Exit(Corruption.exit_status)


@app.command("prune")
def prune(
    source: FromOption,
    keep: Annotated[str, typer.Option("--keep", help="For example 7d,4w,12m: the newest of each of 7 days, ….")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell.")] = False,
    key_file: KeyFileOption = None,
    key_command: KeyCommandOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove old backups, and the objects that no other backup needs.

    [cyan]headwater backup prune --from /backup/shop --keep 7d,4w,12m[/cyan]
    """
    from headwater.upkeep.backup.backup_repository import BackupRepository
    from headwater.upkeep.backup.repository_prune import prune as remove

    report = remove(BackupRepository.at(source, key_of(key_file, key_command)), keep, dry_run=dry_run)
    answer(report.to_dict(), str(report), as_json=as_json)


@app.command("erase")
def erase(
    source: FromOption,
    home: HomeOption = None,
    gone: Annotated[bool, typer.Option("--gone", help="The place is gone for good: nothing is pending there.")] = False,
    key_file: KeyFileOption = None,
    key_command: KeyCommandOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove everybody who was erased from a home from the backups at a place; every backup stays.

    headwater erase does so by itself at the places that the home knows. This is for others, and for what was pending.
    Leaves with status 0 when nobody is left there, with 5 when the place could not be rewritten.

    [cyan]headwater backup erase --from /backup/shop --home shop-data[/cyan]
    [cyan]headwater backup erase --from s3://safe/shop --key-file shop.key[/cyan]
    """
    from headwater.upkeep.erasure.erased_places import erase_place, forget_place
    from headwater.upkeep.erasure.erasure_certificate import PlaceState

    with opened(home) as log:
        if gone:
            known = forget_place(log, source)
            said = "is not asked any more" if known else "was not known"
            answer({"place": source, "known": known}, f"{source} {said}", as_json=as_json)
            return
        report = erase_place(log, source, key_of(key_file, key_command), wait_s=ERASE_WAIT_S)
    answer({**vars(report), "state": str(report.state)}, f"{report.place}: {report.detail}", as_json=as_json)
    if report.state != PlaceState.DONE:
        raise typer.Exit(Corruption.exit_status)


@app.command("drill")
def drill(
    source: FromOption,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[APP.py]", help="The app whose views are verified; else only the log is.", show_default=False
        ),
    ] = None,
    home: HomeOption = None,
    key_file: KeyFileOption = None,
    key_command: KeyCommandOption = None,
    as_json: JsonOption = False,
) -> None:
    """Restore the newest backup and a random point into scratch homes, and verify them.

    The app runs on them without captures and sinks. The outcome is kept in the home: that of the app's file, or --home.
    Leaves with status 0 when all is sound, with 5 when not.

    [cyan]headwater backup drill shop.py --from /backup/shop[/cyan]
    [cyan]headwater backup drill --from s3://safe/shop --home shop-data --json[/cyan]
    """
    from headwater.upkeep.backup.backup_drill import DrillRecords
    from headwater.upkeep.backup.backup_drill import drill as try_out

    report = try_out(source, key=key_of(key_file, key_command), verify=None if file is None else verifier(file))
    if file is not None and home is None:
        with app_of(file) as declared:
            DrillRecords(declared.log.local).note(report)
    else:
        with opened(home) as log:
            DrillRecords(log).note(report)
    answer(report.to_dict(), str(report), as_json=as_json)
    if not report.ok:
        raise typer.Exit(Corruption.exit_status)


@app.command("new-key")
def new_key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that is not there yet.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Make a key to encrypt backups with, in a file that only you can read. Keep a copy: nothing opens without it.

    [cyan]headwater backup new-key shop.key[/cyan]
    """
    from headwater.encryption.encryption_key import new_key_file

    key = new_key_file(file)
    answer({"key": key.id, "file": str(file)}, f"{file} holds key {key.id}; keep a copy elsewhere", as_json=as_json)


@app.command("rotate-key")
def rotate_key(
    source: FromOption,
    key_file: KeyFileOption = None,
    key_command: KeyCommandOption = None,
    new_key_file: Annotated[
        Path | None, typer.Option("--new-key-file", metavar="FILE", help="The new key.", show_default=False)
    ] = None,
    new_key_command: Annotated[
        str | None, typer.Option("--new-key-command", metavar="COMMAND", help="Writes the new key.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Let a new key open the backups at a place, and no longer the old one. No backup is written anew.

    [cyan]headwater backup rotate-key --from /backup/shop --key-file old.key --new-key-file new.key[/cyan]
    """
    from headwater.upkeep.backup.backup_repository import BackupRepository

    old, new = key_of(key_file, key_command), key_of(new_key_file, new_key_command)
    if old is None or new is None:
        raise Misuse("both keys are needed", hint="Give --key-file (or --key-command) and --new-key-file.")
    key = new.load()
    BackupRepository.at(source, old).rotate_key(key)
    answer({"key": key.id, "from": source}, f"key {key.id} opens the backups at {source} now", as_json=as_json)


def key_of(file: Path | None, command: str | None) -> KeySource | None:
    """The key that was given, if any."""
    from headwater.encryption.encryption_key import KeySource

    return KeySource.of(file, command)


def verifier(file: Path) -> Verify:
    """Runs an app on a restored home, and compares its views with the log."""
    from headwater.upkeep.backup.backup_drill import VerifiedView

    def verify(home: Path) -> list[VerifiedView]:
        with app_of(file, home=home) as app:
            if not app.views:
                return []
            app.tick(sinks=False)
            return [VerifiedView(each.view, each.rows, each.equal) for each in app.verify()]

    return verify


def restore(
    source: FromOption,
    to: Annotated[Path, typer.Option("--to", metavar="HOME", help="The new home: a directory that is not there yet.")],
    backup: Annotated[str, typer.Option("--backup", help="One backup, by its id; default: the newest.")] = "",
    at: Annotated[
        str,
        typer.Option("--at", help="A time (2026-01-31T10:00Z), how long ago (15m), or a token.", show_default=False),
    ] = "",
    key_file: KeyFileOption = None,
    key_command: KeyCommandOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a home from a backup. It has an identity of its own: sinks refill, captures and subscribers go on.

    Run the same line again after an interruption: it goes on where it was.

    [cyan]headwater restore --from /backup/shop --to shop-data[/cyan]
    [cyan]headwater restore --from /backup/shop --to shop-data --at 2026-01-31T10:00Z[/cyan]
    """
    from headwater.upkeep.backup.home_restore import restore_home
    from headwater.upkeep.backup.point_restore import restore_at

    if at and backup:
        raise Misuse("--at finds the backup by itself", hint="Leave --backup out.")
    key = key_of(key_file, key_command)
    with byte_progress("restoring", quiet=as_json) as progress:
        if at:
            report = restore_at(source, to, **_point(at), key=key, progress=progress)
        else:
            report = restore_home(source, to, backup=backup or None, key=key, progress=progress)
    answer(report.to_dict(), str(report), as_json=as_json)


def _point(text: str) -> dict[str, Any]:
    """A point that was asked for: a token has a topic's name, a time has none."""
    from headwater.log.token import Token

    if "=" in text:
        return {"token": Token.parse(text)}
    moment = parse_place(text)
    if not isinstance(moment, dt.datetime):
        raise Misuse(
            f"{text!r} is no point in time", hint="Use a time (2026-01-31T10:00Z), how long ago (15m), a token."
        )
    return {"at_us": to_us(moment)}
