"""``headwater doctor``: problems of this machine or home, and their fixes.

What it is: the verb that runs every check of ``machine_checks.py`` and ``home_checks.py``, with a line for each.
Invariants: it changes nothing except a temporary file that measures the disk. A check that raises is a failed check.
Status 1 when a check fails, 0 with warnings only.
Not here: damaged data (``cli/log/check_commands.py``).
Read next: ``machine_checks.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import typer

from headwater.cli.command_options import HomeOption, JsonOption, home_of
from headwater.cli.doctor.findings import Finding, FindingState
from headwater.cli.output import console, say, write_json

STYLES = {FindingState.OK: "green", FindingState.WARN: "yellow", FindingState.FAIL: "bold red"}
EXIT_FAILED = 1


def doctor(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Look at Python, packages, Java, memory, disk and the home, and say what is wrong and how to mend it.

    Leaves with status 0 when nothing fails, with 1 when something does. A home need not be there.

    [cyan]headwater doctor[/cyan]
    [cyan]headwater doctor --home ./shop-data --json | jq '.checks[] | select(.state != "ok")'[/cyan]
    """
    from headwater.cli.doctor import home_checks, machine_checks

    path = home_of(home).expanduser().absolute()
    checks: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        *machine_checks.CHECKS,
        *((name, lambda check=check: check(path)) for name, check in home_checks.CHECKS),
    ]
    findings = [finding for name, check in checks for finding in held(name, check)]
    counts = {str(state): sum(each.state is state for each in findings) for state in FindingState}
    if as_json:
        write_json({"home": str(path), "checks": [each.to_dict() for each in findings], **counts})
    else:
        _show(findings)
        say(f"{counts['ok']} well, {counts['warn']} to look at, {counts['fail']} wrong")
    if counts["fail"]:
        raise typer.Exit(EXIT_FAILED)


def held(name: str, check: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """The findings of a check; a check that raises is a finding too."""
    try:
        return list(check())
    except Exception as error:
        return [Finding(name, FindingState.FAIL, f"could not be looked at: {type(error).__name__}: {error}")]


def _show(findings: list[Finding]) -> None:
    from rich.text import Text

    out = console()
    width = max(len(each.check) for each in findings)
    for each in findings:
        line = Text.assemble((f"{each.state:<4} ", STYLES[each.state]), (f"{each.check:<{width}}  ", "dim"), each.found)
        out.print(line, soft_wrap=True)
        if each.mend:
            out.print(Text(f"     {'':<{width}}  {each.mend}", style="cyan"), soft_wrap=True)
