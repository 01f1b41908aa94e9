"""Unknown words: a noun, a verb or an option that does not exist, and what was probably meant.

What it is: ``explained`` makes our error of typer's: the nearest known words, and then all that exist there.
Invariants: every group of commands and every verb is answered alike. A verb without its noun names the nouns that have
it.
Not here: arguments and their values, which their verbs check. Read next: ``main.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from headwater.errors import Misuse
from headwater.hints import nearest

NO_COMMAND = re.compile(r"No such command ['\"](.*?)['\"]\.")
PLACES_MAX = 6  # commands that are named for a verb without its noun


def explained(error: Any) -> Misuse | None:
    """The error for a word that does not exist; None for another mistake."""
    context = getattr(error, "ctx", None)
    if context is None:
        return None
    if type(error).__name__ == "NoSuchOption":
        known = [name for each in context.command.get_params(context) for name in (*each.opts, *each.secondary_opts)]
        options = sorted({name for name in known if name.startswith("-")})
        return _misuse(
            f"no such option: {error.option_name}",
            nearest(error.option_name, [each for each in options if each.startswith("--")]),
            f"`{context.command_path}` has the options {', '.join(options)}.",
            context.command_path,
        )
    commands = getattr(context.command, "commands", None)
    found = NO_COMMAND.match(getattr(error, "message", ""))
    if commands is None or found is None:
        return None
    word = found[1]
    within = [
        f"{noun} {verb}" for noun, each in commands.items() for verb in getattr(each, "commands", ()) if verb == word
    ]
    has = "has the nouns and verbs" if context.parent is None else "has the verbs"
    return _misuse(
        f"no such command '{word}'",
        (within or nearest(word, commands))[:PLACES_MAX],
        f"`{context.command_path}` {has} {', '.join(sorted(commands))}.",
        context.command_path,
    )


def _misuse(message: str, near: Sequence[str], exists: str, where: str) -> Misuse:
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    return Misuse(message, detail=exists, hint=f"{meant}See: {where} --help")
