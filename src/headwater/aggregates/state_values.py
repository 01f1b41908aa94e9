"""State values: the state of an aggregate as plain values, to be shown and compared.

What it is: ``state_values``, the attributes of a state; ``json_values``, values as JSON has them.
Invariants: equal states give equal values, also where a class in them has no equality of its own. JSON values are what
``from_json`` of a command's arguments reads: dates and times in ISO form, Decimal as text, bytes in base64.
Not here: exact texts of commands, from which they are decided again (``command_arguments.py``).
Read next: ``replay_check.py``, ``testing/given_when_then.py``.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import enum
from collections.abc import Mapping
from typing import Any


def state_values(state: Any) -> dict[str, Any]:
    """The attributes of a state, objects in them as dicts; equal for equal states, whether or not classes say so.

    >>> class Line:
    ...     def __init__(self, cents: int) -> None:
    ...         self.cents = cents
    >>> class Order:
    ...     paid = False
    ...     def __init__(self) -> None:
    ...         self.lines = [Line(5)]
    >>> state_values(Order())
    {'paid': False, 'lines': [{'cents': 5}]}
    """
    own = {**_defaults(type(state)), **_fields(state)}
    return {name: _plain(each, frozenset({id(state)})) for name, each in own.items()}


def _defaults(cls: type) -> dict[str, Any]:
    """Attributes that a class gives to all states, until an event changes one."""
    members = {name: value for base in reversed(cls.__mro__[:-1]) for name, value in vars(base).items()}
    return {
        name: value
        for name, value in members.items()
        if not name.startswith("_") and not callable(value) and not hasattr(type(value), "__get__")
    }


def _plain(value: Any, inside: frozenset[int]) -> Any:
    if value is None or isinstance(value, str | int | bool | bytes | enum.Enum | type):
        return value
    if isinstance(value, float):
        return value if value == value else "NaN"  # NaN is not equal to itself
    if id(value) in inside:
        return "(itself)"
    inside |= {id(value)}
    if isinstance(value, Mapping):
        return {_key(key, inside): _plain(each, inside) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, inside) for each in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(each, inside) for each in value), key=repr)
    compared = any("__eq__" in vars(cls) for cls in type(value).__mro__ if cls is not object)
    if compared and not dataclasses.is_dataclass(value):
        return value  # a date, a Decimal, a UUID: a value that can be compared
    return {name: _plain(each, inside) for name, each in _fields(value).items()}


def _fields(value: Any) -> dict[str, Any]:
    names = [name for cls in type(value).__mro__ for name in _slots(cls)]
    return {**getattr(value, "__dict__", {}), **{name: getattr(value, name) for name in names if hasattr(value, name)}}


def _key(key: Any, inside: frozenset[int]) -> Any:
    return key if key is None or isinstance(key, str | int | float) else str(_plain(key, inside))


def _slots(cls: type) -> tuple[str, ...]:
    found = cls.__dict__.get("__slots__", ())
    names = (found,) if isinstance(found, str) else tuple(found)
    return tuple(name for name in names if not name.startswith("__")) if cls.__module__ != "builtins" else ()


def json_values(value: Any) -> Any:
    """Values of events and states as JSON has them.

    >>> from decimal import Decimal
    >>> json_values({"on": dt.date(2026, 1, 1), "rate": Decimal("1.50"), "lines": ({"cents": 5},)})
    {'on': '2026-01-01', 'rate': '1.50', 'lines': [{'cents': 5}]}
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):  # JSON has neither NaN nor infinity
        return value if abs(value) < float("inf") else str(value)
    if isinstance(value, Mapping):
        return {str(key): json_values(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(each) for each in value]
    if isinstance(value, enum.Enum):
        return json_values(value.value)
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)
