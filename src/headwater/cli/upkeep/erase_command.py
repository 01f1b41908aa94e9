"""``headwater erase``: a person is erased, or searched for.

What it is: the verb over ``upkeep/erasure/``.
Invariants: status 0 when nothing is left to be done, 5 when something is (``pending``, or found by ``verify``): asking
again goes on. Nothing is changed by ``--dry-run`` and ``verify``.
Not here: the work (``upkeep/erasure/``).
Read next: ``upkeep/erasure/person_erasure.py``; ``docs/erasure.md``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app_argument import app_of
from headwater.cli.command_options import HomeOption, JsonOption, KeyCommandOption, KeyFileOption, opened
from headwater.cli.output import say, write_json
from headwater.errors import Corruption, Misuse

if TYPE_CHECKING:
    from headwater.upkeep.erasure.erasure_certificate import ErasureCertificate

VERIFY, SHOW = "verify", "show"
MarkerOption = Annotated[
    list[str] | None,
    typer.Option("--marker", metavar="TEXT", help="A text of the person to search for; may be repeated."),
]


def erase(
    words: Annotated[
        list[str], typer.Argument(metavar="[verify|show] SUBJECT=ID", help="The person; only searched for, or shown.")
    ],
    file: Annotated[
        Path | None,
        typer.Option(
            "--app", metavar="APP.py", help="The app whose views and sinks follow at once.", show_default=False
        ),
    ] = None,
    home: HomeOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be erased.")] = False,
    backups: Annotated[
        list[str] | None,
        typer.Option(
            "--backups", metavar="PLACE", help="Further backups; may be repeated. Those that the home made are known."
        ),
    ] = None,
    key_file: KeyFileOption = None,
    key_command: KeyCommandOption = None,
    marker: MarkerOption = None,
    folder: Annotated[
        list[Path] | None,
        typer.Option("--folder", metavar="DIR", help="verify: another folder to search; may be repeated."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Erase a person from the log, views, sinks and records, with a certificate; search every byte; show what was done.

    Leaves with status 0 when nothing is left to be done, with 5 when something is.

    [cyan]headwater erase user_id=7 --dry-run[/cyan]
    [cyan]headwater erase user_id=7 --app shop.py --backups /backup/shop[/cyan]
    [cyan]headwater erase verify user_id=7 --marker ada@example.org[/cyan]
    [cyan]headwater erase show user_id=7 --json[/cyan]
    """
    from headwater.encryption.encryption_key import KeySource
    from headwater.upkeep.erasure.person_erasure import PersonErasure, certificate_of, look_for, parse_person

    verb = words[0] if words[0] in (VERIFY, SHOW) else None
    subject, value = parse_person(words[1:] if verb else words)
    key, places = KeySource.of(key_file, key_command), backups or ()
    searched: dict[str, KeySource | None] = dict.fromkeys(places, key)
    if verb == SHOW:
        with opened(home) as log:
            kept = certificate_of(log, subject, value)
        _show(kept, as_json, dry_run=True)
    elif verb == VERIFY:
        with opened(home) as log:
            report = look_for(log, subject, value, marker or (), folder or (), searched)
        write_json(report.to_dict()) if as_json else say(str(report))
        if not report.ok:
            raise typer.Exit(Corruption.exit_status)
    elif file is not None:
        if home is not None:
            raise Misuse("--app and --home do not go together", hint="The app's file says where its home is.")
        with app_of(file) as app:
            certificate = app.erase(
                dry_run=dry_run,
                backups=places,
                key_file=key_file,
                key_command=key_command,
                markers=marker or (),
                **{subject: value},
            )
        _show(certificate, as_json, dry_run=dry_run)
    else:
        with opened(home) as log:
            keys = {} if key is None else dict.fromkeys(places, key)
            work = PersonErasure(log, subject, value, backups=places, keys=keys, markers=marker or ())
            certificate = work.find() if dry_run else work.run()
        _show(certificate, as_json, dry_run=dry_run)


def _show(certificate: ErasureCertificate, as_json: bool, *, dry_run: bool) -> None:
    write_json(certificate.to_dict()) if as_json else say(str(certificate))
    if not (certificate.complete or dry_run):
        raise typer.Exit(Corruption.exit_status)
