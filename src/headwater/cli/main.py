"""The entry point: ``headwater NOUN VERB``, and its errors and exit statuses.

What it is: the typer app with all nouns mounted, and the one place where an error becomes an exit status.
Invariants: a user's mistake shows message, detail and hint, and no stack trace; with ``--json`` it is the document of
``error.to_dict()`` on stderr. Statuses: 0 well, 1 a bug, a failed demo or a finding of the
doctor's, 2 misuse, 3 conflict, 4 unavailable, 5 corruption, 130 interrupted. A closed pipe (``| head``) ends the
program quietly with 0.
Not here: the verbs. Importing this imports no pyarrow by itself.
Read next: ``command_options.py``, ``cli/log/topic_commands.py``.
"""

from __future__ import annotations

import copy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headwater.cli import completion, init_command, unknown_words
from headwater.cli.aggregates import aggregate_commands
from headwater.cli.command_options import HomeOption, LogOption, home_before_verb, log_before_verb
from headwater.cli.connectors import (
    attach_commands,
    capture_commands,
    inlet_commands,
    search_command,
    sink_commands,
    sync_command,
)
from headwater.cli.doctor import doctor_command
from headwater.cli.log import (
    check_commands,
    group_commands,
    lag_commands,
    mirror_commands,
    topic_commands,
    undo_command,
)
from headwater.cli.output import EXIT_INTERRUPTED, abandon_stdout, show_error
from headwater.cli.patterns import pattern_commands
from headwater.cli.processes import claim_commands, process_commands, service_commands
from headwater.cli.searches import search_commands
from headwater.cli.server import key_commands, serve_command
from headwater.cli.upkeep import audit_commands, backup_commands, erase_command, privacy_commands
from headwater.cli.views import view_commands
from headwater.demo import demo_command as demo
from headwater.errors import HeadwaterError, Misuse
from headwater.log.storage.file_descriptors import EXHAUSTED, raise_limit, too_many_files
from headwater.views.spark import own_process

PANELS = ("Begin", "The log", "Event sourcing", "Views", "In and out", "Care")
BEGIN, KEEP, DECIDE, DERIVE, IN_AND_OUT, CARE = PANELS


class Root(TyperGroup):
    """The root command, which maps errors to exit statuses."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and exit with the status (or return it, when not ``standalone_mode``)."""
        words = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in words
        completion.ready()
        try:
            result = super().main(words, prog_name, complete_var, False, windows_expand_args, **extra)
            status = result if isinstance(result, int) else 0
        except HeadwaterError as error:
            show_error(error, as_json=as_json)
            status = error.exit_status
        except (KeyboardInterrupt, typer.Abort):
            status = EXIT_INTERRUPTED
        except Exception as error:
            status = _report(error, as_json=as_json)
        if standalone_mode:
            sys.exit(status)
        return status

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands by purpose, in the order of the panels; typer would put nouns behind all verbs."""
        panels = {name: getattr(command, "rich_help_panel", None) for name, command in self.commands.items()}
        places = {name: PANELS.index(panel) if panel in PANELS else len(PANELS) for name, panel in panels.items()}
        return sorted(super().list_commands(ctx), key=places.__getitem__)

    def invoke(self, ctx: Any) -> Any:
        """Run a verb; a closed pipe (``| head``) is not an error."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            abandon_stdout()
            return 0


app = typer.Typer(
    cls=Root,
    name="headwater",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("init", rich_help_panel=BEGIN)(init_command.init)
app.command("demo", rich_help_panel=BEGIN)(demo.demo)
app.command("doctor", rich_help_panel=BEGIN)(doctor_command.doctor)
app.command("completion", rich_help_panel=BEGIN)(completion.completion)
app.add_typer(topic_commands.app, name="topic", rich_help_panel=KEEP)
app.add_typer(group_commands.app, name="group", rich_help_panel=KEEP)
app.command("undo", rich_help_panel=KEEP)(undo_command.undo)
app.command("lag", rich_help_panel=KEEP)(lag_commands.lag)
app.add_typer(lag_commands.app, name="app", rich_help_panel=KEEP)
app.add_typer(aggregate_commands.app, name="aggregate", rich_help_panel=DECIDE)
app.add_typer(claim_commands.app, name="claim", rich_help_panel=DECIDE)
app.add_typer(process_commands.app, name="process", rich_help_panel=DECIDE)
app.add_typer(service_commands.app, name="service", rich_help_panel=DECIDE)
view_commands.mount(app, panel=DERIVE)
app.add_typer(pattern_commands.app, name="pattern", rich_help_panel=DERIVE)
app.add_typer(search_commands.app, name="searches", rich_help_panel=DERIVE)
app.command("attach", rich_help_panel=IN_AND_OUT)(attach_commands.attach)
app.command("detach", rich_help_panel=IN_AND_OUT)(attach_commands.detach)
app.add_typer(capture_commands.app, name="capture", rich_help_panel=IN_AND_OUT)
app.add_typer(inlet_commands.app, name="inlet", rich_help_panel=IN_AND_OUT)
app.command("serve", rich_help_panel=IN_AND_OUT)(serve_command.serve)
app.add_typer(key_commands.app, name="key", rich_help_panel=IN_AND_OUT)
app.add_typer(sink_commands.app, name="sink", rich_help_panel=IN_AND_OUT)
app.command("sync", rich_help_panel=IN_AND_OUT)(sync_command.sync)
app.command("search", rich_help_panel=IN_AND_OUT)(search_command.search)
app.command("check", rich_help_panel=CARE)(check_commands.check)
app.command("maintain", rich_help_panel=CARE)(check_commands.maintain)
app.add_typer(backup_commands.app, name="backup", rich_help_panel=CARE)
app.command("restore", rich_help_panel=CARE)(backup_commands.restore)
app.command("erase", rich_help_panel=CARE)(erase_command.erase)
app.add_typer(privacy_commands.app, name="privacy", rich_help_panel=CARE)
app.add_typer(audit_commands.app, name="audit", rich_help_panel=CARE)
app.command("mirror", rich_help_panel=CARE)(mirror_commands.mirror)
app.command("promote", rich_help_panel=CARE)(mirror_commands.promote)
app.command("migrate", rich_help_panel=CARE)(mirror_commands.migrate)


def _show_version(wanted: bool) -> None:
    if wanted:
        from headwater import __version__

        typer.echo(f"headwater {__version__}")
        raise typer.Exit


@app.callback()
def root(
    home: HomeOption = None,
    log: LogOption = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """One ordered, typed log in a directory, and views over it that are kept up to date.

    Begin with [cyan]headwater demo[/cyan], with [cyan]headwater init[/cyan], or:

    [cyan]headwater topic create orders --schema "order_id BIGINT, amount DOUBLE"[/cyan]
    [cyan]echo '{"order_id": 1, "amount": 9.5}' | headwater topic append orders[/cyan]
    [cyan]headwater topic tail orders -f[/cyan]
    """
    home_before_verb.set(Path(home) if home is not None else None)
    log_before_verb.set(log)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit; the installed script ``headwater`` calls this."""
    raise_limit()  # of file descriptors
    own_process.claim()
    words = sys.argv[1:] if arguments is None else arguments
    _with_one_noun(words[0] if words else "")(args=arguments, prog_name="headwater")


def _with_one_noun(name: str) -> typer.Typer:
    """The command line with nothing but this noun or verb; whole if there is none of this name.

    typer reads the signature of every verb that is mounted, 50 ms for all of them: a third of what ``topic ls`` takes.
    """
    part = copy.copy(app)
    part.registered_groups = [each for each in app.registered_groups if each.name == name]
    part.registered_commands = [each for each in app.registered_commands if each.name == name]
    return part if part.registered_groups or part.registered_commands else app


def _report(error: Any, *, as_json: bool) -> int:
    """Report typer's own errors, which are misuse, and bugs."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return Misuse.exit_status
    if not hasattr(error, "format_message"):
        return _report_bug(error, as_json=as_json)
    if (unknown := unknown_words.explained(error)) is not None:
        show_error(unknown, as_json=as_json)
        return unknown.exit_status
    context = getattr(error, "ctx", None)
    message = " ".join(error.format_message().split()).rstrip(".")
    hint = f"See: {context.command_path if context else 'headwater'} --help"
    show_error(Misuse(message[:1].lower() + message[1:], hint=hint), as_json=as_json)
    return Misuse.exit_status


def _report_bug(error: Exception, *, as_json: bool) -> int:
    if isinstance(error, OSError) and error.errno in EXHAUSTED:
        full = too_many_files(error)
        show_error(full, as_json=as_json)
        return full.exit_status
    trace = "".join(traceback.format_exception(error))
    bug = HeadwaterError(
        f"unexpected {type(error).__name__}: {error}",
        detail=trace if as_json else None,
        hint="This is a bug in Headwater, not in your code. Please report it with the trace above.",
    )
    if not as_json:
        sys.stderr.write(trace)
    show_error(bug, as_json=as_json)
    return bug.exit_status


if __name__ == "__main__":
    main()
