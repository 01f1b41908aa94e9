"""Command arguments: values of commands as text, and values of JSON as what a command's parameters ask for.

What it is: ``to_text`` and ``from_text``, exact for the types that events may have; ``from_json``, for HTTP and the
command line.
Invariants: ``from_text(to_text(values))`` is equal to the values, types included; so a command can be decided again.
Not here: which arguments a command has (``aggregate_class.py``).
Read next: ``aggregate_repository.py``.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import json
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from headwater.errors import Misuse

TYPE = "$type"
_TO: dict[type, tuple[str, Callable[[Any], Any]]] = {
    dt.datetime: ("datetime", dt.datetime.isoformat),
    dt.date: ("date", dt.date.isoformat),
    decimal.Decimal: ("decimal", str),
    bytes: ("bytes", lambda value: base64.b64encode(value).decode()),
    tuple: ("tuple", list),
}
_FROM: dict[str, Callable[[Any], Any]] = {
    "datetime": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "decimal": decimal.Decimal,
    "bytes": base64.b64decode,
    "tuple": tuple,
}


def to_text(values: Mapping[str, Any], what: str) -> str:
    """Arguments as one line of JSON.

    >>> to_text({"cents": 5, "on": dt.date(2026, 1, 1)}, "pay")
    '{"cents":5,"on":{"$type":"date","value":"2026-01-01"}}'
    """
    return json.dumps(_plain(dict(values), what), separators=(",", ":"), ensure_ascii=False)


def from_text(text: str) -> dict[str, Any]:
    """The arguments of ``to_text``.

    >>> from_text(to_text({"rate": decimal.Decimal("1.50")}, "pay"))
    {'rate': Decimal('1.50')}
    """
    found: dict[str, Any] = json.loads(text, object_hook=_object)
    return found


def _plain(value: Any, what: str) -> Any:
    if value is None or type(value) in (str, int, float, bool):
        return value
    if type(value) is dict:
        if any(type(key) is not str for key in value) or TYPE in value:
            pairs = [[_plain(key, what), _plain(each, what)] for key, each in value.items()]
            return {TYPE: "dict", "value": pairs}
        return {key: _plain(each, what) for key, each in value.items()}
    if type(value) is list:
        return [_plain(each, what) for each in value]
    if type(value) in _TO:
        name, convert = _TO[type(value)]
        converted = convert(value)
        return {TYPE: name, "value": [_plain(each, what) for each in converted] if name == "tuple" else converted}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value), what)
    raise Misuse(
        f'an argument of "{what}" is of type {type(value).__name__}, which cannot be recorded',
        hint="Use numbers, texts, dates, times, Decimal, bytes, and lists, dicts and dataclasses of these.",
    )


def _object(found: dict[str, Any]) -> Any:
    name = found.get(TYPE)
    if name == "dict":
        return dict(found["value"])
    return _FROM[name](found["value"]) if name in _FROM else found


def from_json(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that came as JSON, in the types that the parameters ask for.

    >>> def pay(self, amount: decimal.Decimal, on: dt.date | None = None): ...
    >>> from_json(pay, {"amount": "1.50", "on": "2026-01-01"})
    {'amount': Decimal('1.50'), 'on': datetime.date(2026, 1, 1)}
    """
    hints = typing.get_type_hints(function)
    return {name: _converted(name, value, hints.get(name)) for name, value in given.items()}


def _converted(name: str, value: Any, hint: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [each for each in typing.get_args(hint) if each is not type(None)]
        hint = inner[0] if len(inner) == 1 else None
    if value is None or hint is None:
        return value
    try:
        if hint is decimal.Decimal and isinstance(value, str | int | float):
            return decimal.Decimal(str(value))
        if hint is dt.datetime and isinstance(value, str):
            return dt.datetime.fromisoformat(value)
        if hint is dt.date and isinstance(value, str):
            return dt.date.fromisoformat(value)
        if hint is bytes and isinstance(value, str):
            return base64.b64decode(value, validate=True)
        if hint is float and type(value) is int:
            return float(value)
    except (ValueError, decimal.InvalidOperation) as error:
        raise Misuse(
            f'argument "{name}" cannot be {value!r}', detail=str(error), hint=f"Give it as {hint.__name__}."
        ) from error
    if hint in (int, str, bool, float) and type(value) is not hint:
        raise Misuse(
            f'argument "{name}" cannot be {value!r}', hint=f"Give it as {hint.__name__}, not {type(value).__name__}."
        )
    return value
