"""``headwater verify APP.py``: compares views with the log.

What it is: computes each view from the log alone and compares it with its state.
Invariants: nothing changes and the app is not taken over; status 5 when a view differs from its query.
Not here: comparing (``views/lifecycle/verification.py``).
Read next: ``views/lifecycle/verification.py``.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app_argument import AppFileArgument, app_of
from headwater.cli.command_options import JsonOption
from headwater.cli.output import console, say, write_json
from headwater.errors import Corruption

if TYPE_CHECKING:
    from headwater.views.lifecycle.verification import Difference


def verify(
    file: AppFileArgument,
    view: Annotated[
        str | None, typer.Argument(metavar="[VIEW]", help="Only this view; else all.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compute views from the log alone, compare, and show the first differences. Status 5 when there are any.

    [cyan]headwater verify shop.py[/cyan]
    [cyan]headwater verify shop.py revenue --json[/cyan]
    """
    with app_of(file) as app:
        if view is not None:
            app.get_view(view)  # fails before Spark starts
        found = app._runtime.verify(view)
    if as_json:
        write_json([{**asdict(each), "equal": each.equal} for each in found])
    else:
        show_differences(found)
    if not all(each.equal for each in found):
        raise typer.Exit(Corruption.exit_status)


def show_differences(found: list[Difference]) -> None:
    """A line for each view, and its first differences."""
    if not found:
        say("nothing to verify: no tick has been committed yet")
    out = console()
    for each in found:
        if each.equal:
            out.print(f"{each.view}: {each.rows:,} rows at tick {each.tick}, as the log gives them", markup=False)
            if each.open_count:
                names = ", ".join(each.open_columns)
                out.print(f"  in {each.open_count:,} of them SQL leaves open what {names} is", markup=False)
            continue
        out.print(
            f"{each.view}: at tick {each.tick}, {each.missing_count:,} rows are missing "
            f"and {each.surplus_count:,} are too many",
            markup=False,
        )
        for mark, rows in (("missing", each.missing), ("too many", each.surplus)):
            for row in rows:
                out.print(f"  {mark}: {row}", markup=False, soft_wrap=True)
