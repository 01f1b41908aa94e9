"""``headwater why VIEW KEY…``: the input events behind a row of a view.

What it is: asks a view of a home, without the app's file; a view by function needs the file, ``--file``.
Invariants: nothing is changed and no app is taken over; it works while the app runs.
Not here: finding the events (``views/provenance/why.py``).
Read next: ``views/provenance/why.py``, ``docs/why.md``.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli import completions
from headwater.cli.command_options import HomeOption, JsonOption, opened
from headwater.cli.output import console, say
from headwater.cli.views.query_command import AppOption, app_in
from headwater.errors import Misuse

if TYPE_CHECKING:
    from headwater.log.contract import EventLog
    from headwater.views.privacy.personal_data import PersonalData, PrivacyRights
    from headwater.views.provenance.provenance import Provenance

LIMIT = 20
FORMS = ("html", "md")


def _report(
    found: Provenance, log: EventLog, data: PersonalData, rights: PrivacyRights, form: str, *, views_known: bool
) -> str:
    from headwater.log.schema.column_masks import ColumnMasks
    from headwater.views.provenance.decision_report import decision_report, masked, masks_for

    masks = masks_for(found, data, rights, views_known=views_known)
    secret = ColumnMasks(log.local.catalog.mask_secret())
    made_at = dt.datetime.fromtimestamp(log.clock.now_us() / 1e6, dt.UTC)
    return decision_report(masked(found, masks, secret), form=form, made_at=made_at)


def why(
    view: Annotated[
        str,
        typer.Argument(metavar="VIEW", help="The view's name.", show_default=False, autocompletion=completions.views),
    ],
    key: Annotated[
        list[str] | None, typer.Argument(metavar="KEY…", help="The key's values, or COLUMN=VALUE.", show_default=False)
    ] = None,
    at_tick: Annotated[
        int | None, typer.Option("--at-tick", metavar="TICK", min=1, help="As of an earlier tick.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Show so many events of each topic.")] = LIMIT,
    name: AppOption = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="APP.py", help="The app's file, for views by function.", show_default=False),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Write it as a document, .html or .md.", show_default=False),
    ] = None,
    purpose: Annotated[
        list[str] | None,
        typer.Option(
            "--purpose", metavar="WORD", help="In a report, show personal columns of this purpose.", show_default=False
        ),
    ] = None,
    unmasked: Annotated[bool, typer.Option("--unmasked", help="In a report, mask nothing.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the input events behind a row of a view, stage by stage.

    [cyan]headwater why revenue DE[/cyan]
    [cyan]headwater why revenue DE --at-tick 120 --json[/cyan]
    [cyan]headwater why orders_by_day country=DE day=2026-01-31 --limit 5[/cyan]
    [cyan]headwater why refused_loans 4711 --report loan-4711.html --file loans.py[/cyan]
    """
    from headwater.views.privacy.personal_data import SEES_ALL, PersonalData, PrivacyRights
    from headwater.views.provenance.explanations import explained

    words = list(key or [])
    form = None if report is None else report.suffix.lower()[1:]
    rights = SEES_ALL if unmasked else PrivacyRights(purposes=frozenset(purpose or ()))
    if form is not None and form not in FORMS:
        raise Misuse(f"a report cannot be written to {report}", hint="Name a file that ends in .html or .md.")
    if form is None and (purpose or unmasked):
        raise Misuse("--purpose and --unmasked are of a report", hint="Add --report FILE.")
    text = None
    if file is not None:
        from headwater.app_file import app_of

        with app_of(file) as app:
            app.get_view(view)
            found = explained(app._runtime, view, words, {}, at_tick=at_tick, limit=limit, as_text=True)
            if form is not None:
                text = _report(found, app.log, app.personal_data, rights, form, views_known=True)
    else:
        from headwater.views.runtime import AppRuntime

        app_name = app_in(home, name)
        with opened(home) as log:
            runtime = AppRuntime(app_name, log, (), {})
            try:
                found = explained(runtime, view, words, {}, at_tick=at_tick, limit=limit, as_text=True)
                if form is not None:
                    text = _report(found, log, PersonalData(lambda: log, list), rights, form, views_known=False)
            finally:
                runtime.close()
    if report is not None:
        assert text is not None
        partial = report.with_name(f".{report.name}.part")
        partial.write_text(text, encoding="utf-8")
        partial.replace(report)
        if not as_json:
            say(f"the report is in [bold]{report}[/bold]")
            return
    if as_json:
        from headwater.log.schema.json_lines import json_line

        typer.echo(json_line(found.to_dict()))
        return
    for line in found.lines():
        console().print(line, markup=False, highlight=False, soft_wrap=True)
