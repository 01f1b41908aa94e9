"""Argument words: the arguments of a command, as they are written on a command line.

What it is: ``arguments_of``, which reads ``key=value`` words and a JSON object as values of a command's parameters.
Invariants: a word is read by the type of its parameter: ``cents=5`` is a number for an int and a text for a str. A word
that does not fit is refused with the parameter's name and type.
Not here: JSON values as parameters (``aggregates/command_arguments.py``).
Read next: ``aggregate_commands.py``.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

from headwater.errors import Misuse

TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def arguments_of(function: Callable[..., Any], words: Sequence[str], document: str | None = None) -> dict[str, Any]:
    """The arguments of one command, from words and from a JSON object.

    >>> def pay(self, cents: int, note: str, fast: bool = False): ...
    >>> arguments_of(pay, ["cents=5", "note=7", "fast=yes"])
    {'cents': 5, 'note': '7', 'fast': True}
    >>> arguments_of(pay, ["cents=five"])
    Traceback (most recent call last):
        ...
    headwater.errors.Misuse: argument "cents" cannot be "five"
      Hint: Give it as int: cents=…
    """
    from headwater.aggregates.command_arguments import from_json

    found = _document(document)
    hints = typing.get_type_hints(function)
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise Misuse(f'"{word}" is no argument', hint="Write arguments as NAME=VALUE, or use --arguments JSON.")
        if name in found:
            raise Misuse(f'argument "{name}" is given twice', hint="Give it once.")
        found[name] = _value(name, text, hints.get(name))
    return from_json(function, found)


def _document(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Misuse("--arguments is not JSON", detail=str(error), hint="""For example '{"cents": 5}'.""") from error
    if not isinstance(found, dict):
        raise Misuse("--arguments is no JSON object", hint="""For example '{"cents": 5}'.""")
    return found


def _value(name: str, text: str, hint: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [each for each in typing.get_args(hint) if each is not type(None)]
        if text == "null" and len(inner) < len(typing.get_args(hint)):
            return None
        hint = inner[0] if len(inner) == 1 else None
    if hint is bool:
        if text.lower() not in TRUTH:
            raise _refused(name, text, hint)
        return TRUTH[text.lower()]
    if hint in (int, float):
        try:
            return hint(text)
        except ValueError:
            raise _refused(name, text, hint) from None
    if isinstance(hint, type) and typing.get_origin(hint) is None and hint not in (list, dict, tuple):
        return text  # a text, or what is read of one: a date, a time, a Decimal, bytes in base64
    try:
        return json.loads(text)
    except ValueError:
        if hint is None:
            return text
        raise Misuse(f'argument "{name}" cannot be "{text}"', hint="Write lists and objects as JSON.") from None


def _refused(name: str, text: str, hint: type) -> Misuse:
    return Misuse(f'argument "{name}" cannot be "{text}"', hint=f"Give it as {hint.__name__}: {name}=…")
